package sim

import (
	"math/rand/v2"
	"time"

	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// A client is a process of a user: it opens sessions, acquires locks, and
// writes to what they protect. Each session is the real client machine.
type client struct {
	process
	id       int
	rng      *rand.Rand
	looks    *rand.Rand // of reads
	secrets  uint64     // counts the secrets that it drew
	current  *session   // nil: none is open
	sessions []*session
	opening  bool
	guess    *server // whom it asks
	extra    int     // pieces of work that an overload added
}

// A session is one session of a client, with its machine.
type session struct {
	c     *client
	m     *watchdog.Machine
	id    core.SessionID
	name  string
	calls map[watchdog.CallID]*call
	wants map[watchdog.Request]*want
	holds map[string]*hold
	timer uint64
	over  bool
	// cloned: another client has the same session (see Clone).
	cloned bool
	// opened is when its client was told of it.
	opened time.Duration
}

// A call is one call under way.
type call struct {
	id   watchdog.CallID
	kind watchdog.CallKind
	to   *server
	// grant is what a release names.
	grant string
}

// boot starts a client without memory.
func (c *client) boot() {
	c.process.start()
	c.current, c.sessions, c.opening = nil, nil, false
	for range 1 + c.rng.IntN(2) {
		c.work()
	}
	c.lookLater()
}

func (c *client) say(format string, args ...any) { c.w.say(c.name+": "+format, args...) }

// crash is the client's death.
func (c *client) crash() {
	if !c.up {
		return
	}
	c.say("dies")
	c.die()
	for _, s := range c.sessions {
		s.over = true
		c.w.judge.sessionSilent(s)
	}
	c.current, c.sessions = nil, nil
}

// ask sends a message to the server that is thought to lead.
func (c *client) ask(m message) *server {
	if c.guess == nil {
		c.guess = c.w.servers[c.rng.IntN(len(c.w.servers))]
	}
	to := c.guess
	m.from, m.relay = &c.process, c.looks.IntN(8) == 0
	c.w.net.carry(exchangeOf(m), &c.process, &to.process, func() { to.arrive(m) }, nil)
	return to
}

// learn looks at who an answer says leads.
func (c *client) learn(from *server, a answer) {
	if c.guess != from || !a.retry {
		return
	}
	c.guess = nil
	if a.leader != 0 {
		c.guess = c.w.serverOf(a.leader)
	}
	if c.guess == nil {
		c.guess = c.w.servers[c.rng.IntN(len(c.w.servers))]
	}
	if s := c.current; s != nil && c.guess != from {
		s.perform(s.m.Hurry(s.moment()), nil) // it meets a new leader (B6)
	}
}

// open opens a session, and then does what is to be done with it.
func (c *client) open() {
	if c.opening || c.current != nil {
		return
	}
	c.opening = true
	c.secrets++
	var secret [32]byte
	secret[0], secret[1], secret[2] = byte(c.id+1), byte(c.secrets), byte(c.secrets>>8)
	secret[3], secret[4], secret[5] = byte(c.life), byte((c.id+1)>>8), byte((c.id+1)>>16) // a clone's ID is large
	c.tryOpen(secret, 0)
}

// tryOpen sends an open again and again, each time counted from its own start
// (B10).
func (c *client) tryOpen(secret [32]byte, tries int) {
	sent := c.time()
	answered := false
	var to *server
	cmd := core.Open{
		SecretHash: secret, Instance: [16]byte{byte(c.id + 1), byte(c.life), byte((c.id + 1) >> 8)}, TTL: c.w.TTL,
	}
	again := func() {
		if !answered {
			answered = true
			c.tryOpen(secret, tries+1)
		}
	}
	to = c.ask(message{call: callOpen, cmd: cmd, answer: c.answered(func(a answer) {
		if answered {
			return
		}
		c.learn(to, a)
		switch {
		case a.lost: // it was open and has ended: another secret
			answered, c.opening = true, false
			c.open()
		case a.retry || a.result.Status == core.Refused:
			c.in(between(c.rng, time.Millisecond, 50*time.Millisecond), again)
		default:
			answered, c.opening = true, false
			id := a.result.Session
			if a.found != 0 {
				id = a.found
			}
			c.opened(id, sent)
		}
	})})
	c.in(c.w.TTL/3, func() {
		if !answered {
			c.guess = nil
		}
		again()
	})
}

// answered is fn, when the client runs.
func (c *client) answered(fn func(answer)) func(answer) {
	life := c.life
	return func(a answer) {
		if c.up && c.life == life {
			c.alive(func() { fn(a) })()
		}
	}
}

// settings are those of every session.
func (w *world) settings() watchdog.Settings {
	set := watchdog.Settings{TTL: w.TTL, Margin: w.Margin, Interval: w.TTL / 6, CallTimeout: w.TTL / 6}
	return set.WithDefaults()
}

// opened begins a session.
func (c *client) opened(id core.SessionID, sent time.Duration) {
	s := &session{
		c: c, id: id, m: watchdog.New(c.w.settings(), sent),
		opened: c.w.now, calls: map[watchdog.CallID]*call{}, wants: map[watchdog.Request]*want{}, holds: map[string]*hold{},
	}
	c.w.judge.opened(s)
	if s.m.Deadline() <= c.time() {
		c.w.judge.sessionSilent(s)
		c.open()
		return
	}
	c.current = s
	c.sessions = append(c.sessions, s)
	c.say("has session %d", c.w.judge.short(id))
	s.setTimer()
}

func (s *session) moment() watchdog.Moment {
	return watchdog.Moment{At: s.c.time(), Jitter: uint16(s.c.rng.Uint32())}
}

// setTimer comes back when the machine wants it.
func (s *session) setTimer() {
	at, ok := s.m.Wake()
	if !ok {
		return
	}
	s.timer++
	mine := s.timer
	s.c.in(max(0, at-s.c.time()), func() {
		if s.timer == mine {
			s.perform(s.m.Tick(s.moment()), nil)
		}
	})
}

// perform does what the machine asks for; a is the answer that led to it.
func (s *session) perform(actions []watchdog.Action, a *answer) {
	for _, act := range actions {
		switch act.Kind {
		case watchdog.Send:
			s.send(act)
		case watchdog.Abort:
			if k := s.calls[act.Call]; k != nil {
				// Its answer may come all the same.
				s.c.in(between(s.c.rng, 0, pick(s.c.rng, 0, 5*time.Millisecond, s.c.w.TTL/2)), func() { s.settle(k, watchdog.Reply{}, nil) })
			}
		case watchdog.Granted:
			s.granted(act, a)
		case watchdog.Declined, watchdog.GaveUp, watchdog.Settled:
			if act.Kind == watchdog.Declined {
				s.c.w.judge.declined(s.wants[act.Request], a)
			}
			s.ended(act)
		case watchdog.GrantLost:
			if h := s.holds[act.Grant]; h != nil {
				h.lose(act.Cause)
			}
		case watchdog.GrantContended, watchdog.GrantReleased:
		case watchdog.SessionOver:
			s.sessionOver(act.Cause)
		case watchdog.Finished:
			s.finished()
		}
	}
	s.setTimer()
}

// sessionOver fails what has no final answer.
func (s *session) sessionOver(cause watchdog.Cause) {
	s.over = true
	s.c.say("session %d is over: %v", s.c.w.judge.short(s.id), cause)
	s.c.w.judge.sessionOver(s, cause)
	if s.c.current == s {
		s.c.current = nil
	}
	for _, h := range s.sortedHolds() {
		h.lose(cause)
	}
	for _, q := range s.sortedWants() {
		q.end(false)
	}
}

func (s *session) finished() {
	c := s.c
	if c.current == s {
		c.current = nil
	}
	for i, o := range c.sessions {
		if o == s {
			c.sessions = append(c.sessions[:i:i], c.sessions[i+1:]...)
			break
		}
	}
}

// send makes a call.
func (s *session) send(act watchdog.Action) {
	k := &call{id: act.Call, kind: act.Send, grant: act.Grant}
	s.calls[act.Call] = k
	m := message{call: callCommand, session: s.id}
	limit := s.c.w.settings().CallTimeout
	switch act.Send {
	case watchdog.CallKeepalive:
		m.call = callKeepalive
	case watchdog.CallAcquire:
		q := s.wants[act.Request]
		m.cmd = q.command(s.id, act)
		if !act.Try {
			limit = between(s.c.rng, s.c.w.TTL, 3*s.c.w.TTL) // a connection that broke is noticed late
		}
	case watchdog.CallCancel:
		m.cmd = core.Cancel{Session: s.id, Request: core.Request(act.Request)}
	case watchdog.CallRelease:
		m.cmd = core.Release{Session: s.id, Grant: numberOf(act.Grant), Failed: act.Failed}
	case watchdog.CallEnd:
		m.cmd = core.End{ID: s.id}
		s.c.w.judge.sessionSilent(s)
	}
	m.answer = s.c.answered(func(a answer) {
		s.c.learn(k.to, a)
		s.settle(k, s.verdict(k, a), &a)
	})
	k.to = s.c.ask(m)
	s.c.in(limit, func() {
		if s.calls[k.id] == k && s.c.guess == k.to {
			s.c.guess = nil
		}
		if act.Send == watchdog.CallAcquire && !act.Try {
			s.settle(k, watchdog.Reply{}, nil)
			return
		}
		// The machine gives the call up. Its answer may come all the same.
		s.c.in(s.c.w.TTL/2, func() { s.settle(k, watchdog.Reply{}, nil) })
	})
}

// settle tells the machine what became of a call, once.
func (s *session) settle(k *call, r watchdog.Reply, a *answer) {
	if s.calls[k.id] != k {
		return
	}
	delete(s.calls, k.id)
	if k.kind == watchdog.CallRelease && r.Verdict == watchdog.Done {
		s.c.w.judge.tale.hasEnded(numberOf(k.grant), s.c.w.now)
	}
	s.perform(s.m.Settle(s.moment(), k.id, r), a)
	s.c.w.judge.settled(s)
}

// verdict says what an answer means for a call.
func (s *session) verdict(k *call, a answer) watchdog.Reply {
	r := watchdog.Reply{Verdict: watchdog.Done, Revoked: a.revoked, Contended: a.contended}
	switch {
	case a.lost:
		r.Verdict = watchdog.SessionLost
	case a.retry:
		r.Verdict = watchdog.Retry
	case a.result.Status == core.Refused:
		r.Verdict = watchdog.Refused
		if k.kind == watchdog.CallRelease && a.result.Refusal.Reason == core.NotHeld {
			r.Verdict = watchdog.Done
		}
	case k.kind == watchdog.CallAcquire && a.result.Status == core.Granted:
		r.Grant = grantID(a.result.Grant.Number)
	case k.kind == watchdog.CallAcquire:
		r.Verdict = watchdog.Refused // cancelled or settled
	}
	return r
}
