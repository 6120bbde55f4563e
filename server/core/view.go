package core

import (
	"bytes"
	"strings"
	"time"
)

// HasSession reports whether the session is live.
func (s *State) HasSession(id SessionID) bool {
	_, ok := s.session(id)
	return ok
}

// SessionSecretHash returns the hash of the session's secret.
func (s *State) SessionSecretHash(id SessionID) ([32]byte, bool) {
	x, ok := s.session(id)
	if !ok {
		return [32]byte{}, false
	}
	return x.who.secret, true
}

// SessionCount is the number of live sessions.
func (s *State) SessionCount() int { return s.sessions.Len() }

// LockCount is the number of locks that are held, queued, closed or have a
// value.
func (s *State) LockCount() int { return s.locks.Len() }

// Session returns what the state says of a session. Places in queues are
// counted as far as 10,000 waits can be looked at in all; beyond that they
// are 0.
func (s *State) Session(id SessionID) (SessionView, bool) {
	x, ok := s.session(id)
	if !ok {
		return SessionView{}, false
	}
	budget := maxPlaceScan
	return s.sessionView(x, &budget), true
}

// sessionView spends from budget what it costs to count places.
func (s *State) sessionView(x session, budget *int) SessionView {
	v := SessionView{
		ID: x.id, SecretHash: x.who.secret, Instance: x.who.instance, TTL: x.who.ttl,
		Label: x.who.label, Host: x.who.host, Opened: x.who.opened,
		Suspected: x.suspected, Since: x.since,
	}
	s.eachGrantOf(x.id, func(g *grant) bool {
		v.Grants = append(v.Grants, *g.Grant)
		return true
	})
	for _, w := range s.waitsOf(x.id) {
		place := s.place(w, *budget)
		if place == 0 {
			*budget = 0
		}
		*budget -= place
		v.Waits = append(v.Waits, s.waitView(w, x, place))
	}
	for _, d := range s.tombsOf(x.id) {
		v.Tombstones = append(v.Tombstones, d.Tombstone)
	}
	return v
}

func (s *State) waitView(w *wait, x session, place int) WaitView {
	return WaitView{
		Session: w.session, Request: w.request, Lock: w.lock, Shared: w.shared,
		Place: place, Since: w.since, Label: x.who.label, Host: x.who.host,
	}
}

// Sessions returns at most limit sessions with IDs above after, by ID. Places
// are counted as in [State.Session], for all of them together.
func (s *State) Sessions(after SessionID, limit int) []SessionView {
	var out []SessionView
	budget := maxPlaceScan
	ascendFrom(s.sessions, session{id: after}, func(x session) bool {
		if len(out) >= limit {
			return false
		}
		if x.id != after {
			out = append(out, s.sessionView(x, &budget))
		}
		return true
	})
	return out
}

// HasSecret reports whether a live session has this secret's hash. It costs
// the same however much the session holds.
func (s *State) HasSecret(hash [32]byte) bool {
	return s.secrets.Has(secret{hash: hash})
}

// SessionBySecret returns the live session with this secret's hash.
func (s *State) SessionBySecret(hash [32]byte) (SessionView, bool) {
	k, ok := s.secrets.Get(secret{hash: hash})
	if !ok {
		return SessionView{}, false
	}
	return s.Session(k.id)
}

// Lock returns what the state says of a lock, with at most queueLimit places
// of its queue.
func (s *State) Lock(name string, queueLimit int) (LockView, bool) {
	l, ok := s.locks.Get(&lock{name: name})
	if !ok {
		return LockView{}, false
	}
	v := s.lockView(l, MaxHoldersShown)
	ascendFrom(s.waits, &wait{ask: ask{lock: name}}, func(w *wait) bool {
		if w.lock != name || len(v.Queue) >= queueLimit {
			return false
		}
		v.Queue = append(v.Queue, s.waitView(w, s.mustSession(w.session), len(v.Queue)+1))
		return true
	})
	return v, true
}

func (s *State) lockView(l *lock, mostHolders int) LockView {
	v := LockView{
		Name: l.name, Created: l.created, Modified: l.modified,
		HasValue: l.hasValue(), Value: bytes.Clone(l.value),
		ValueGrant: l.valueGrant, ValueSession: l.valueSession,
		Limit: l.limit, Sealed: l.sealed, HolderCount: int(l.holders), Waiters: int(l.waiters),
		Closed: l.closed(), ClosedCause: l.cause, Closing: l.closing, OpensAt: l.opensAt,
	}
	s.eachHolder(l.name, func(g *grant) bool {
		v.Holders = append(v.Holders, s.holderView(g))
		return len(v.Holders) < mostHolders
	})
	return v
}

func (s *State) holderView(g *grant) HolderView {
	return HolderView{
		Holder: *s.holder(g), Revoked: g.revoked, RevokedAt: g.revokedAt, Cause: g.cause, By: g.by,
	}
}

// Locks returns at most limit locks whose names begin with prefix and come
// after after, by name, without their queues.
func (s *State) Locks(prefix, after string, limit int) []LockView {
	var out []LockView
	ascendFrom(s.locks, &lock{name: max(prefix, after)}, func(l *lock) bool {
		if len(out) >= limit || !strings.HasPrefix(l.name, prefix) {
			return false
		}
		if l.name > after || after == "" {
			out = append(out, s.lockView(l, MaxHoldersListed))
		}
		return true
	})
	return out
}

// GrantByNumber returns the holder of a held grant.
func (s *State) GrantByNumber(n uint64) (HolderView, bool) {
	g, ok := s.grant(n)
	if !ok {
		return HolderView{}, false
	}
	return s.holderView(g), true
}

// Lane returns the last request of a lane and what came of it. A waiting one
// has no place.
func (s *State) Lane(id SessionID, number uint32) (Request, Result, bool) {
	n, ok := s.lanes.Get(lane{session: id, lane: number})
	if !ok {
		return Request{}, Result{}, false
	}
	return Request{Lane: number, N: n.last}, n.outcome.result(), true
}

// Contended returns the numbers of the session's grants on locks for which
// somebody waits.
func (s *State) Contended(id SessionID) []uint64 {
	var out []uint64
	s.eachGrantOf(id, func(g *grant) bool {
		if s.mustLock(g.Lock).waiters > 0 {
			out = append(out, g.Number)
		}
		return true
	})
	return out
}

// SessionTiming is what the lease machine needs of a session.
type SessionTiming struct {
	ID        SessionID
	TTL       time.Duration
	Suspected bool
	Since     Clock // of the suspicion
}

func (x session) timing() SessionTiming {
	return SessionTiming{ID: x.id, TTL: x.who.ttl, Suspected: x.suspected, Since: x.since}
}

// SessionTiming returns the timing of a live session.
func (s *State) SessionTiming(id SessionID) (SessionTiming, bool) {
	x, ok := s.session(id)
	if !ok {
		return SessionTiming{}, false
	}
	return x.timing(), true
}

// EachSessionTiming calls fn for the live sessions, by ID, until it returns
// false.
func (s *State) EachSessionTiming(fn func(SessionTiming) bool) {
	s.sessions.Ascend(func(x session) bool { return fn(x.timing()) })
}

// EachSessionTimingAfter is EachSessionTiming for those with a higher ID than
// after.
func (s *State) EachSessionTimingAfter(after SessionID, fn func(SessionTiming) bool) {
	ascendFrom(s.sessions, session{id: after + 1}, func(x session) bool { return fn(x.timing()) })
}

// GrantTiming is what the lease machine needs of a grant that has an end or a
// mark.
type GrantTiming struct {
	Number    uint64
	Lock      string
	Session   SessionID
	TTL       time.Duration // of the session
	EndsAt    Clock         // 0 if it has no maximum hold
	Revoked   bool
	RevokedAt Clock
}

func (s *State) timing(g *grant) GrantTiming {
	return GrantTiming{
		Number: g.Number, Lock: g.Lock, Session: g.Session, TTL: s.mustSession(g.Session).who.ttl,
		EndsAt: g.EndsAt, Revoked: g.revoked, RevokedAt: g.revokedAt,
	}
}

// GrantTiming returns the timing of a held grant that has an end or a mark.
func (s *State) GrantTiming(n uint64) (GrantTiming, bool) {
	g, ok := s.timed.Get(&grant{Grant: &Grant{Number: n}})
	if !ok {
		return GrantTiming{}, false
	}
	return s.timing(g), true
}

// EachTimedGrant calls fn for the held grants that have an end or a mark, by
// number, until it returns false.
func (s *State) EachTimedGrant(fn func(GrantTiming) bool) {
	s.timed.Ascend(func(g *grant) bool { return fn(s.timing(g)) })
}

// ClosingTiming is what the lease machine needs of a closed lock.
type ClosingTiming struct {
	Lock    string
	Closing Revision
	OpensAt Clock
}

func (l *lock) timing() ClosingTiming {
	return ClosingTiming{Lock: l.name, Closing: l.closing, OpensAt: l.opensAt}
}

// ClosingTiming returns the closing of a closed lock.
func (s *State) ClosingTiming(name string) (ClosingTiming, bool) {
	l, ok := s.closings.Get(&lock{name: name})
	if !ok {
		return ClosingTiming{}, false
	}
	return l.timing(), true
}

// EachClosing calls fn for the closed locks, by name, until it returns false.
func (s *State) EachClosing(fn func(ClosingTiming) bool) {
	s.closings.Ascend(func(l *lock) bool { return fn(l.timing()) })
}

// Revocation is a grant that its session must stop using: marked, and held
// until it is released; or gone, and repeated until it is released (B11).
type Revocation struct {
	Tombstone
	Gone bool // no longer held
}

// Revocations returns what every keepalive answer of the session must say:
// its marked grants, then its tombstones, each by number.
func (s *State) Revocations(id SessionID) []Revocation {
	var out []Revocation
	s.eachGrantOf(id, func(g *grant) bool {
		if g.revoked {
			out = append(out, Revocation{Tombstone: Tombstone{Grant: g.Number, Lock: g.Lock, Cause: g.cause, By: g.by}})
		}
		return true
	})
	for _, d := range s.tombsOf(id) {
		out = append(out, Revocation{Tombstone: d.Tombstone, Gone: true})
	}
	return out
}
