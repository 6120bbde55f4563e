package core

import (
	"bytes"
	"reflect"
	"slices"
	"sort"
	"time"
)

// The model is a second lock service, written from the rules and not from
// core: maps, slices, loops over everything, no index, no sharing. It says
// what results, notices and events must be; Msg is left empty.
type model struct {
	epoch, counter uint64
	incarnation    uint64
	revision       Revision
	clock          Clock
	sessions       map[SessionID]*mSession
	locks          map[string]*mLock

	events  []Event // of the present command
	notices []Notice
}

type mSession struct {
	Open
	opened    Clock
	suspected bool
	since     Clock
	lanes     map[uint32]*mLane
	tombs     []mTomb
}

type mTomb struct {
	Tombstone
	burnt uint64
}

// mLane is the last request of a lane and its answer.
type mLane struct {
	n      uint64
	asked  Command // without session, request and Try; nil once cancelled
	answer Result
}

type mLock struct {
	created      Revision
	limit        uint32
	sealed       bool
	holders      []*mHolder // in order of their grants
	queue        []*mWait
	value        []byte
	hasValue     bool
	modified     Revision
	valueGrant   uint64
	valueSession SessionID
	closing      Revision
	closedBy     Cause
	opensAt      Clock
}

type mHolder struct {
	Grant
	ask       Acquire
	revoked   bool
	revokedAt Clock
	cause     RevokeCause
	by        string
	burnt     uint64
}

type mWait struct {
	ask   Acquire
	since Clock
}

func newModel(incarnation uint64) *model {
	return &model{incarnation: incarnation, sessions: map[SessionID]*mSession{}, locks: map[string]*mLock{}}
}

// apply is one command.
func (m *model) apply(c Command) (Result, []Notice, []Event) {
	m.events, m.notices = nil, nil
	r := m.run(c)
	for name, l := range m.locks {
		if len(l.holders)+len(l.queue) == 0 {
			l.limit = 0
			if !l.hasValue && l.closing == 0 {
				delete(m.locks, name)
			}
		}
	}
	if len(m.events) > 0 {
		m.revision++
	}
	return r, m.notices, m.events
}

func (m *model) run(c Command) Result {
	switch c := c.(type) {
	case Open:
		return m.open(c)
	case End:
		if m.sessions[c.ID] == nil {
			if c.Operator {
				return no(NotFound)
			}
			return Result{Status: Done}
		}
		cause := CauseEnded
		if c.Operator {
			cause = CauseOperator
		}
		m.endSessions(cause, c.By, c.ID)
	case Suspect:
		for _, id := range c.Sessions {
			if s := m.sessions[id]; s != nil && !s.suspected {
				s.suspected, s.since = true, c.Since
			}
		}
	case Clear:
		r := Result{Status: Done}
		for _, id := range c.Sessions {
			if s := m.sessions[id]; s != nil {
				s.suspected, s.since = false, 0
			} else {
				r.Lost = append(r.Lost, id)
			}
		}
		return r
	case Expire:
		s := m.sessions[c.ID]
		if s == nil {
			return Result{Status: Done}
		}
		if !s.suspected || s.since != c.Since {
			return no(Conflict)
		}
		m.endSessions(CauseExpired, "", c.ID)
	case Acquire:
		return m.request(c.Session, c.Request, question(c), func() Result { return m.acquire(c) })
	case Cancel:
		return m.cancel(c)
	case Release:
		return m.release(c)
	case Revoke:
		return m.revoke(c)
	case Reopen:
		return m.reopen(c)
	case Put:
		if c.Session == 0 {
			return m.put(c)
		}
		return m.request(c.Session, c.Request, question(c), func() Result { return m.put(c) })
	case Delete:
		if c.Session == 0 {
			return m.delete(c)
		}
		return m.request(c.Session, c.Request, question(c), func() Result { return m.delete(c) })
	case RaiseEpoch:
		return m.raiseEpoch(c)
	}
	return Result{Status: Done}
}

func no(r Reason) Result { return Result{Status: Refused, Refusal: &Refusal{Reason: r}} }

// noLock is a refusal that says what there is to say of a lock.
func (m *model) noLock(r Reason, name string) Result {
	f := &Refusal{Reason: r, Lock: name}
	if l := m.locks[name]; l != nil {
		f.Waiters, f.OpensAt = len(l.queue), l.opensAt
		var first *mHolder
		for _, h := range l.holders {
			if first == nil || h.Slot < first.Slot || h.Slot == first.Slot && h.Number < first.Number {
				first = h
			}
		}
		if first != nil {
			f.Holder = m.holder(first)
		}
	}
	return Result{Status: Refused, Refusal: f}
}

func (m *model) holder(h *mHolder) *Holder {
	s := m.sessions[h.Session]
	return &Holder{Grant: h.Grant, Label: s.Label, Host: s.Host}
}

func (m *model) emit(id SessionID, e Event) {
	e.Revision, e.Clock = m.revision+1, m.clock
	if s := m.sessions[id]; s != nil {
		e.Session, e.Label, e.Host = id, s.Label, s.Host
	}
	m.events = append(m.events, e)
}

func (m *model) open(c Open) Result {
	if c.TTL < time.Second || c.TTL > 24*time.Hour || c.ID == 0 || len(c.Label) > 256 {
		return no(Malformed)
	}
	for id, s := range m.sessions {
		if s.SecretHash == c.SecretHash {
			return Result{Status: Done, Session: id}
		}
	}
	if m.sessions[c.ID] != nil {
		return no(Malformed)
	}
	m.sessions[c.ID] = &mSession{Open: c, opened: m.clock, lanes: map[uint32]*mLane{}}
	m.emit(c.ID, Event{Kind: EventOpened})
	return Result{Status: Done, Session: c.ID}
}

// question is what a command asks for, apart from its name and how long it
// waits.
func question(c Command) Command {
	switch c := c.(type) {
	case Acquire:
		c.Session, c.Request, c.Try = 0, Request{}, false
		return c
	case Put:
		c.Session, c.Request = 0, Request{}
		return c
	case Delete:
		c.Session, c.Request = 0, Request{}
		return c
	}
	return nil
}

// request is rule C1.
func (m *model) request(id SessionID, r Request, ask Command, do func() Result) Result {
	s := m.sessions[id]
	if s == nil {
		return no(SessionLost)
	}
	if r.N == 0 || r.N > 1<<63-1 {
		return no(Malformed)
	}
	if last := s.lanes[r.Lane]; last != nil {
		switch {
		case r.N < last.n:
			return Result{Status: Settled, Last: last.n}
		case r.N == last.n && last.answer.Status != Cancelled && !reflect.DeepEqual(last.asked, ask):
			return no(Malformed)
		case r.N == last.n:
			a := last.answer
			a.Ended = a.Status == Granted && m.held(a.Grant.Number) == nil
			if a.Status == Waiting {
				a.Place = m.place(id, r)
			}
			return a
		case last.answer.Status == Waiting:
			return no(Malformed)
		}
	}
	a := do()
	s.lanes[r.Lane] = &mLane{n: r.N, asked: ask, answer: a}
	return a
}

func (m *model) place(id SessionID, r Request) int {
	for _, l := range m.locks {
		for i, w := range l.queue {
			if w.ask.Session == id && w.ask.Request == r {
				return i + 1
			}
		}
	}
	return -1
}

// endSessions ends sessions: first nothing of theirs waits or is held any
// more, then what became free is handed on.
func (m *model) endSessions(cause Cause, by string, ids ...SessionID) {
	for _, id := range ids {
		m.emit(id, Event{Kind: EventEnded, Cause: cause, By: by})
		m.dropWaits(id, cause)
		for _, h := range m.heldBy(id) {
			m.endGrant(h, cause, by, 0, cause == CauseEnded, false)
		}
		for _, name := range m.names() {
			if l := m.locks[name]; l.hasValue && l.valueSession == id {
				m.dropValue(id, name, cause)
			}
		}
		delete(m.sessions, id)
	}
	for _, name := range m.names() {
		m.handOn(name)
	}
}

func (m *model) dropWaits(id SessionID, cause Cause) {
	type place struct {
		lock string
		w    *mWait
	}
	var all []place
	for name, l := range m.locks {
		for _, w := range l.queue {
			if w.ask.Session == id {
				all = append(all, place{name, w})
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].w.ask.Request.Lane < all[j].w.ask.Request.Lane })
	for _, p := range all {
		r := no(SessionLost)
		r.Refusal.Lock = p.lock
		m.leave(p.w, cause, r)
	}
}

func (m *model) heldBy(id SessionID) (all []*mHolder) {
	for _, l := range m.locks {
		for _, h := range l.holders {
			if h.Session == id {
				all = append(all, h)
			}
		}
	}
	sort.Slice(all, func(i, j int) bool { return all[i].Number < all[j].Number })
	return all
}

func (m *model) held(number uint64) *mHolder {
	for _, l := range m.locks {
		for _, h := range l.holders {
			if h.Number == number {
				return h
			}
		}
	}
	return nil
}

func (m *model) names() (names []string) {
	for name := range m.locks {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// leave takes a request out of its queue with a final answer.
func (m *model) leave(w *mWait, cause Cause, r Result) {
	l := m.locks[w.ask.Lock]
	l.queue = slices.DeleteFunc(l.queue, func(x *mWait) bool { return x == w })
	m.sessions[w.ask.Session].lanes[w.ask.Request.Lane].answer = r
	m.emit(w.ask.Session, Event{Kind: EventLeft, Cause: cause, Lock: w.ask.Lock, Shared: w.ask.Shared})
	m.notices = append(m.notices, Notice{Session: w.ask.Session, Request: w.ask.Request, Result: r})
}

func (m *model) cancel(c Cancel) Result {
	s := m.sessions[c.Session]
	if s != nil {
		if last := s.lanes[c.Request.Lane]; last != nil && last.n == c.Request.N && c.Request.N > 0 {
			return m.cancelSeen(s, last, c)
		}
	}
	return m.request(c.Session, c.Request, nil, func() Result { return Result{Status: Cancelled} })
}

func (m *model) cancelSeen(s *mSession, last *mLane, c Cancel) Result {
	switch last.answer.Status {
	case Done:
		return last.answer
	case Waiting:
		for _, name := range m.names() {
			for _, w := range slices.Clone(m.locks[name].queue) {
				if w.ask.Session == c.Session && w.ask.Request == c.Request {
					m.leave(w, CauseCancelled, Result{Status: Cancelled})
					m.handOn(name)
				}
			}
		}
	case Granted:
		number := last.answer.Grant.Number
		last.answer = Result{Status: Cancelled}
		s.tombs = slices.DeleteFunc(s.tombs, func(d mTomb) bool { return d.Grant == number })
		if h := m.held(number); h != nil {
			m.endGrant(h, CauseCancelled, "", 0, true, false)
			m.handOn(h.Lock)
		}
	}
	return Result{Status: Cancelled}
}

func (m *model) raiseEpoch(c RaiseEpoch) Result {
	if uint64(c.Epoch) <= m.epoch || c.Epoch > MaxEpoch || c.Incarnation == 0 || c.Incarnation == m.incarnation {
		return no(Malformed)
	}
	m.revision = max(m.revision, Revision(c.Epoch)<<48)
	var ids []SessionID
	for id := range m.sessions {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	m.endSessions(CauseEpoch, "", ids...)
	m.events = nil
	m.emit(0, Event{Kind: EventEpoch, Cause: CauseEpoch})
	m.epoch, m.counter, m.incarnation = uint64(c.Epoch), 0, c.Incarnation
	return Result{Status: Done}
}

// views are what the state must show.
func (m *model) lockView(name string) LockView {
	l := m.locks[name]
	v := LockView{
		Name: name, Created: l.created, Modified: l.modified, HasValue: l.hasValue, Value: bytes.Clone(l.value),
		ValueGrant: l.valueGrant, ValueSession: l.valueSession, Limit: l.limit, Sealed: l.sealed, HolderCount: len(l.holders), Waiters: len(l.queue),
		Closed: l.closing != 0, ClosedCause: l.closedBy, Closing: l.closing, OpensAt: l.opensAt,
	}
	for _, h := range l.holders {
		v.Holders = append(v.Holders, HolderView{Holder: *m.holder(h), Revoked: h.revoked, RevokedAt: h.revokedAt, Cause: h.cause, By: h.by})
	}
	sort.Slice(v.Holders, func(i, j int) bool {
		a, b := v.Holders[i], v.Holders[j]
		return a.Slot < b.Slot || a.Slot == b.Slot && a.Number < b.Number
	})
	for i, w := range l.queue {
		v.Queue = append(v.Queue, m.waitView(w, i+1))
	}
	return v
}

func (m *model) waitView(w *mWait, place int) WaitView {
	s := m.sessions[w.ask.Session]
	return WaitView{Session: w.ask.Session, Request: w.ask.Request, Lock: w.ask.Lock, Shared: w.ask.Shared, Place: place, Since: w.since, Label: s.Label, Host: s.Host}
}

func (m *model) sessionView(id SessionID) SessionView {
	s := m.sessions[id]
	v := SessionView{
		ID: id, SecretHash: s.SecretHash, Instance: s.Instance, TTL: s.TTL, Label: s.Label, Host: s.Host,
		Opened: s.opened, Suspected: s.suspected, Since: s.since,
	}
	for _, h := range m.heldBy(id) {
		v.Grants = append(v.Grants, h.Grant)
	}
	for _, l := range m.locks {
		for i, w := range l.queue {
			if w.ask.Session == id {
				v.Waits = append(v.Waits, m.waitView(w, i+1))
			}
		}
	}
	sort.Slice(v.Waits, func(i, j int) bool { return v.Waits[i].Request.Lane < v.Waits[j].Request.Lane })
	for _, d := range s.tombs {
		v.Tombstones = append(v.Tombstones, d.Tombstone)
	}
	sort.Slice(v.Tombstones, func(i, j int) bool { return v.Tombstones[i].Grant < v.Tombstones[j].Grant })
	return v
}
