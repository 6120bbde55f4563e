package peer

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"
)

// A Founder is an entry of the list that a cluster is founded from.
type Founder struct {
	Name string `json:"name"`
	Addr string `json:"address"` // of its port for members
}

// Facts are what a node says about itself before it is a member.
type Facts struct {
	ID         uint64 `json:"id,string"`
	Name       string `json:"name"`
	ClientAddr string `json:"client_address"`
	PeerAddr   string `json:"peer_address"`
}

// A Plan is what all founders of a cluster write.
type Plan struct {
	Incarnation uint64  `json:"incarnation,string"`
	Domain      string  `json:"domain"` // in hex
	Members     []Facts `json:"members"`
}

// A Question asks who listens at a port. With a plan it also asks whether the
// node agrees to it.
type Question struct {
	Plan *Plan `json:"plan,omitempty"`
}

// State is what a node is.
type State string

// The states.
const (
	// IsNew: it belongs to no cluster.
	IsNew State = "new"
	// IsFounding: it has decided to become a member, or is becoming one.
	IsFounding State = "founding"
	// IsMember: it belongs to a cluster.
	IsMember State = "member"
)

// An Answer says who listens at a port.
type Answer struct {
	Protocol int   `json:"protocol"`
	State    State `json:"state"`
	Facts
	// List is what a new node wants to found a cluster from.
	List []Founder `json:"list,omitempty"`
	// Incarnation and Members are those of a member's cluster, as it knows
	// them; Plan is what its founders wrote, if it was one.
	Incarnation uint64  `json:"incarnation,string"`
	Members     []Facts `json:"members,omitempty"`
	Plan        *Plan   `json:"plan,omitempty"`
	// Removed: the member was told that it was removed.
	Removed []uint64 `json:"removed,omitempty"`
	// Supports is the newest cluster version that it can apply.
	Supports uint32 `json:"supports,omitempty"`
	// Agreed says whether it agrees to the question's plan, and Why why not.
	Agreed bool   `json:"agreed,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Ask asks who listens at an address; cfg is that of a [Port], of which only
// what concerns dialling is used.
func Ask(ctx context.Context, cfg Config, addr string, q Question) (Answer, error) {
	var a Answer
	dial := cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	c, err := dial(ctx, addr)
	if err != nil {
		return a, err
	}
	defer func() { _ = c.Close() }()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	secured, err := secure(ctx, c, cfg, addr, "")
	if err != nil {
		return a, fmt.Errorf("%w: is that the port for members, and do both sides use certificates of one CA?", err)
	}
	if _, err := secured.Write(appendFrame(nil, kindAsk, encode(q))); err != nil {
		return a, err
	}
	k, body, err := readFrame(bufio.NewReader(secured), maxControl)
	switch {
	case err != nil && refusesUs(err):
		return a, fmt.Errorf("it does not accept this node's certificate: %s", bare(err))
	case err != nil:
		return a, fmt.Errorf("no answer: %w: is that the port for members?", err)
	}
	if k != kindTell {
		return a, fmt.Errorf("%w: the question is answered with kind %d", ErrFrame, k)
	}
	if err := decode(body, &a); err != nil {
		return a, err
	}
	if a.Protocol != Protocol {
		return a, refuse(ErrProtocol, "it speaks version %d, this node version %d", a.Protocol, Protocol)
	}
	return a, nil
}
