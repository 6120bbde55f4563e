package lease

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"holdfast/server/core"
)

// A chaos is a rig under random arrivals, deaths, stalls, lost quorums, refused
// proposals and changes of leader, with what must hold all the time.
type chaos struct {
	*rig
	t     *rapid.T
	died  map[core.SessionID]bool
	nextN map[core.SessionID]uint64
	locks []string
}

// promises checks what must hold after every turn: a session whose client was
// promised more time is there, and a session whose client never fell silent is
// there even without a promise.
func (c *chaos) promises() {
	for _, p := range c.members {
		if p.deadline > c.now && !c.st.HasSession(p.id) {
			c.t.Fatalf("session %d ended %v before its client's deadline", p.id, p.deadline-c.now)
		}
		if !c.died[p.id] && !c.st.HasSession(p.id) {
			c.t.Fatalf("session %d ended though its client was never silent", p.id)
		}
	}
}

func (c *chaos) pick() *member {
	return c.members[rapid.IntRange(0, len(c.members)-1).Draw(c.t, "member")]
}

func (c *chaos) ms(low, high int, name string) time.Duration {
	return time.Duration(rapid.IntRange(low, high).Draw(c.t, name)) * time.Millisecond
}

func (c *chaos) step() {
	switch rapid.IntRange(0, 11).Draw(c.t, "what") {
	case 0, 1, 2:
		c.run(c.ms(1, 3000, "run"))
	case 3:
		c.stall(c.ms(100, 20_000, "stall"))
	case 4, 5:
		c.frozen, c.refuse = false, false
		c.elect(c.ms(0, 4000, "gap"), rapid.Bool().Draw(c.t, "keep"))
	case 6:
		for range rapid.IntRange(1, 8).Draw(c.t, "flaps") {
			c.elect(c.ms(0, 50, "gap"), rapid.Bool().Draw(c.t, "keep"))
			c.run(c.ms(1, 700, "office"))
		}
	case 7: // no quorum
		c.frozen = true
		c.run(c.ms(1, 3000, "frozen"))
		c.frozen = false
	case 8:
		c.refuse = true
		c.run(c.ms(1, 500, "refused"))
		c.refuse = false
	case 9: // a client dies
		p := c.pick()
		p.every, c.died[p.id] = 0, true
	case 10:
		p := c.pick()
		c.nextN[p.id]++
		c.acquire(core.Acquire{
			Session: p.id, Request: core.Request{N: c.nextN[p.id]}, Lock: rapid.SampledFrom(c.locks).Draw(c.t, "lock"),
			Try: rapid.Bool().Draw(c.t, "try"), LockDelay: c.ms(0, 2000, "delay"), MaxHold: c.ms(0, 1, "end") * 3000,
		})
	case 11:
		v, ok := c.st.Lock(rapid.SampledFrom(c.locks).Draw(c.t, "lock"), 0)
		if !ok || len(v.Holders) == 0 {
			return
		}
		cmd := core.Revoke{Lock: v.Name, Grant: v.Holders[0].Number, Cause: core.ByOperator}
		c.m.Proposed([]core.Command{cmd})
		c.propose(nil, cmd)
	}
}

func TestRandomLeadersKeepPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &chaos{rig: newRig(t), t: t, died: map[core.SessionID]bool{}, nextN: map[core.SessionID]uint64{}, locks: []string{"a", "b"}}
		c.drain = c.ms(0, 300, "drain time")
		c.confirm = c.ms(1, 40, "confirm time")
		c.elect(0, false)
		c.check = c.promises
		for id := core.SessionID(1); id <= 5; id++ {
			ttl := c.ms(1, 8, "ttl") * 1000
			c.open(id, ttl)
			c.members = append(c.members, &member{
				id: id, every: ttl / 4, next: c.now, lag: c.ms(0, 20, "lag"), meet: c.ms(0, 60, "meet")})
		}
		c.commit = c.ms(1, 40, "commit time")
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			c.step()
		}
		c.calm()
	})
}

// calm ends the chaos: with one leader that stays, all that is dead goes, all
// that is closed opens, and every keepalive has its answer.
func (c *chaos) calm() {
	c.elect(0, false)
	c.run(17 * time.Second)
	for _, p := range c.members {
		if c.died[p.id] == c.st.HasSession(p.id) {
			c.t.Fatalf("session %d: dead %t, there %t", p.id, c.died[p.id], c.st.HasSession(p.id))
		}
		if !c.died[p.id] && p.deadline < c.now {
			c.t.Fatalf("session %d is not renewed any more", p.id)
		}
	}
	for h := Handle(1); h <= c.handles; h++ {
		if _, ok := c.answered[h]; !ok && len(c.m.pending) == 0 {
			c.t.Fatalf("keepalive %d has no answer", h)
		}
	}
	for _, l := range c.locks {
		if v, ok := c.st.Lock(l, 0); ok && (v.Closed && v.OpensAt < c.st.Clock() || len(v.Holders) == 0 && v.Waiters > 0 && !v.Closed) {
			c.t.Fatalf("lock %s is stuck: %+v", l, v)
		}
	}
	c.proposed = map[string]int{}
	quiet := true
	for _, l := range c.locks {
		v, ok := c.st.Lock(l, 0)
		quiet = quiet && (!ok || !v.Closed && (len(v.Holders) == 0 || v.Holders[0].EndsAt == 0 && !v.Holders[0].Revoked))
	}
	c.run(20 * time.Second)
	if n := len(c.proposed); quiet && n != 0 {
		c.t.Fatalf("a quiet healthy cluster proposes %v", c.proposed)
	}
}
