package explore

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"holdfast/fence"
	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// domain is the only fence domain of a world.
var domain = fence.Domain{1}

// A message is on its way between a client and a node.
type message struct {
	client int
	call   watchdog.CallID
	reply  bool
	kind   watchdog.CallKind
	twice  bool // it was delivered once, and may be again

	request watchdog.Request // acquire, cancel
	lock    int              // acquire
	grant   uint64           // release
	failed  bool             // release
	answer  watchdog.Reply   // a reply
	token   uint64           // the token number of a grant in a reply
}

func (m message) encode(b []byte) []byte {
	flags := byte(0)
	if m.reply {
		flags = 1
	}
	if m.twice {
		flags |= 2
	}
	if m.failed {
		flags |= 4
	}
	b = append(b, flags, byte(m.client), byte(m.kind), byte(m.lock), byte(m.request.Lane), byte(m.request.N), byte(m.answer.Verdict))
	b = binary.AppendUvarint(b, uint64(m.call))
	b = binary.AppendUvarint(b, m.grant)
	b = binary.AppendUvarint(b, m.token)
	b = append(b, m.answer.Grant...)
	b = append(b, byte(len(m.answer.Revoked)))
	for _, r := range m.answer.Revoked {
		b = append(b, r.Grant...)
		b = append(b, ',')
	}
	return b
}

var callNames = [...]string{
	watchdog.CallKeepalive: "keepalive", watchdog.CallAcquire: "acquire", watchdog.CallCancel: "cancel",
	watchdog.CallRelease: "release", watchdog.CallEnd: "end",
}

var verdictNames = [...]string{
	watchdog.Retry: "retry", watchdog.Done: "done", watchdog.Refused: "refused", watchdog.SessionLost: "session lost",
}

func (m message) String() string {
	s := fmt.Sprintf("%s %d of %s", callNames[m.kind], m.call, clientName(m.client))
	if m.reply {
		s = fmt.Sprintf("answer (%s) to %s", verdictNames[m.answer.Verdict], s)
		if m.answer.Grant != "" {
			s += ", grant " + m.answer.Grant
		}
	}
	return s
}

func clientName(c int) string { return string(rune('A' + c)) }

func sessionOf(client int) core.SessionID { return core.SessionID(client + 1) }

// An asked is an acquire that has no final answer yet.
type asked struct {
	request watchdog.Request
	lock    int
}

// A held is a grant in a client's hands, and the work done under it.
type held struct {
	id     string
	lock   int
	token  uint64
	armed  bool
	read   int // the resource's version that was read
	wrote  bool
	gaveUp bool // released by its owner
}

// A client is the real session machine, with a worker who wants locks.
type client struct {
	id    int
	m     *watchdog.Machine
	next  int // place in Wants
	asked []asked
	held  []held
	sent  []time.Duration // when each call was made; calls count from 1
	// answered is when the latest keepalive's answer arrived, for
	// ClientWeakening.FromAnswer.
	answered time.Duration
	missed   time.Duration // what its clock did not count
	code     []byte        // its encoding, once it was needed
}

func (c *client) clone() *client {
	n := *c
	n.m = c.m.Clone()
	n.asked = slices.Clone(c.asked)
	n.held = slices.Clone(c.held)
	return &n
}

func (c *client) encode(b []byte, now time.Duration, fromAnswer bool) []byte {
	b = c.m.AppendState(b)
	b = append(b, byte(c.next), byte(c.missed/time.Millisecond))
	for _, a := range c.asked {
		b = append(b, byte(a.request.Lane), byte(a.request.N), byte(a.lock))
	}
	b = append(b, 0xff)
	for _, h := range c.held {
		flags := byte(0)
		for i, f := range []bool{h.armed, h.wrote, h.gaveUp} {
			if f {
				flags |= 1 << i
			}
		}
		b = append(b, byte(h.lock), byte(h.token), flags, byte(h.read))
	}
	if fromAnswer {
		b = binary.AppendVarint(b, int64(c.answered-now))
	}
	return b
}

// believes reports whether the client believes, by its clock, that it holds h.
func (w *world) believes(c *client, h held) bool {
	switch c.m.State(w.now-c.missed, h.id) {
	case watchdog.Held, watchdog.Jeopardy:
		return true
	case watchdog.Lost:
		cause, _ := c.m.Over()
		silent := cause == 0 || cause == watchdog.Expired || cause == watchdog.Unreachable
		return w.cfg.Client.FromAnswer && silent && w.now < c.answered+w.cfg.TTL[c.id]
	}
	return false
}

// told takes what a client's machine wants done.
func (w *world) told(c *client, acts []watchdog.Action, token uint64) {
	for _, a := range acts {
		switch a.Kind {
		case watchdog.Send:
			m := message{client: c.id, call: a.Call, kind: a.Send, request: a.Request}
			c.sent = append(slices.Clip(c.sent), w.now-c.missed)
			switch a.Send {
			case watchdog.CallAcquire:
				for _, q := range c.asked {
					if q.request == a.Request {
						m.lock = q.lock
					}
				}
			case watchdog.CallRelease:
				fmt.Sscan(a.Grant, &m.grant)
				m.failed = a.Failed
			}
			w.send(m)
		case watchdog.Granted:
			for _, q := range c.asked {
				if q.request == a.Request {
					c.held = append(c.held, held{id: a.Grant, lock: q.lock, token: token})
				}
			}
			c.forget(a.Request)
		case watchdog.Declined, watchdog.Settled:
			c.forget(a.Request)
		}
	}
}

func (c *client) forget(r watchdog.Request) {
	c.asked = slices.DeleteFunc(c.asked, func(q asked) bool { return q.request == r })
}

// moment is now by a client's clock. Tries are not spread.
func (w *world) moment(c *client) watchdog.Moment { return watchdog.Moment{At: w.now - c.missed} }

// A resource is what a lock protects, with its gate.
type resource struct {
	version int
	mark    fence.Token
	revoked uint64 // number of the latest token that was revoked at once
}

func (w *world) tokenOf(lock int, number uint64, mode fence.Mode) fence.Token {
	return fence.Token{Domain: domain, Incarnation: 1, Lock: w.cfg.locks()[lock], Mode: mode, Number: number}
}

// judge asks the gate of a lock, and raises its mark.
func (w *world) judge(lock int, t fence.Token, use fence.Use) bool {
	if w.cfg.NoGate {
		return true
	}
	r := &w.resources[lock]
	v, err := fence.Judge(fence.Guard{Gate: "g", Lock: t.Lock, Shared: w.cfg.Shared != nil}, domain, r.mark, t, use)
	if v == fence.Raise {
		r.mark = t
	}
	return err == nil
}

// mode is how a client holds.
func (w *world) mode(c *client) fence.Mode {
	if w.shares(c.id) {
		return fence.Shared
	}
	return fence.Exclusive
}

func (w *world) shares(client int) bool { return w.cfg.Shared != nil && w.cfg.Shared[client] }

// offer shows a holder's token to the gate (property 12).
func (w *world) offer(c *client, h *held, use fence.Use) bool {
	ok := w.judge(h.lock, w.tokenOf(h.lock, h.token, w.mode(c)), use)
	if !ok && !h.gaveUp && !w.cfg.RevokeNow && w.believes(c, *h) {
		w.fail(Fenced, "the gate refuses %s's token %d of %s, which it holds", clientName(c.id), h.token, w.cfg.locks()[h.lock])
	}
	return ok
}

// armAndRead arms the gate and reads, both at the resource.
func (w *world) armAndRead(c *client, h *held) {
	h.armed = w.offer(c, h, fence.ToArm)
	h.read = w.resources[h.lock].version
	h.wrote = !h.armed // refused: superseded, nothing will be written
}

// write lands a write that was decided on when the lock was held; a shared
// holder reads once more.
func (w *world) write(c *client, h *held) {
	h.wrote = true
	if !w.offer(c, h, fence.ToWrite) {
		return
	}
	r := &w.resources[h.lock]
	if r.version != h.read {
		w.fail(LostWrite, "%s's write lands on version %d of %s, but it had read version %d",
			clientName(c.id), r.version, w.cfg.locks()[h.lock], h.read)
	}
	if h.token <= r.revoked {
		w.fail(ZombieWrite, "%s writes %s with token %d, which was revoked at once", clientName(c.id), w.cfg.locks()[h.lock], h.token)
	}
	if !w.shares(c.id) {
		r.version++
	}
}

// armRevoked spends the token that a revoke at once returned.
func (w *world) armRevoked(e *entry, results []core.Result) {
	for i, cmd := range e.Commands {
		r, ok := cmd.(core.Revoke)
		if !ok || !r.Now || results[i].Status != core.Done {
			continue
		}
		lock := slices.Index(w.cfg.locks(), r.Lock)
		w.resources[lock].revoked = r.Grant
		if !w.cfg.NoBurn {
			w.judge(lock, w.tokenOf(lock, results[i].Number, fence.Revocation), fence.ToArm)
		}
	}
}
