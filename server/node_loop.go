package server

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"holdfast/server/core"
	"holdfast/server/lease"
	"holdfast/server/replica"
)

// What one entry holds at most. The rest waits for the next one; a lone
// command never waits for company. An entry is applied in one turn, and a turn
// must stay far below the lease machine's stall even if its core is shared:
// with 4096 commands a busy leader took its own work for stalls, and handed
// over every ten seconds.
const (
	maxEntryCommands = 1024
	maxEntryBytes    = 1 << 20
	// maxEntryEnds bounds what the ends of sessions in one entry may remove,
	// as core bounds it for one session (D8): grants and waits, and what goes
	// with them. A session that has more is alone with its end.
	maxEntryEnds = core.MaxPerSession
	// After a batch of this many commands the loop lets others run for a
	// moment before it looks for more: they are about to send the next.
	largeBatch  = 8
	batchYields = 3
	// electionTicks is raft's election timeout, and that of a read index (C4).
	electionTicks = 10
	// spaceEvery is how often the free space is looked at, and spaceEveryLow
	// while there is too little: who made room waits for the service.
	spaceEvery    = 5 * time.Second
	spaceEveryLow = 500 * time.Millisecond
	// maxPasses bounds a turn.
	maxPasses = 4
)

// proposal is a command on its way into the log, and who wants its result.
type proposal struct {
	cmd   core.Command
	audit *core.Audit  // goes behind cmd; or nil
	sink  func(Answer) // nil: the lease machine's own
}

// flight is the one entry that was proposed and is not yet applied.
type flight struct {
	handle replica.Handle
	items  []proposal
}

// waiterKey names a waiting acquire.
type waiterKey struct {
	session core.SessionID
	request core.Request
}

// round is one confirmation of leadership under way.
type round struct {
	handle replica.Handle
	upTo   time.Duration // it covers what arrived at or before this
	asked  time.Duration
	views  []*viewing
}

// keepalive is one that waits for the lease machine's answer.
type keepalive struct {
	session core.SessionID
	sink    func(Pulse)
}

// loop is the node's one goroutine: it gathers what arrived, turns the
// machines, hands the disk one batch, and answers. It alone touches its fields.
type loop struct {
	n     *Node
	log   *slog.Logger
	id    uint64
	m     *replica.Machine
	lease *lease.Machine
	disk  *disk

	leading bool
	led     bool           // it led before
	handles replica.Handle // the last one used

	first    []proposal // of the lease machine: before all others
	urgent   []proposal
	ordinary []proposal
	opening  int // opens that are queued or in flight
	flight   *flight
	lastSize int // commands in the last entry
	waiters  map[waiterKey]func(Answer)

	pulses    map[lease.Handle]keepalive
	nextPulse lease.Handle
	round     *round
	confirm   bool // the lease machine wants a confirmation
	fresh     []*viewing
	wakeAt    time.Duration
	heardAt   time.Duration // when a leader was last known
	drain     uint64        // number of the latest drain
	moved     bool          // something happened that the lease machine must look at

	batches     []replica.Append // of this turn, for the disk
	outstanding []time.Duration  // when each unfinished disk job was handed over
	health      health
	snapshot    snapshotting
	overdue     overdue
	members     membership
	net         peering
	leaving     bool          // the node is about to stop
	leaveBy     time.Duration // until when a stop waits for another leader; 0: it does not

	inUrgent, inOrdinary []request // memory for the inbox
	failed               error     // why the node ends; nil until then
	workers              sync.WaitGroup
}

func startLoop(n *Node, id uint64, m *replica.Machine, st replica.Storage) *loop {
	l := &loop{
		n: n, log: n.log, id: id, m: m,
		lease:   lease.New(lease.Config{Tick: n.cfg.Tick}),
		waiters: map[waiterKey]func(Answer){},
		pulses:  map[lease.Handle]keepalive{},
		heardAt: n.now(),
	}
	l.disk = startDisk(st, n.now, n.in.wake)
	return l
}

// run turns the loop until the node is stopped or fails.
func (l *loop) run() {
	ticker := time.NewTicker(l.n.cfg.Tick)
	defer ticker.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if l.m.Alone() {
		l.m.Campaign() // nobody else could be leading
	}
	stopping := l.n.stopping
	stop := false
	for {
		l.turn()
		if l.failed != nil || (stop && l.flight == nil && len(l.outstanding) == 0) {
			break
		}
		if l.leaveBy != 0 && (!l.m.Role().Elected || l.n.now() >= l.leaveBy) {
			l.leaveBy = 0
			stop = l.stop()
			continue
		}
		timer.Reset(l.untilWake())
		select {
		case <-l.n.in.signal:
		case <-ticker.C:
			l.tick()
		case <-timer.C:
		case <-stopping:
			stopping, l.leaving = nil, true
			if l.handOver("this node stops") {
				l.leaveBy = l.n.now() + 2*electionTicks*l.n.cfg.Tick
			} else {
				stop = l.stop()
			}
		}
	}
	l.end()
}

// stop takes nothing more.
func (l *loop) stop() bool {
	l.n.in.close(ErrStopped)
	l.health.stopping = true
	l.refuseQueued(ErrStopped)
	return true
}

func (l *loop) untilWake() time.Duration {
	if l.wakeAt == 0 {
		return time.Hour
	}
	return max(0, l.wakeAt-l.n.now())
}

// tick lets raft's time pass, and looks at what must be looked at regularly.
func (l *loop) tick() {
	if !l.health.silent {
		l.m.Tick()
	}
	l.tickMembers()
	l.watchOverdue()
	every := spaceEvery
	if l.health.low {
		every = spaceEveryLow
	}
	if l.n.cfg.hooks.spaceEvery > 0 {
		every = l.n.cfg.hooks.spaceEvery
	}
	if now := l.n.now(); (l.health.spaceAsked == 0 || now-l.health.spaceAsked >= every) && !l.health.stopping {
		l.health.spaceAsked = now
		l.push(diskJob{space: true})
	}
}

// turn does all that can be done now. It never waits.
func (l *loop) turn() {
	began := l.n.now()
	defer func() { l.n.met.turns.Observe((l.n.now() - began).Seconds()) }()
	l.n.beat.Add(1)
	l.collectDisk()
	l.takePeers()
	l.advance()
	if l.lastSize >= largeBatch && l.flight == nil {
		l.lastSize = 0
		for range batchYields {
			runtime.Gosched()
		}
	}
	l.takeInbox()
	l.checkDisk()
	// Alone, a node confirms its leadership at once, and the lease machine
	// has answers then.
	for range maxPasses {
		now := l.n.now()
		l.moved = false
		l.turnLease(now)
		l.startRound(now)
		l.propose(now)
		l.advance()
		if !l.moved || l.failed != nil {
			break
		}
	}
	l.flushDisk()
	l.takeSnapshot()
	l.publish()
}

// takeInbox looks at everything that arrived.
func (l *loop) takeInbox() {
	urgent, ordinary, refused := l.n.in.take(l.inUrgent, l.inOrdinary)
	for i := range urgent {
		l.accept(&urgent[i], true)
	}
	for i := range ordinary {
		l.accept(&ordinary[i], false)
	}
	for i := range refused {
		l.n.met.refused.Inc()
		refused[i].req.answer(refused[i].err)
	}
	clear(urgent) // let go of what the sinks hold
	clear(ordinary)
	l.inUrgent, l.inOrdinary = urgent, ordinary
}

// accept sorts one request to where it waits.
func (l *loop) accept(r *request, isUrgent bool) {
	l.n.beat.Add(1)
	switch {
	case r.drained != 0:
		if r.drained == l.drain {
			l.lease.Drained(l.n.now())
		}
	case l.health.stopping:
		r.answer(ErrStopped)
	case r.ask != nil && r.ask.anywhere:
		r.ask.fn(l, r.ask.done)
	case l.health.silent && l.others() && (r.view == nil || !r.view.stale):
		r.answer(l.notLeader())
	case r.pulse != nil && len(l.pulses) >= 4*l.n.cfg.MaxPending,
		r.view != nil && len(l.fresh) >= l.n.cfg.MaxPending:
		r.answer(fmt.Errorf("%w: too many wait for a confirmation of leadership: try again later", ErrOverloaded))
	case r.pulse != nil:
		l.nextPulse++
		l.pulses[l.nextPulse] = keepalive{r.session, r.pulse}
		l.lease.Keepalive(l.nextPulse, r.session, r.arrived)
	case r.view != nil && r.view.stale && l.m.State().Index() > 0:
		r.view.run(l.reading(true))
	case !l.leading:
		r.answer(l.notLeader())
	case r.ask != nil:
		r.ask.fn(l, r.ask.done)
	case r.view != nil:
		l.fresh = append(l.fresh, r.view)
	default:
		l.acceptCommand(r, isUrgent)
	}
}

func (l *loop) acceptCommand(r *request, isUrgent bool) {
	if err := l.refuse(r.cmd, isUrgent); err != nil {
		l.n.met.refused.Inc()
		r.answer(err)
		return
	}
	p := proposal{cmd: r.cmd, audit: r.audit, sink: r.sink}
	if _, ok := r.cmd.(core.Open); ok {
		l.opening++
	}
	if isUrgent {
		l.urgent = append(l.urgent, p)
	} else {
		l.ordinary = append(l.ordinary, p)
	}
}

// refuse says why a command is not taken now.
func (l *loop) refuse(cmd core.Command, isUrgent bool) error {
	if cmd == nil || size(cmd) > maxEntryBytes {
		return fmt.Errorf("%w: a command must not be larger than %d bytes", ErrOverloaded, maxEntryBytes)
	}
	if err := l.tooNew(cmd); err != nil {
		return err
	}
	limit := l.n.cfg.MaxPending
	if isUrgent {
		limit *= 2
	}
	if waiting := len(l.ordinary) + len(l.urgent); waiting >= limit {
		return fmt.Errorf("%w: %d requests wait: try again later", ErrOverloaded, waiting)
	}
	if isUrgent {
		return nil
	}
	if reason := l.health.refusesGrowth(); reason != "" {
		return fmt.Errorf("%w: %s", ErrOverloaded, reason)
	}
	open, ok := cmd.(core.Open)
	if !ok || l.m.State().SessionCount()+l.opening < l.n.cfg.MaxSessions {
		return nil
	}
	if l.m.State().HasSecret(open.SecretHash) {
		return nil // it is answered with the session that is there (B12)
	}
	return fmt.Errorf("%w: %d sessions are open, and no more are allowed (--max-sessions)", ErrOverloaded, l.m.State().SessionCount())
}

// turnLease lets the lease machine look at the time.
func (l *loop) turnLease(now time.Duration) {
	eff := l.lease.Turn(now)
	for _, c := range eff.Propose {
		if lose := l.n.cfg.hooks.lose; lose != nil && lose(c) {
			continue
		}
		l.first = append(l.first, proposal{cmd: c})
	}
	l.confirm = l.confirm || eff.Confirm
	l.wakeAt = eff.Wake
	l.answerPulses(eff.Answers)
	if eff.Transfer {
		l.handOver("this process stood still for most of the last ten seconds")
	}
	if eff.Drain {
		l.drain++
		l.n.drain(l.drain)
	}
}

// startRound asks for a confirmation of leadership if somebody waits for one,
// and none is under way or the last one got lost (C4).
func (l *loop) startRound(now time.Duration) {
	if !l.leading || (!l.confirm && len(l.fresh) == 0 && l.round == nil) {
		return
	}
	next := &round{upTo: now, asked: now}
	if r := l.round; r != nil {
		if now-r.asked < electionTicks*l.n.cfg.Tick {
			return
		}
		next.views = r.views
	}
	l.handles++
	next.handle = l.handles
	next.views = append(next.views, l.fresh...)
	l.fresh, l.confirm, l.round = nil, false, next
	l.m.ReadIndex(next.handle)
}

// propose puts what waits into one entry, if none is in flight.
func (l *loop) propose(now time.Duration) {
	if l.flight != nil || !l.leading || l.health.stopping || l.handing(now) || len(l.first)+len(l.urgent)+len(l.ordinary) == 0 {
		return
	}
	items := l.gather()
	cmds := make([]core.Command, len(items))
	for i, p := range items {
		cmds[i] = p.cmd
	}
	l.handles++
	l.lastSize = len(items)
	err := l.m.Propose(l.handles, core.Header{Clock: l.lease.Clock(now)}, cmds)
	if err == nil {
		l.flight = &flight{l.handles, items}
		l.tellLease(items)
		l.n.met.entries.Inc()
		l.n.met.commands.Add(float64(len(items)))
		return
	}
	l.dropped(items, err)
}

// tellLease names the commands in an entry that are not the lease machine's.
func (l *loop) tellLease(items []proposal) {
	var theirs []core.Command
	for _, p := range items {
		if _, ok := p.cmd.(core.Revoke); ok && p.sink != nil {
			theirs = append(theirs, p.cmd)
		}
	}
	if len(theirs) > 0 {
		l.lease.Proposed(theirs)
	}
}

// dropped answers commands of which nothing was appended (C4).
func (l *loop) dropped(items []proposal, err error) {
	switch {
	case errors.Is(err, replica.ErrDropped):
		err = fmt.Errorf("%w: the log takes no more at the moment: try again", ErrOverloaded)
	case errors.Is(err, replica.ErrNotLeader):
		err = l.notLeader()
	default:
		l.fail(err)
	}
	var own []core.Command
	for _, p := range items {
		l.settled(p)
		if p.sink == nil {
			own = append(own, p.cmd)
		} else {
			p.sink(Answer{Err: err})
		}
	}
	if len(own) > 0 {
		l.lease.Dropped(own)
	}
}

// settled keeps the count of opens under way.
func (l *loop) settled(p proposal) {
	if _, ok := p.cmd.(core.Open); ok && p.sink != nil {
		l.opening--
	}
}
