package core

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"slices"

	"holdfast/internal/planted"
)

// The encoding of a state: "HS", the format's version, the head, sessions with
// their lanes and tombstones, locks with their holders and queues, events, from
// format 2 on audit records, and a SHA-256 of all that. Everything stands in the order of its tree. What can
// be derived (indexes, counts) is not in it.
const (
	stateMagic  = "HS"
	stateFormat = 2 // the newest; see stateFormatOf
)

// Encode writes the canonical encoding of the state, D8's contents with the
// format's version before and a checksum behind. An error is the writer's, or
// a *[HaltError] for a state that is not valid. It may run beside Apply on a
// [State.Clone].
func (s *State) Encode(w io.Writer) error {
	sum, err := s.encode(w)
	if err != nil {
		return err
	}
	_, err = w.Write(sum[:])
	return err
}

// Hash returns the SHA-256 of the canonical encoding: equal for equal states
// (invariant 8). It costs as much as an encoding. A state that cannot be
// encoded, which [State.Check] would name, has the zero hash.
func (s *State) Hash() [32]byte {
	sum, err := s.encode(io.Discard)
	if err != nil {
		return [32]byte{}
	}
	return sum
}

func (s *State) encode(w io.Writer) (sum [32]byte, err error) {
	x := &codec{writing: true, to: w, sum: sha256.New(), buf: make([]byte, 0, flushAt+2*MaxValue)}
	x.buf = append(x.buf, stateMagic...)
	x.format = stateFormatOf(s.version)
	x.buf = append(x.buf, x.format)
	x.state(s)
	x.flush(true)
	x.sum.Sum(sum[:0])
	return sum, x.err
}

// Decode reads a state that [State.Encode] wrote, to the end of r, and checks
// all of it: format, order, checksum, invariants. It uses no more memory than
// a small multiple of the bytes that r really has. An error is the reader's,
// or a *[HaltError] that names what is wrong.
func Decode(r io.Reader) (s *State, err error) { return DecodeAs(r, SupportedVersion) }

// DecodeAs is Decode for a release that pretends to apply cluster versions up
// to supports, in tests of upgrades.
func DecodeAs(r io.Reader, supports uint32) (s *State, err error) {
	defer func() {
		if p := recover(); p != nil {
			s, err = nil, haltFrom(p, 0)
		}
	}()
	x := &codec{from: r, sum: sha256.New(), what: "state"}
	var head [len(stateMagic) + 1]byte
	x.fixed(head[:])
	switch v := head[len(stateMagic)]; {
	case x.err != nil:
	case string(head[:len(stateMagic)]) != stateMagic || v == 0:
		x.corrupt("these bytes are no state")
	case v > stateFormat:
		x.fail(ErrNewerFormat, "format %d: this binary reads %d; start a newer one", v, stateFormat)
	}
	x.format = head[len(stateMagic)]
	s = New(Config{})
	s.supports = supports
	x.state(s)
	x.checksum()
	if x.err != nil {
		return nil, x.err
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return s, nil
}

// checksum reads the checksum and the end.
func (x *codec) checksum() {
	x.what, x.nth = "state", 0
	x.digest()
	var want [32]byte
	got := x.sum.Sum(nil)
	x.fixed(want[:])
	if x.err == nil && string(got) != string(want[:]) {
		x.corrupt("checksum is %x, want %x", got, want)
	}
	if x.err != nil {
		return
	}
	if x.pos != len(x.buf) {
		x.corrupt("bytes follow its end")
		return
	}
	switch n, err := io.ReadFull(x.from, make([]byte, 1)); {
	case n != 0:
		x.corrupt("bytes follow its end")
	case err != io.EOF:
		x.err = err
	}
}

func newerVersion(v, supports uint32) string {
	return fmt.Sprintf("cluster version %d: this binary applies up to %d; start a newer one", v, supports)
}

// state is everything between format and checksum.
func (x *codec) state(s *State) {
	x.what = "head"
	x.fixed(s.domain[:])
	x.u64(&s.incarnation)
	epoch := uint64(s.epoch)
	x.below(&epoch, MaxEpoch, "epoch")
	if !x.writing {
		s.epoch = uint16(epoch)
	}
	x.below(&s.counter, MaxCounter, "counter")
	x.revision(&s.revision, math.MaxInt64, "revision")
	x.clock(&s.clock, "clock")
	if x.reading() && planted.On("D8-no-clock") {
		s.clock = 0
	}
	x.u32(&s.version, "version")
	if !x.writing && s.version > s.supports {
		x.fail(ErrNewerFormat, "%s", newerVersion(s.version, s.supports))
	}
	if x.reading() && x.format != stateFormatOf(s.version) {
		x.corrupt("format %d of a state of cluster version %d", x.format, s.version)
	}
	x.u64(&s.index)
	x.what = "members"
	x.members(&s.members, maxMembers, maxMemberText)
	x.removed(&s.removed, maxRemoved)
	x.stateSessions(s)
	x.stateLocks(s)
	x.stateEvents(s)
	x.stateAudits(s)
}

func (x *codec) stateSessions(s *State) {
	x.what, x.nth = "sessions", 0
	n := x.count(s.sessions.Len(), math.MaxInt32, "sessions")
	if x.writing {
		s.sessions.Ascend(func(v session) bool {
			x.oneSession(s, v, *v.who)
			return x.err == nil
		})
		return
	}
	last := SessionID(0)
	for i := 1; i <= n && x.err == nil; i++ {
		x.what, x.nth = "session", i
		last = x.oneSession(s, session{id: last}, identity{})
	}
}

// oneSession is a session with its tombstones and lanes. Reading, v.id is that
// of the session before; it returns the ID.
func (x *codec) oneSession(s *State, v session, who identity) SessionID {
	before := v.id
	x.session(&v.id)
	x.fixed(who.secret[:])
	x.fixed(who.instance[:])
	x.length(&who.ttl, "TTL")
	x.text(&who.label, MaxLabel, "label")
	x.text(&who.host, MaxLabel, "host")
	x.clock(&who.opened, "opening clock")
	v.suspected = v.suspected && !planted.On("D8-no-suspicions")
	x.flag(&v.suspected, "suspected")
	if v.suspected {
		x.clock(&v.since, "suspicion")
	}
	if x.reading() {
		if v.id <= before {
			x.corrupt("sessions are not in order")
		}
		if _, twice := s.secrets.ReplaceOrInsert(secret{hash: who.secret, id: v.id}); twice {
			x.corrupt("two sessions have one secret")
		}
		v.who = &who
		s.sessions.ReplaceOrInsert(v)
	}
	x.tombsOf(s, &v)
	x.lanesOf(s, &v)
	if x.reading() {
		s.sessions.ReplaceOrInsert(v)
	}
	return v.id
}

func (x *codec) tombsOf(s *State, v *session) {
	n := x.count(int(v.tombs), MaxTombstones, "tombstones")
	all := s.tombsOf(v.id)
	for i := 0; i < n && x.err == nil; i++ {
		d := tomb{session: v.id}
		if x.writing {
			d = all[i]
		}
		x.u64(&d.Grant)
		x.text(&d.Lock, MaxLockName, "tombstone's lock")
		x.u8((*uint8)(&d.Cause), uint8(ByMaxHold), "tombstone's cause")
		x.text(&d.By, MaxLabel, "tombstone's operator")
		x.u64(&d.burnt)
		if !x.reading() {
			continue
		}
		if max, ok := s.tombsBySess.Max(); ok && max.session == v.id && max.Grant >= d.Grant || s.tombs.Has(d) {
			x.corrupt("tombstones are not in order")
		}
		s.tombs.ReplaceOrInsert(d)
		s.tombsBySess.ReplaceOrInsert(d)
		v.tombs++
	}
}

func (x *codec) lanesOf(s *State, v *session) {
	all := s.lanesOf(v.id)
	if planted.On("D8-no-lanes") {
		all = slices.DeleteFunc(all, func(l lane) bool { return l.outcome.status != Waiting })
	}
	n := x.count(len(all), MaxPerSession, "lanes")
	for i := 0; i < n && x.err == nil; i++ {
		l := lane{session: v.id}
		if x.writing {
			l = all[i]
		}
		x.u32(&l.lane, "lane")
		x.below(&l.last, MaxRequest, "lane's request")
		x.asked(&l.asked)
		x.outcome(&l.outcome)
		if !x.reading() {
			continue
		}
		if max, ok := s.lanes.Max(); ok && !laneLess(max, l) {
			x.corrupt("lanes are not in order")
		}
		s.lanes.ReplaceOrInsert(l)
		v.lanes++
	}
}
