package core

import "time"

// The values that live in the trees. None is changed once it is in one (D5).

// session is one live session. The counters say how many items of the other
// trees belong to it; they are not part of the encoding.
type session struct {
	id        SessionID
	who       *identity
	suspected bool  // the log says: silent (B4) …
	since     Clock // … since this clock; 0 unless suspected
	held      int32 // grants
	waiting   int32 // waits
	bound     int32 // values bound to it
	lanes     int32 // lanes used
	tombs     int32 // tombstones
}

// identity is what never changes about a session.
type identity struct {
	secret   [32]byte
	instance [16]byte
	ttl      time.Duration
	label    string
	host     string
	opened   Clock
}

// load is what counts against MaxPerSession.
func (s session) load() int { return int(s.held + s.waiting + s.bound) }

// secret finds a session by its secret's hash.
type secret struct {
	hash [32]byte
	id   SessionID
}

// lane is the memory of one lane (C1): its last request and what came of it.
//
// Invariant 7: a request is executed only if its number is above last, and
// recorded here in the same command; so a copy, however late, does nothing.
type lane struct {
	session SessionID
	lane    uint32
	last    uint64
	asked   asked // by the last request, in every copy of it
	outcome outcome
}

// outcome is what a lane remembers of its last request.
type outcome struct {
	status   Status   // never Settled
	grant    *Grant   // Granted
	refusal  *refusal // Refused
	revision Revision // Done: of the change
}

// terms are the rules that an acquire puts on its grant.
type terms struct {
	lockDelay   time.Duration
	oncePer     time.Duration
	maxHold     time.Duration
	retryFailed bool
}

// ask is what an acquire asks for, whether it waits or not.
type ask struct {
	terms
	session SessionID
	request Request
	asked   asked // for the lane
	lock    string
	shared  bool
	value   []byte // nil for none
}

// wait is one place in a queue. Its session is live (invariant 3), and its
// lane says Waiting (invariant 7).
type wait struct {
	ask
	// Invariant 5: tickets are the revisions at which requests joined, so
	// they rise along the queue and are never given twice.
	ticket Revision
	since  Clock
}

// grant is one held grant. The embedded Grant is what was told to the holder.
type grant struct {
	*Grant
	terms
	revoked   bool // marked (B11); still held
	revokedAt Clock
	cause     RevokeCause
	by        string
	burnt     uint64 // the revocation token's number; 0 if the counter was full
}

// isTimed reports whether the lease machine must watch the grant.
func (g *grant) isTimed() bool { return g.EndsAt != 0 || g.revoked }

// tomb is a tombstone and whose it is.
type tomb struct {
	Tombstone
	session SessionID
	burnt   uint64
}

// lock is what is known of one name. A lock with no holder, no waiter, no
// value and no closing is not in the tree.
//
// Invariant 2: per slot there is one exclusive holder, or any number of shared
// holders of one generation. Slots are below limit; shared needs limit 1. Once
// a number was burnt on a shared generation it is sealed: nobody joins it, so
// every holder's number is below every number burnt on it.
//
// Invariant 4: if the lock is not closed and the head of its queue would find
// room, the queue is empty: settle ran in the command that made the room.
type lock struct {
	name    string
	created Revision
	limit   uint32 // permits; 0 while neither held nor queued (A5)
	sealed  bool   // nobody joins the shared holders; see invariant 2
	holders int32  // grants of the lock; counted, not encoded
	waiters int32  // waits of the lock; counted, not encoded

	modified     Revision // of the value; 0 without one
	value        []byte
	valueGrant   uint64    // the grant that the value ends with (A6)
	valueSession SessionID // the session that the value ends with

	closing Revision // of the closing; 0 while open
	cause   Cause    // CauseLockDelay or CauseOncePer; a queue only with the first
	opensAt Clock
}

func (l *lock) closed() bool   { return l.closing != 0 }
func (l *lock) hasValue() bool { return l.modified != 0 }
func (l *lock) inUse() bool    { return l.holders != 0 || l.waiters != 0 }

// bond says that a lock's value ends with a session (presence).
type bond struct {
	session SessionID
	lock    string
}

// record is an event in the ring, with its place among the events of its
// revision and how many these are.
type record struct {
	*Event
	place int32
	of    int32
}
