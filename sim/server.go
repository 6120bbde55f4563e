package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// electionTicks is raft's election timeout, and that of a read index (C4).
const electionTicks = 10

// group is the only raft group of a world.
const group = 1

// Why a server ends, if it did not fail.
var (
	errStopped = errors.New("it was stopped")
	errRemoved = errors.New("it was removed")
)

// A server is one member: the real replica and the real deadline machine, and a
// shell around them that does what package server's loop does, in the same
// order (see the doc of the package for what is left out).
type server struct {
	process
	rng  *rand.Rand
	ids  *rand.Rand // of sessions
	disk *disk
	id   uint64 // of its data; a wiped machine gets a new one
	gone bool   // it was removed, or lost its data, and does not come back
	inc  uint64 // incarnation of its cluster: in every handshake with others
	// supports is the newest cluster version that its release can apply, and
	// installed that of the release with which it starts next.
	supports, installed uint32
	joining             bool // it waits to be made a member, and has no data yet

	m       *replica.Machine
	lease   *lease.Machine
	leading bool

	socket []message // arrived, not read
	inbox  []message // read, not looked at
	peers  []replica.Message
	lost   []uint64 // peers to which a message got lost
	sent   []transfer
	// members is the list in the state; said is what others said of
	// themselves, by ID.
	members []core.Member
	said    map[uint64]said
	drains  uint64 // counts them

	first, urgent, ordinary []proposal
	flight                  *flight
	handles                 uint64
	waiters                 map[waiterKey]message
	order                   []waiterKey // of waiters: a map has none
	pulses                  map[lease.Handle]message
	pulse                   lease.Handle
	round                   *round
	confirm                 bool
	fresh                   []message // reads that wait for a confirmation
	wakeAt                  time.Duration
	woken                   uint64 // counts the timers for the lease machine
	waking                  bool   // a turn is planned
	moved                   bool
	batches                 []replica.Append
	outstanding             []time.Duration
	slow, silent, probed    bool
	low, starved            bool
	spaceAsked              time.Duration
	handed                  time.Duration
	snapshotting            bool
	received                uint64
	changes                 map[uint64]message // membership changes under way, by handle
	raising                 bool               // so is a new cluster version
	leaving, stopping       bool               // it is being stopped: it hands over, then takes nothing more
	leaveBy                 time.Duration
	failed                  error         // why it ends after this turn
	leadsSince, drained     time.Duration // for the judge: its office, and its latest drain
	spoke                   time.Duration // and since when it has spoken while its disk hangs
}

// said is what a member says of itself with each message.
type said struct {
	supports uint32
	unfit    bool // it should not lead now
}

type waiterKey struct {
	session core.SessionID
	request core.Request
}

// A proposal is a command on its way into the log, and the call that it is for.
type proposal struct {
	cmd   core.Command
	audit *core.Audit // goes behind cmd; or nil
	call  *message    // nil: the lease machine's own
	// quiet: not the lease machine's, and nobody waits for its result.
	quiet bool
}

type flight struct {
	handle uint64
	items  []proposal
	since  time.Duration // true time
}

// A round is one confirmation of leadership under way.
type round struct {
	handle uint64
	upTo   time.Duration
	reads  []message
}

// boot starts a server from what its disk holds.
func (s *server) boot() {
	d := s.disk
	if s.up {
		return
	}
	if d.full.level() == noSpace { // the copy of the last segment needs room (D3)
		s.w.restartLater(s)
		return
	}
	d.renew()
	s.supports = s.installed
	s.process.start()
	m, err := replica.New(replica.Config{
		Group: group, ID: s.id, ElectionTicks: electionTicks, TrailingEntries: s.w.SnapshotEvery / 4, Supports: s.supports,
		Snapshot: d.snap, HardState: d.soft, Entries: d.entries[:len(d.entries):len(d.entries)],
	})
	if err != nil {
		s.w.judge.object(NoStart, "%s does not start: %v", s.name, err)
		s.die()
		return
	}
	s.m, s.lease = m, lease.NewWeakened(lease.Config{Tick: s.w.Tick}, weakened())
	s.forgetAll()
	if m.Removed() {
		s.say("was removed, and does not start")
		s.bury()
		return
	}
	s.refreshMembers()
	if m.Alone() {
		m.Campaign()
	}
	s.say("starts at %d", m.State().Index())
	s.tickLater()
	s.turn()
}

// forgetAll is the beginning of a life: what is not on the disk is not known.
func (s *server) forgetAll() {
	s.leading, s.flight, s.round, s.confirm = false, nil, nil, false
	s.socket, s.inbox, s.peers, s.lost, s.sent = nil, nil, nil, nil, nil
	s.first, s.urgent, s.ordinary, s.fresh = nil, nil, nil, nil
	s.waiters, s.order, s.pulses = map[waiterKey]message{}, nil, map[lease.Handle]message{}
	s.changes, s.said = map[uint64]message{}, map[uint64]said{}
	s.batches, s.outstanding = nil, nil
	s.slow, s.silent, s.probed, s.snapshotting, s.waking, s.raising = false, false, false, false, false, false
	s.low, s.starved, s.leaving, s.stopping, s.failed = false, false, false, false, nil
	s.wakeAt, s.handed, s.received, s.spaceAsked, s.leaveBy = 0, 0, 0, 0, 0
}

// crash is the server's death: that of its machine, or (kill) of its process
// alone, which what it wrote survives.
func (s *server) crash() { s.ends(true) }

func (s *server) ends(power bool) {
	if !s.up {
		return
	}
	s.say("dies")
	s.disk.crash(power)
	s.die()
	s.w.judge.serverDied(s)
	for _, m := range append(s.socket, s.inbox...) {
		m.broken(s)
	}
	s.socket, s.inbox = nil, nil
	for _, key := range s.order {
		s.waiters[key].broken(s)
	}
	s.order = nil
}

func (s *server) say(format string, args ...any) { s.w.say(s.name+": "+format, args...) }

// tickLater lets raft's time pass from now on. A ticker that is not read drops
// its ticks.
func (s *server) tickLater() {
	s.in(s.w.Tick, func() {
		s.tickLater()
		if !s.silent {
			s.m.Tick()
		}
		s.askSpace()
		s.tickMembers()
		s.turn()
	})
}

// wake plans a turn, unless one is planned.
func (s *server) wake() {
	if !s.up || s.waking {
		return
	}
	s.waking = true
	s.in(between(s.rng, 5*time.Microsecond, 50*time.Microsecond), s.turn)
}

// turn does all that can be done now.
func (s *server) turn() {
	s.waking = false
	s.collectDisk()
	s.takePeers()
	s.advance()
	s.takeInbox()
	s.checkDisk()
	for range 4 {
		s.moved = false
		s.turnLease()
		s.startRound()
		s.propose()
		s.advance()
		if !s.moved || s.failed != nil {
			break
		}
	}
	for i := range s.batches {
		if s.failed != nil {
			break
		}
		if snap := s.batches[i].Snapshot; snap != nil {
			s.received = snap.GetMetadata().GetIndex()
		}
		s.push(job{append: &s.batches[i]})
	}
	s.batches = nil
	s.takeSnapshot()
	s.leave()
	if s.failed != nil {
		s.end()
		return
	}
	s.setTimer()
}

// leave goes on with a stop that was asked for.
func (s *server) leave() {
	switch {
	case !s.leaving || s.failed != nil:
	case s.leaveBy != 0:
		if !s.m.Role().Elected || s.time() >= s.leaveBy {
			s.leaveBy, s.stopping = 0, true
			s.refuseQueued()
		}
	case s.stopping && s.flight == nil && len(s.outstanding) == 0:
		s.failed = errStopped
	}
}

// shutDown begins to stop a server as its supervisor does, who then starts it
// again.
func (s *server) shutDown() {
	if !s.up || s.leaving {
		return
	}
	s.leaving = true
	if s.handOver("this node stops") {
		s.leaveBy = s.time() + 2*electionTicks*s.w.Tick
	} else {
		s.stopping = true
		s.refuseQueued()
	}
	s.wake()
}

// end is the end of a turn in which the server failed, or was stopped:
// everybody who waits is told, and its supervisor starts it again.
func (s *server) end() {
	err := s.failed
	s.say("ends: %v", err)
	if halt, ok := err.(*replica.HaltError); ok {
		s.w.judge.object(Halted, "%s: %v", s.name, halt)
	}
	if f := s.flight; f != nil {
		s.flight = nil
		s.unknown(f)
	}
	s.refuseQueued()
	s.endWaits()
	for _, h := range s.sortedPulses() {
		s.reply(s.pulses[h], answer{retry: true})
	}
	removed := s.m.Removed() || errors.Is(err, errRemoved)
	s.disk.stopped = errors.Is(err, errStopped) // it was closed: all is synced
	s.ends(false)
	if removed {
		s.w.judge.meet(MemberRemoved)
		s.bury()
		return
	}
	s.w.restartLater(s)
}

// bury takes a server away for good.
func (s *server) bury() {
	s.gone = true
	if s.up {
		s.ends(true)
	}
	w := s.w
	w.servers = slices.DeleteFunc(slices.Clone(w.servers), func(o *server) bool { return o == s })
}

// fail ends the server after this turn; nothing is answered from its state any
// more.
func (s *server) fail(err error) {
	if s.failed == nil && err != nil {
		s.failed = err
		s.wake()
	}
}

// setTimer comes back when the lease machine wants to be asked.
func (s *server) setTimer() {
	if !s.up || s.wakeAt == 0 {
		return
	}
	s.woken++
	mine := s.woken
	s.in(max(50*time.Microsecond, s.wakeAt-s.time()), func() { // a timer takes time to fire
		if s.woken == mine {
			s.turn()
		}
	})
}
