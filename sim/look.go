package sim

import (
	"slices"
	"time"

	"holdfast/server/core"
)

// lookLater lets a client read a lock now and then, linearizably. Its source of
// random numbers is its own.
func (c *client) lookLater() {
	c.in(between(c.looks, 0, c.w.TTL), func() {
		if c.w.calm {
			return
		}
		c.look(c.w.locks[c.looks.IntN(len(c.w.locks))])
		c.lookLater()
	})
}

// look reads a lock, once.
func (c *client) look(l *lockPlan) {
	from, answered := c.w.now, false
	var to *server
	to = c.ask(message{call: callRead, lock: l.name, answer: c.answered(func(a answer) {
		if answered {
			return
		}
		answered = true
		c.learn(to, a)
		if !a.retry {
			c.w.judge.looked(l, a.view, from)
		}
	})})
}

// looked keeps what a read said.
func (j *judge) looked(l *lockPlan, v core.LockView, from time.Duration) {
	if v.HolderCount != len(v.Holders) {
		return // cut short
	}
	j.counts.Reads++
	k := look{lock: l.name, from: from, to: j.w.now}
	for _, h := range v.Holders {
		k.holders = append(k.holders, h.Number)
	}
	slices.Sort(k.holders)
	j.tale.looks = append(j.tale.looks, k)
}

// declined keeps that a try found its lock taken. One that may be closed says
// nothing by that.
func (j *judge) declined(q *want, a *answer) {
	if q == nil || a == nil || a.result.Refusal == nil || q.s.cloned {
		return // a clone may be told what its other half asked under the same name
	}
	reason, l := a.result.Refusal.Reason, q.lock
	if reason != core.Busy && reason != core.HeldByYou || l.delay > 0 || l.oncePer > 0 {
		return
	}
	j.counts.Busy++
	limit := int(max(l.limit, 1))
	j.tale.looks = append(j.tale.looks, look{lock: l.name, from: q.asked, to: j.w.now, busy: true, limit: limit})
}
