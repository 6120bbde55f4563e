package core

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNetwork is invariant 7 and C1–C3. Clients follow the rules of lanes
// over a network that loses, doubles, delays and reorders what they send, and
// loses answers. Whatever it does: a request has at most one grant or change,
// all its final answers agree, a settled cancel leaves nothing, and every
// client can always go on.
func TestNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &network{s: testState(), grants: map[string]uint64{}, changes: map[string]Revision{}, final: map[string]string{}, settled: map[string]bool{}}
		for id := SessionID(1); id <= 3; id++ {
			n.send(t, Open{ID: id, SecretHash: [32]byte{1, byte(id)}, TTL: MinTTL})
			n.clients = append(n.clients, &client{id: id, lanes: []*clientLane{{lane: 0}, {lane: 1}}})
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			if len(n.flying) > 0 && rapid.IntRange(0, 2).Draw(t, "late") == 0 {
				// A copy from any time comes (again), and its answer is lost.
				n.send(t, n.flying[rapid.IntRange(0, len(n.flying)-1).Draw(t, "copy")])
				continue
			}
			c := n.clients[rapid.IntRange(0, len(n.clients)-1).Draw(t, "client")]
			c.act(t, n)
		}
		n.goOn(t)
	})
}

type network struct {
	s       *State
	clients []*client
	flying  []Command // all that was ever sent
	// By request: its only grant, its only change, its final answer, and
	// whether a cancel of it was answered.
	grants  map[string]uint64
	changes map[string]Revision
	final   map[string]string
	settled map[string]bool
}

type client struct {
	id    SessionID
	lanes []*clientLane
	held  []uint64
}

type clientLane struct {
	lane   uint32
	n      uint64
	open   Command // the unsettled call
	cancel bool    // a cancel was sent: only its answer counts
}

func (l *clientLane) request() Request { return Request{Lane: l.lane, N: l.n} }

// act is one thing that a client does: a new call on a free lane, a repeated
// one, a cancel, or a release.
func (c *client) act(t *rapid.T, n *network) {
	if len(c.held) > 0 && rapid.IntRange(0, 2).Draw(t, "release") == 0 {
		n.deliver(t, Release{Session: c.id, Grant: c.held[0]}, func(Result) { c.held = c.held[1:] })
		return
	}
	l := c.lanes[rapid.IntRange(0, len(c.lanes)-1).Draw(t, "lane")]
	if l.open == nil {
		l.n++
		l.cancel = false
		lock := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "lock")
		if rapid.IntRange(0, 4).Draw(t, "put") == 0 {
			l.open = Put{Session: c.id, Request: l.request(), Lock: "v/" + lock, Value: []byte{1}}
		} else {
			l.open = Acquire{Session: c.id, Request: l.request(), Lock: lock, Shared: rapid.Bool().Draw(t, "shared"), Try: rapid.Bool().Draw(t, "try")}
		}
	} else if rapid.IntRange(0, 2).Draw(t, "cancel") == 0 {
		l.cancel = true
	}
	if l.cancel {
		n.deliver(t, Cancel{Session: c.id, Request: l.request()}, func(r Result) {
			n.settled[name(c.id, l.request())] = true
			l.open = nil
		})
		return
	}
	n.deliver(t, l.open, func(r Result) {
		if r.Status == Waiting {
			return
		}
		if r.Status == Granted {
			c.held = append(c.held, r.Grant.Number)
		}
		l.open = nil
	})
}

func name(id SessionID, r Request) string { return fmt.Sprint(id, r) }

// deliver sends a call, which may be lost before or after it took effect.
func (n *network) deliver(t *rapid.T, c Command, answered func(Result)) {
	n.flying = append(n.flying, c)
	fate := rapid.SampledFrom([]string{"arrives", "arrives", "lost", "answer lost"}).Draw(t, "fate")
	if fate == "lost" {
		return
	}
	if r := n.send(t, c); fate == "arrives" {
		answered(r)
	}
}

// send applies a command and looks at what was answered and what happened.
func (n *network) send(t *rapid.T, c Command) Result {
	a, err := n.s.Apply(Entry{Index: n.s.Index() + 1, Commands: []Command{c}})
	if err == nil {
		err = n.s.Check()
	}
	if err != nil {
		t.Fatalf("%#v: %v", c, err)
	}
	for _, x := range a.Notices {
		n.saw(t, x.Session, x.Request, x.Result)
	}
	switch c := c.(type) {
	case Acquire:
		n.saw(t, c.Session, c.Request, a.Results[0])
	case Put:
		if len(a.Events) > 0 {
			key := name(c.Session, c.Request)
			if was := n.changes[key]; was != 0 {
				t.Fatalf("invariant 7: %s put at revisions %d and %d", key, was, a.Events[0].Revision)
			}
			n.changes[key] = a.Events[0].Revision
		}
		n.saw(t, c.Session, c.Request, a.Results[0])
	}
	return a.Results[0]
}

// saw checks an answer about a request against earlier ones.
func (n *network) saw(t *rapid.T, id SessionID, r Request, got Result) {
	key := name(id, r)
	if got.Status == Granted {
		if was := n.grants[key]; was != 0 && was != got.Grant.Number {
			t.Fatalf("invariant 7: request %s has the grants %d and %d", key, was, got.Grant.Number)
		}
		if n.settled[key] {
			t.Fatalf("C2: request %s granted after its cancel was answered", key)
		}
		n.grants[key] = got.Grant.Number
	}
	if got.Status == Waiting || got.Status == Settled || got.Status == Cancelled {
		return
	}
	got.Ended = false // the grant's end does not change what was answered
	text := formatResult(got)
	if was := n.final[key]; was != "" && was != text {
		t.Fatalf("invariant 7: request %s was answered\n%s\nand then\n%s", key, was, text)
	}
	n.final[key] = text
}

// goOn lets every client settle what is open over a network that works now,
// after which nothing is held or queued but what the clients know of.
func (n *network) goOn(t *rapid.T) {
	var known []uint64
	for _, c := range n.clients {
		for _, l := range c.lanes {
			if l.open != nil {
				n.send(t, Cancel{Session: c.id, Request: l.request()})
				n.settled[name(c.id, l.request())] = true
			}
		}
		known = append(known, c.held...)
	}
	for _, c := range slices.Clone(n.flying) {
		if _, ok := c.(Release); !ok {
			n.send(t, c) // the last copies come
		}
	}
	for _, v := range n.s.Sessions(0, 10) {
		if len(v.Waits) > 0 {
			t.Fatalf("a request waits that nobody knows: %s", formatSession(v))
		}
		for _, g := range v.Grants {
			if !slices.Contains(known, g.Number) {
				t.Fatalf("grant %d is an orphan: %s", g.Number, formatSession(v))
			}
		}
	}
}
