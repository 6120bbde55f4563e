package sim

import (
	"math/rand/v2"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// electionTicks is raft's election timeout, and that of a read index (C4).
const electionTicks = 10

// group is the only raft group of a world.
const group = 1

// A server is one member: the real replica and the real deadline machine, and a
// shell around them that does what package server's loop does, in the same
// order (see the doc of the package for what is left out).
type server struct {
	process
	rng  *rand.Rand
	disk *disk
	id   uint64 // of its data; a wiped server has a new one
	gone bool   // it was removed, and does not come back

	m       *replica.Machine
	lease   *lease.Machine
	leading bool

	socket []message // arrived, not read
	inbox  []message // read, not looked at
	peers  []replica.Message
	lost   []uint64 // peers to which a message got lost
	sent   []transfer

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
	low                     bool
	handed                  time.Duration
	snapshotting            bool
	received                uint64
	changes                 map[uint64]message // membership changes under way, by handle
}

type waiterKey struct {
	session core.SessionID
	request core.Request
}

// A proposal is a command on its way into the log, and the call that it is for.
type proposal struct {
	cmd  core.Command
	call *message // nil: the lease machine's own
}

type flight struct {
	handle uint64
	items  []proposal
}

// A round is one confirmation of leadership under way.
type round struct {
	handle uint64
	upTo   time.Duration
	reads  []message
}

// A transfer is the end of a snapshot's way to a peer.
type transfer struct {
	to uint64
	ok bool
}

// boot starts a server from what its disk holds.
func (s *server) boot() {
	s.process.start()
	d := s.disk
	m, err := replica.New(replica.Config{
		Group: group, ID: s.id, ElectionTicks: electionTicks, TrailingEntries: s.w.SnapshotEvery / 4,
		Snapshot: d.snap, HardState: d.hard, Entries: d.entries[:len(d.entries):len(d.entries)],
	})
	if err != nil {
		s.w.judge.object(NoStart, "%s does not start: %v", s.name, err)
		s.die()
		return
	}
	s.m, s.lease = m, lease.NewWeakened(lease.Config{Tick: s.w.Tick}, weakened())
	s.leading, s.flight, s.round, s.confirm = false, nil, nil, false
	s.inbox, s.peers, s.lost, s.sent = nil, nil, nil, nil
	s.first, s.urgent, s.ordinary, s.fresh = nil, nil, nil, nil
	s.waiters, s.order, s.pulses = map[waiterKey]message{}, nil, map[lease.Handle]message{}
	s.changes = map[uint64]message{}
	s.batches, s.outstanding = nil, nil
	s.slow, s.silent, s.probed, s.low, s.snapshotting, s.waking = false, false, false, false, false, false
	s.wakeAt, s.handed, s.received = 0, 0, 0
	if m.Alone() {
		m.Campaign()
	}
	s.say("starts at %d", m.State().Index())
	s.tickLater()
	s.turn()
}

// crash is the server's death.
func (s *server) crash() {
	if !s.up {
		return
	}
	s.say("dies")
	s.disk.crash()
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
		s.low = s.disk.full
		if s.low {
			s.handOver("too little disk space")
		}
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
	for _, step := range []func(){s.collectDisk, s.takePeers, s.advance, s.takeInbox, s.checkDisk} {
		if step(); !s.up {
			return
		}
	}
	for range 4 {
		s.moved = false
		s.turnLease()
		s.startRound()
		s.propose()
		s.advance()
		if !s.up {
			return
		}
		if !s.moved {
			break
		}
	}
	for i := range s.batches {
		if snap := s.batches[i].Snapshot; snap != nil {
			s.received = snap.GetMetadata().GetIndex()
		}
		s.push(job{append: &s.batches[i]})
	}
	s.batches = nil
	s.takeSnapshot()
	s.setTimer()
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

func (s *server) push(j job) {
	j.since = s.time()
	s.outstanding = append(s.outstanding, j.since)
	s.disk.push(j)
}

// collectDisk looks at what the disk has done.
func (s *server) collectDisk() {
	done := s.disk.done
	s.disk.done = nil
	for _, j := range done {
		if len(s.outstanding) > 0 {
			s.outstanding = s.outstanding[1:]
		}
		switch {
		case !s.up:
			return
		case j.nothing:
		case j.err != nil:
			s.fail(j.err) // poisoned (D3)
		case j.append != nil:
			if err := s.m.StorageDone(*j.append, s); err != nil {
				s.fail(err)
			} else if j.append.Snapshot != nil {
				s.say("has the state of %d from another member", s.m.State().Index())
				s.w.judge.installed(s)
				s.checkRemoved()
			}
		case j.snapshot != nil:
			s.snapshotting = false
			if err := s.m.SnapshotSaved(j.snapshot); err != nil {
				s.fail(err)
			}
		case j.probe:
			s.silent, s.probed = false, false
		}
	}
}

// fail ends the server; its supervisor starts it again after a while.
func (s *server) fail(err error) {
	if !s.up {
		return
	}
	s.say("ends: %v", err)
	if halt, ok := err.(*replica.HaltError); ok {
		s.w.judge.object(Halted, "%s: %v", s.name, halt)
	}
	s.crash()
	s.w.restartLater(s)
}

// checkDisk looks at how long the oldest call takes (D2).
func (s *server) checkDisk() {
	s.slow = false
	if len(s.outstanding) == 0 {
		if s.silent && !s.probed {
			s.probed = true
			s.push(job{probe: true})
		}
		return
	}
	limit := min(electionTicks*s.w.Tick, s.w.TTL/4)
	age := s.time() - s.outstanding[0]
	if age > limit {
		s.slow = true
		s.handOver("a write to the disk hangs")
		if age > 2*limit && !s.silent && !planted.On("D2-speaks-on") {
			s.silent = true
			s.say("is silent: a write hangs")
			s.w.judge.meet(SilentNode)
		}
	}
}

// takeSnapshot takes one when enough was logged.
func (s *server) takeSnapshot() {
	entries, _ := s.m.Logged()
	if !s.up || s.snapshotting || (entries < s.w.SnapshotEvery && !s.m.SnapshotWanted()) {
		return
	}
	s.snapshotting = true
	view := s.m.View()
	s.in(between(s.rng, time.Millisecond, 20*time.Millisecond), func() {
		snap, err := view.Encode()
		switch {
		case err != nil:
			s.fail(&replica.HaltError{Err: err})
		case snap.GetMetadata().GetIndex() <= s.received:
			s.snapshotting = false
		default:
			s.say("snapshot of %d", snap.GetMetadata().GetIndex())
			s.push(job{snapshot: snap})
		}
	})
}

// takePeers looks at what came from other members.
func (s *server) takePeers() {
	messages, lost, sent := s.peers, s.lost, s.sent
	s.peers, s.lost, s.sent = nil, nil, nil
	for _, m := range messages {
		starved := s.low && m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0 && !s.leading
		if starved || m.GetType() == raftpb.MsgTimeoutNow && (s.silent || s.low) {
			continue
		}
		s.m.Step(m)
	}
	for _, id := range lost {
		s.m.Unreachable(id)
	}
	for _, t := range sent {
		s.m.SnapshotSent(t.to, t.ok)
	}
}

// Send implements replica.Effects.
func (s *server) Send(m replica.Message) {
	snap := m.GetType() == raftpb.MsgSnap
	to := s.w.serverOf(m.GetTo())
	if s.silent || to == nil {
		if snap {
			s.sent = append(s.sent, transfer{m.GetTo(), false})
		}
		return
	}
	report := func(ok bool) func() {
		return s.alive(func() {
			if snap && planted.On("D6-no-report") {
				return
			}
			if snap {
				s.sent = append(s.sent, transfer{m.GetTo(), ok})
			} else if !ok {
				s.lost = append(s.lost, m.GetTo())
			}
			s.wake()
		})
	}
	arrive := func() {
		if !to.up || to.id != m.GetTo() {
			if snap {
				s.w.after(time.Millisecond, report(false))
			}
			return
		}
		to.peers = append(to.peers, m)
		to.wake()
		if snap {
			s.w.judge.meet(SnapshotSent)
			s.w.net.send(&to.process, &s.process, report(true), nil)
		}
	}
	s.w.net.send(&s.process, &to.process, arrive, report(false))
	if snap { // every transfer ends in a report (D6)
		s.w.after(4*electionTicks*s.w.Tick, report(false))
	}
}

// handOver moves leadership to the most caught-up member that is heard.
func (s *server) handOver(why string) bool {
	now := s.time()
	if !s.m.Role().Elected || s.m.Alone() || s.handing(now) {
		return false
	}
	var best uint64
	progress := s.m.Progress()
	members, _ := s.m.State().Members()
	for _, m := range members {
		if p := progress[m.ID]; m.ID != s.id && !m.Learner && p.Active && (best == 0 || p.Match > progress[best].Match) {
			best = m.ID
		}
	}
	if best == 0 {
		return false
	}
	s.say("hands over to %d: %s", best, why)
	s.handed, s.moved = now, true
	s.m.TransferTo(best)
	return true
}

func (s *server) handing(now time.Duration) bool {
	return s.handed != 0 && now-s.handed < electionTicks*s.w.Tick
}
