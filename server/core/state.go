package core

import (
	"slices"
	"strings"

	"github.com/google/btree"

	"holdfast/internal/planted"
)

// degree of all trees: at most 31 items a node, so that the first change
// after a Clone copies little.
const degree = 16

// State is the whole replicated state of a lock service. It is not safe for
// concurrent use, but a [State.Clone] may be read while the original goes on.
//
// Everything lives in flat copy-on-write trees. A value in a tree is never
// changed, a change inserts a new one, so that versions can share them (D5).
// The invariants that bind fields are numbered as in DESIGN §3; [State.Check]
// tests them.
type State struct {
	domain      [16]byte
	incarnation uint64
	// Invariant 1: epoch<<48 + counter only rises. It is the highest number
	// ever given out, and part of the state, never of a lock, so that
	// dropping a lock restarts nothing (A2).
	epoch   uint16
	counter uint64

	revision Revision // of the last command that emitted events
	clock    Clock    // the highest clock of any header; never decided by (B2)
	version  uint32   // cluster version; never falls (invariant 9)
	index    uint64   // of the last applied entry; only rises
	supports uint32   // newest version this code applies; not part of the encoding
	members  []Member // by ID; replaced, never changed
	removed  []uint64 // IDs that may not come back, ascending

	sessions *btree.BTreeG[session] // by ID
	secrets  *btree.BTreeG[secret]  // by hash: Open is idempotent (B12)
	lanes    *btree.BTreeG[lane]    // by session and lane (C1)
	// Invariant 3: the session of every item in the trees below is in
	// sessions; endSession removes all of them in one command.
	grants       *btree.BTreeG[*grant]       // by number: all calls name grants so (invariant 6)
	grantsByLock *btree.BTreeG[*grant]       // the same, by lock, slot, number
	grantsBySess *btree.BTreeG[*grant]       // the same, by session, number
	timed        *btree.BTreeG[*grant]       // those with an end or a mark, by number
	tombs        *btree.BTreeG[tomb]         // by grant number
	tombsBySess  *btree.BTreeG[tomb]         // the same, by session, number
	waits        *btree.BTreeG[*wait]        // by lock, ticket: the queues (invariant 5)
	waitsBySess  *btree.BTreeG[*wait]        // the same, by session, lane
	bound        *btree.BTreeG[bond]         // values bound to sessions, by session, lock
	locks        *btree.BTreeG[*lock]        // by name
	closings     *btree.BTreeG[*lock]        // those that are closed, by name
	events       *btree.BTreeG[record]       // by revision, place in it
	audits       *btree.BTreeG[*AuditRecord] // by revision
}

// Config says what a new lock service is.
type Config struct {
	Domain      [16]byte
	Incarnation uint64
	Members     []Member
	// Version is the cluster version to begin with; 0 means 1, the first. A
	// later one only if every member is known to apply it.
	Version uint32
}

// New returns the state at bootstrap: epoch, counter, revision and clock 0,
// nothing held.
func New(c Config) *State {
	s := &State{domain: c.Domain, incarnation: c.Incarnation, version: max(c.Version, 1), supports: SupportedVersion}
	s.members = sortedMembers(c.Members)
	s.sessions = btree.NewG(degree, func(a, b session) bool { return a.id < b.id })
	s.secrets = btree.NewG(degree, func(a, b secret) bool { return string(a.hash[:]) < string(b.hash[:]) })
	s.lanes = btree.NewG(degree, laneLess)
	s.grants = btree.NewG(degree, grantLess)
	s.grantsByLock = btree.NewG(degree, grantLockLess)
	s.grantsBySess = btree.NewG(degree, grantSessionLess)
	s.timed = btree.NewG(degree, grantLess)
	s.tombs = btree.NewG(degree, func(a, b tomb) bool { return a.Grant < b.Grant })
	s.tombsBySess = btree.NewG(degree, tombSessionLess)
	s.waits = btree.NewG(degree, waitLockLess)
	s.waitsBySess = btree.NewG(degree, waitSessionLess)
	s.bound = btree.NewG(degree, bondLess)
	s.locks = btree.NewG(degree, lockLess)
	s.closings = btree.NewG(degree, lockLess)
	s.events = btree.NewG(degree, recordLess)
	s.audits = newAudits()
	return s
}

// Clone returns a version of the state that later changes of s do not touch;
// it costs the same whatever the size. It is called where Apply is called;
// the clone may then be read anywhere.
func (s *State) Clone() *State {
	c := *s
	c.members = slices.Clone(s.members)
	c.removed = slices.Clone(s.removed)
	c.sessions = s.sessions.Clone()
	c.secrets = s.secrets.Clone()
	if c.lanes = s.lanes; !planted.On("D5-tree-shared") {
		c.lanes = s.lanes.Clone()
	}
	c.grants = s.grants.Clone()
	c.grantsByLock = s.grantsByLock.Clone()
	c.grantsBySess = s.grantsBySess.Clone()
	c.timed = s.timed.Clone()
	c.tombs = s.tombs.Clone()
	c.tombsBySess = s.tombsBySess.Clone()
	c.waits = s.waits.Clone()
	c.waitsBySess = s.waitsBySess.Clone()
	c.bound = s.bound.Clone()
	c.locks = s.locks.Clone()
	c.closings = s.closings.Clone()
	c.events = s.events.Clone()
	c.audits = s.audits.Clone()
	return &c
}

// Domain identifies the lineage of grant numbers.
func (s *State) Domain() [16]byte { return s.domain }

// Incarnation tells apart the services that ever continued the domain.
func (s *State) Incarnation() uint64 { return s.incarnation }

// Epoch is the upper part of every new grant number.
func (s *State) Epoch() uint16 { return s.epoch }

// LastNumber is the highest number given out or burnt; 0 if none was. Right
// after a raised epoch it is that epoch with counter 0.
func (s *State) LastNumber() uint64 { return uint64(s.epoch)<<epochShift + s.counter }

// Revision counts the commands that emitted events.
func (s *State) Revision() Revision { return s.revision }

// Clock is the highest clock of any applied header.
func (s *State) Clock() Clock { return s.clock }

// Version is the cluster version (invariant 9).
func (s *State) Version() uint32 { return s.version }

// Index is that of the last applied entry; 0 if none was.
func (s *State) Index() uint64 { return s.index }

// Members returns the members and the IDs that were removed, as the log has
// them. The caller owns the slices.
func (s *State) Members() ([]Member, []uint64) {
	return slices.Clone(s.members), slices.Clone(s.removed)
}

func sortedMembers(m []Member) []Member {
	m = slices.Clone(m)
	slices.SortStableFunc(m, func(a, b Member) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	return m
}

// ascendFrom calls fn for the items from pivot on until it returns false.
func ascendFrom[T any](t *btree.BTreeG[T], pivot T, fn func(T) bool) {
	t.AscendGreaterOrEqual(pivot, fn)
}

// firstFrom returns the lowest item that is not below pivot.
func firstFrom[T any](t *btree.BTreeG[T], pivot T) (item T, ok bool) {
	t.AscendGreaterOrEqual(pivot, func(x T) bool {
		item, ok = x, true
		return false
	})
	return item, ok
}

func lockLess(a, b *lock) bool { return a.name < b.name }

func laneLess(a, b lane) bool {
	if a.session != b.session {
		return a.session < b.session
	}
	return a.lane < b.lane
}

func grantLess(a, b *grant) bool { return a.Number < b.Number }

func grantLockLess(a, b *grant) bool {
	if c := strings.Compare(a.Lock, b.Lock); c != 0 {
		return c < 0
	}
	if a.Slot != b.Slot {
		return a.Slot < b.Slot
	}
	return a.Number < b.Number
}

func grantSessionLess(a, b *grant) bool {
	if a.Session != b.Session {
		return a.Session < b.Session
	}
	return a.Number < b.Number
}

func tombSessionLess(a, b tomb) bool {
	if a.session != b.session {
		return a.session < b.session
	}
	return a.Grant < b.Grant
}

func waitLockLess(a, b *wait) bool {
	if c := strings.Compare(a.lock, b.lock); c != 0 {
		return c < 0
	}
	return a.ticket < b.ticket
}

func waitSessionLess(a, b *wait) bool {
	if a.session != b.session {
		return a.session < b.session
	}
	return a.request.Lane < b.request.Lane
}

func bondLess(a, b bond) bool {
	if a.session != b.session {
		return a.session < b.session
	}
	return a.lock < b.lock
}

func recordLess(a, b record) bool {
	if a.Revision != b.Revision {
		return a.Revision < b.Revision
	}
	return a.place < b.place
}
