package sim

import (
	"errors"
	"fmt"
	"time"

	"holdfast/internal/planted"
	"holdfast/internal/watchdog"
	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// A message is a call of a client at a server.
type message struct {
	from    *process
	call    callKind
	session core.SessionID
	cmd     core.Command  // nil: a keepalive or a read
	lock    string        // a read
	arrived time.Duration // by the server's clock, when it was read
	read    time.Duration // the same in true time
	reached time.Duration // when it came into the socket, in true time
	change  *replica.Change
	audit   *core.Audit // the record of cmd, for the same entry
	drained uint64      // no call: connections were read until they would block
	relay   bool        // who does not lead is to pass it on, once (C5)
	// answer is called with the answer when that reaches the caller; at most
	// once for each copy of the message.
	answer func(answer)
}

// A callKind is what a message asks for.
type callKind uint8

const (
	callOpen callKind = iota + 1
	callKeepalive
	callCommand
	callRead
	callMembers
	callTransfer
	callBackup
)

// An answer is what a server says to a message.
type answer struct {
	// retry: no, or unknown, for this attempt only; the same call may be
	// made again. leader is who to ask then, if not 0.
	retry  bool
	leader uint64
	lost   bool // there is no such session
	result core.Result
	// alive is, for a keepalive, what the state said.
	revoked   []watchdog.Revocation
	contended []string
	view      core.LockView // a read
	domain    [16]byte
	burnt     uint64
	version   int            // of a resource
	found     core.SessionID // an open whose secret had opened a session before
	image     *image         // a backup
	why       error          // a change of membership was refused
}

// arrive puts a message into a server's socket. It is read when the server
// runs.
func (s *server) arrive(m message) {
	if !s.up {
		m.broken(s)
		return
	}
	m.reached = s.w.now
	s.socket = append(s.socket, m)
	s.in(between(s.rng, 5*time.Microsecond, 200*time.Microsecond), s.read)
}

// read takes what arrived from the socket. The order of arrival is kept; when
// it is read, a message counts as arrived (B10: later is safe).
func (s *server) read() {
	if len(s.socket) == 0 {
		return
	}
	m := s.socket[0]
	s.socket = s.socket[1:]
	m.arrived, m.read = s.time(), s.w.now
	if !m.urgent() && len(s.inbox) >= s.w.Pending || len(s.inbox) >= 2*s.w.Pending {
		s.reply(m, answer{retry: true}) // overloaded: refused at the door
		return
	}
	s.inbox = append(s.inbox, m)
	s.wake()
}

// drain reads all that arrived, and tells the lease machine (B9).
func (s *server) drain() {
	s.drains++
	mine := s.drains
	s.in(between(s.rng, 10*time.Microsecond, 3*time.Millisecond), func() {
		for len(s.socket) > 0 {
			s.read()
		}
		s.inbox = append(s.inbox, message{drained: mine})
		s.wake()
	})
}

// reply sends an answer on its way.
func (s *server) reply(m message, a answer) {
	if m.answer == nil {
		return
	}
	s.w.net.carry(answerTo(m), &s.process, m.from, func() { m.answer(a) }, nil)
}

// broken tells the caller, sometimes, that its connection broke.
func (m message) broken(s *server) {
	if m.answer != nil && s.w.net.rng.IntN(3) > 0 {
		s.reply(m, answer{retry: true})
	}
}

// urgent reports whether a message is taken before new work, and when that is
// refused: what frees something or keeps it alive, and an operator's call.
func (m message) urgent() bool {
	switch m.call {
	case callRead, callBackup:
		return false
	case callOpen, callCommand:
		return !grows(m.cmd)
	}
	return true
}

func (s *server) takeInbox() {
	inbox := s.inbox
	s.inbox = nil
	for _, first := range []bool{true, false} {
		for _, m := range inbox {
			if m.urgent() == first {
				s.accept(m)
			}
		}
	}
}

// accept sorts a message to where it waits.
func (s *server) accept(m message) {
	switch {
	case m.drained != 0:
		if m.drained == s.drains {
			s.lease.Drained(s.time())
			s.drained = s.w.now
		}
	case s.stopping:
		s.reply(m, answer{retry: true})
	case s.silent && !s.m.Alone():
		s.reply(m, answer{retry: true})
	case m.call == callKeepalive && (s.leading || !m.relay):
		s.keepalive(m)
	case !s.leading && m.relay && s.leader() != 0:
		s.passOn(m)
	case !s.leading:
		s.reply(m, answer{retry: true, leader: s.leader()})
	case m.call == callRead || m.call == callBackup:
		s.fresh = append(s.fresh, m)
	case m.call == callMembers:
		s.change(m)
	case m.call == callTransfer:
		if s.handOver("an operator wants it") {
			s.reply(m, answer{})
		} else {
			s.reply(m, answer{retry: true})
		}
	default:
		s.acceptCommand(m)
	}
}

func (s *server) acceptCommand(m message) {
	isUrgent := m.urgent()
	limit := s.w.Pending
	if isUrgent {
		limit *= 2
	}
	if core.VersionOf(m.cmd) > s.m.State().Version() || len(s.ordinary)+len(s.urgent) >= limit || !isUrgent && (s.silent || s.low) {
		s.reply(m, answer{retry: true})
		return
	}
	if open, ok := m.cmd.(core.Open); ok { // each copy gets an ID of its own (B12)
		open.ID = core.SessionID(s.ids.Uint64() | 1)
		m.cmd = open
	}
	p := proposal{cmd: m.cmd, audit: m.audit, call: &m}
	if isUrgent {
		s.urgent = append(s.urgent, p)
	} else {
		s.ordinary = append(s.ordinary, p)
	}
}

// passOn gives a client's call to the leader, which alone measures time (C5), and
// its answer to the client.
func (s *server) passOn(m message) {
	lead := s.w.serverOf(s.leader())
	if lead == nil {
		s.reply(m, answer{retry: true})
		return
	}
	s.w.judge.meet(PassedOn)
	on := m
	on.relay, on.from = false, &s.process
	life := s.life
	on.answer = func(a answer) {
		if s.up && s.life == life {
			s.alive(func() { s.reply(m, a) })()
		}
	}
	s.w.net.carry(exchangeOf(m), &s.process, &lead.process, func() { lead.arrive(on) }, nil)
}

// grows reports whether a command makes the state or the log grow: it waits
// behind what does not.
func grows(cmd core.Command) bool {
	switch cmd.(type) {
	case core.Release, core.Cancel, core.End, core.Revoke, core.Clear, core.Audit, core.SetVersion:
		return false
	}
	return true
}

// leader is who to ask instead, if known.
func (s *server) leader() uint64 {
	if id := s.m.Role().Leader; id != s.id {
		return id
	}
	return 0
}

func (s *server) keepalive(m message) {
	s.pulse++
	s.pulses[s.pulse] = m
	s.w.judge.heard(m.session)
	s.lease.Keepalive(s.pulse, m.session, m.arrived)
}

// turnLease lets the deadline machine look at the time.
func (s *server) turnLease() {
	eff := s.lease.Turn(s.time())
	for _, c := range eff.Propose {
		s.w.judge.proposes(s, c)
		s.first = append(s.first, proposal{cmd: c})
	}
	s.confirm = s.confirm || eff.Confirm
	s.wakeAt = eff.Wake
	for _, a := range eff.Answers {
		m, ok := s.pulses[a.Handle]
		if !ok {
			continue
		}
		delete(s.pulses, a.Handle)
		s.answerPulse(m, a.Status)
	}
	if eff.Transfer {
		s.handOver("it stood still for most of the last ten seconds")
	}
	if eff.Drain {
		s.w.judge.draining(s)
		s.drain()
	}
}

func (s *server) answerPulse(m message, status lease.Status) {
	switch status {
	case lease.Alive:
		st := s.m.State()
		out := answer{}
		if m.call == callOpen {
			out.found = m.session
		}
		for _, t := range st.TakenBack(m.session) {
			cause := watchdog.Revoked
			if t.Cause == core.ByMaxHold {
				cause = watchdog.MaxHold
			}
			out.revoked = append(out.revoked, watchdog.Revocation{Grant: grantID(t.Grant), Cause: cause, By: t.By, Gone: !t.Held})
		}
		for _, n := range st.Contended(m.session) {
			out.contended = append(out.contended, grantID(n))
		}
		s.w.judge.answeredAlive(s, m)
		s.w.judge.untold(s, m)
		s.reply(m, out)
	case lease.Lost:
		s.reply(m, answer{lost: true})
	default:
		s.reply(m, answer{retry: true, leader: s.leader()})
	}
}

// startRound asks for a confirmation of leadership if somebody waits for one.
func (s *server) startRound() {
	now := s.time()
	if !s.leading || (!s.confirm && len(s.fresh) == 0 && s.round == nil) {
		return
	}
	next := &round{upTo: now}
	if r := s.round; r != nil {
		if now-r.upTo < electionTicks*s.w.Tick || planted.On("C4-read-asked-once") {
			return
		}
		next.reads = r.reads
	}
	s.handles++
	next.handle = s.handles
	next.reads = append(next.reads, s.fresh...)
	s.fresh, s.confirm, s.round = nil, false, next
	s.m.ReadIndex(replica.Handle(next.handle))
}

// propose puts what waits into one entry, if none is in flight.
func (s *server) propose() {
	now := s.time()
	if s.flight != nil || !s.leading || s.stopping || s.handing(now) || len(s.first)+len(s.urgent)+len(s.ordinary) == 0 {
		return
	}
	items := s.gather()
	cmds := make([]core.Command, len(items))
	for i, p := range items {
		cmds[i] = p.cmd
	}
	s.handles++
	err := s.m.Propose(replica.Handle(s.handles), core.Header{Clock: s.lease.Clock(now)}, cmds)
	if err == nil {
		s.flight = &flight{s.handles, items, s.w.now}
		s.tellLease(items)
		if planted.On("D1-grant-before-commit") {
			s.grantEarly(cmds, items)
		}
		return
	}
	if !errors.Is(err, replica.ErrDropped) && !errors.Is(err, replica.ErrNotLeader) {
		s.fail(fmt.Errorf("propose: %w", err))
		return
	}
	s.refuse(items)
}

// tellLease names the commands in an entry that are not the lease machine's.
func (s *server) tellLease(items []proposal) {
	var theirs []core.Command
	for _, p := range items {
		if _, ok := p.cmd.(core.Revoke); ok && p.call != nil {
			theirs = append(theirs, p.cmd)
		}
	}
	if len(theirs) > 0 {
		s.lease.Proposed(theirs)
	}
}

// refuse answers commands of which nothing was appended (C4).
func (s *server) refuse(items []proposal) {
	var own []core.Command
	for _, p := range items {
		if p.quiet {
			s.settled(p)
		} else if p.call == nil {
			own = append(own, p.cmd)
		} else {
			s.reply(*p.call, answer{retry: true, leader: s.leader()})
		}
	}
	if len(own) > 0 {
		s.lease.Dropped(own)
	}
}
