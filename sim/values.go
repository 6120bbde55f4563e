package sim

import (
	"slices"

	"holdfast/server/core"
)

// The properties and the situation of values (A6).
const (
	StaleValue   Property  = "a value is put by who has its token (A6)"
	OrphanValue  Property  = "a grant's value ends with the grant (A6)"
	ValueByToken Situation = "a value is put under a token"
	PassedOn     Situation = "a follower passes a call on to the leader"
	ValueRefused Situation = "a value is refused because its token is old"
)

// value follows an event about a lock's value. What is put under a token is put
// by who has the lock.
func (a *audit) value(e core.Event) {
	l := a.lock(e.Lock)
	switch {
	case e.Kind == core.EventGranted && e.Value != nil:
		l.valueOf = e.Grant
	case e.Kind == core.EventPut && e.Token == 0:
		l.valueOf = 0
	case e.Kind == core.EventPut:
		a.j.meet(ValueByToken)
		if !l.blind && !slices.ContainsFunc(l.holders, func(h inHand) bool { return h.token == e.Token }) {
			a.j.object(StaleValue, "a value of %s is put under token %d, which nobody has", e.Lock, e.Token)
		}
	case e.Kind == core.EventDeleted:
		l.valueOf = 0
	}
}

// valueEnds checks, after a command, that no grant's value outlives it.
func (a *audit) valueEnds(l *lockBook) {
	if n := l.valueOf; n != 0 && !slices.ContainsFunc(l.holders, func(h inHand) bool { return h.number == n }) {
		a.j.object(OrphanValue, "the value of %s came with grant %d, which has ended", l.name, n)
	}
}

// publish puts a value under the holder's token, or now and then without one.
// The answer may be lost: then it asks again, as long as it holds.
func (h *hold) publish() {
	c := h.s.c
	cmd := core.Put{Lock: h.lock.name, Value: []byte(c.name), Token: h.token.Number}
	if c.rng.IntN(4) == 0 {
		cmd.Token = 0
	}
	tries := 3
	var ask func()
	ask = func() {
		answered, to := false, (*server)(nil)
		to = c.ask(message{call: callCommand, cmd: cmd, answer: c.answered(func(a answer) {
			if answered {
				return
			}
			answered = true
			switch c.learn(to, a); {
			case a.retry:
				if tries--; tries > 0 && h.believes() {
					c.in(c.w.TTL/10, ask)
				}
			case a.result.Status == core.Refused:
				c.w.judge.meet(ValueRefused)
			}
		})})
	}
	ask()
}
