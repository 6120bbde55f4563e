package peer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Protocol is the version of what is said on a line. Members of different
// protocols do not talk.
const Protocol = 1

// The reasons why a line is refused. Each has a code on the wire, so that both
// ends name the same one.
var (
	// ErrProtocol: the two ends speak different versions.
	ErrProtocol = errors.New("other protocol version")
	// ErrIncarnation: the other end belongs to another cluster, or to the same
	// one before it was restored from a backup.
	ErrIncarnation = errors.New("member of another cluster")
	// ErrReceiver: another member listens here than the one that was dialled.
	ErrReceiver = errors.New("another member listens at this address")
	// ErrGroup: the other end has another raft group.
	ErrGroup = errors.New("other raft group")
	// ErrRemoved: the dialling member was removed from the cluster. Its ID
	// never comes back.
	ErrRemoved = errors.New("member was removed from the cluster")
	// ErrVersion: the dialling member's release does not know the cluster's
	// version, or the dialled one's does not.
	ErrVersion = errors.New("release is older than the cluster's version")
	// ErrNoMember: the dialled node belongs to no cluster yet.
	ErrNoMember = errors.New("node is no member yet")
	// ErrCertificate: the certificate is not that of the member.
	ErrCertificate = errors.New("certificate names another member")
	// ErrBusy: the other end takes no more of this now.
	ErrBusy = errors.New("busy")
)

var codes = []struct {
	code string
	err  error
}{
	{"protocol", ErrProtocol}, {"incarnation", ErrIncarnation}, {"receiver", ErrReceiver}, {"group", ErrGroup},
	{"removed", ErrRemoved}, {"version", ErrVersion}, {"no-member", ErrNoMember}, {"certificate", ErrCertificate},
	{"busy", ErrBusy},
}

// A Refusal says why a line is refused, or a snapshot not taken.
type Refusal struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// refuse makes the refusal for a reason.
func refuse(reason error, format string, args ...any) *Refusal {
	r := &Refusal{Text: fmt.Sprintf(format, args...)}
	for _, c := range codes {
		if c.err == reason {
			r.Code = c.code
		}
	}
	return r
}

// Error implements error.
func (r *Refusal) Error() string {
	if reason := r.Unwrap(); reason != nil {
		return reason.Error() + ": " + r.Text
	}
	return r.Code + ": " + r.Text
}

// Unwrap returns the named reason; nil if this release does not know it.
func (r *Refusal) Unwrap() error {
	for _, c := range codes {
		if c.code == r.Code {
			return c.err
		}
	}
	return nil
}

// purpose says what a line is for.
type purpose string

// The purposes.
const (
	prompt   purpose = "prompt"
	bulk     purpose = "bulk"
	snapshot purpose = "snapshot"
	relay    purpose = "relay"
)

// Hello is how a line begins.
type Hello struct {
	Protocol    int     `json:"protocol"`
	Purpose     purpose `json:"purpose"`
	Incarnation uint64  `json:"incarnation,string"`
	From        uint64  `json:"from,string"`
	To          uint64  `json:"to,string"` // whom the sender expects
	Group       uint64  `json:"group,string"`
	// Version is the cluster's version as the sender knows it, Supports the
	// newest that the sender's release can apply.
	Version  uint32 `json:"version"`
	Supports uint32 `json:"supports"`
	Name     string `json:"name"` // the sender's, for logs
}

// Welcome is the answer to a [Hello] that was accepted.
type Welcome struct {
	Version  uint32 `json:"version"`
	Supports uint32 `json:"supports"`
}

// Self says who this member is.
type Self struct {
	Incarnation uint64
	ID          uint64
	Group       uint64
	Name        string
	// Supports is the newest cluster version that this release can apply.
	Supports uint32
	// Version is the cluster's version as of now; it may be called by any
	// goroutine. nil means that it is 1.
	Version func() uint32
}

func (s Self) version() uint32 {
	if s.Version == nil {
		return 1
	}
	return s.Version()
}

// hello is what this member says first on a line to another.
func (s Self) hello(p purpose, to uint64) Hello {
	return Hello{
		Protocol: Protocol, Purpose: p, Incarnation: s.Incarnation, From: s.ID, To: to, Group: s.Group,
		Version: s.version(), Supports: s.Supports, Name: s.Name,
	}
}

// check says why a line that begins so is refused; nil if it is not.
func (s Self) check(h Hello, removed []uint64) *Refusal {
	switch {
	case h.Protocol != Protocol:
		return refuse(ErrProtocol, "it speaks version %d, this member version %d", h.Protocol, Protocol)
	case h.Incarnation != s.Incarnation:
		return refuse(ErrIncarnation, "it is of incarnation %016x, this member of %016x: one of the two has the wrong data directory or the wrong addresses", h.Incarnation, s.Incarnation)
	case slices.Contains(removed, h.From):
		return refuse(ErrRemoved, "member %016x was removed: give it an empty data directory and add it as a new one", h.From)
	case h.To != s.ID:
		return refuse(ErrReceiver, "it looks for member %016x, and this is %016x (%s): the address of one of the two is wrong", h.To, s.ID, s.Name)
	case h.From == s.ID || h.From == 0:
		return refuse(ErrReceiver, "it says that its ID is %016x, as this member's: one data directory was copied", h.From)
	case h.Group != s.Group:
		return refuse(ErrGroup, "it is of group %d, this member of %d", h.Group, s.Group)
	case h.Supports < s.version():
		return refuse(ErrVersion, "it can apply version %d, and the cluster has %d: start a newer release there", h.Supports, s.version())
	case h.Version > s.Supports:
		return refuse(ErrVersion, "the cluster has version %d, and this member can apply %d: start a newer release here", h.Version, s.Supports)
	case h.Purpose != prompt && h.Purpose != bulk && h.Purpose != snapshot && h.Purpose != relay:
		return refuse(ErrProtocol, "it wants a line for %.20q", string(h.Purpose))
	}
	return nil
}

// encode gives the JSON of a control message, which is one of ours and can be
// encoded.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// decode reads a control message.
func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}
