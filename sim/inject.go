package sim

import (
	"math/rand/v2"
	"time"
)

// planFaults plans when each fault happens first.
func (w *world) planFaults() {
	for f := range faults {
		if !f.ofMessages() && w.Rates[f] > 0 {
			w.planFault(f, stream(w.Seed, "fault "+f.String()))
		}
	}
}

// planFault plans the next time that a fault happens, and the ones after it.
func (w *world) planFault(f Fault, r *rand.Rand) {
	mean := float64(time.Hour) / float64(w.Rates[f])
	w.after(time.Duration(mean*r.ExpFloat64()), func() {
		if w.calm {
			return
		}
		w.ordinal++ // each has a stream of its own: one that is left out shifts no other
		if own := rand.New(rand.NewPCG(r.Uint64(), r.Uint64())); !w.Skip.Has(w.ordinal) {
			w.happen(f, own)
		}
		w.planFault(f, r)
	})
}

// for a while, a fault lasts: undo ends it, at the latest when all faults end.
func (w *world) lasts(d time.Duration, undo func()) {
	ended := false
	once := func() {
		if !ended {
			ended = true
			undo()
		}
	}
	w.undo = append(w.undo, once)
	w.after(d, once)
}

// happen lets a fault happen.
func (w *world) happen(f Fault, r *rand.Rand) {
	s, c := w.anyServer(r), w.clients[r.IntN(len(w.clients))]
	if lead := w.leader(); lead != nil && r.IntN(2) == 0 {
		s = lead // the one whom it hurts
	}
	p := &s.process // one of the two
	if r.IntN(2) == 0 {
		p = &c.process
	}
	long := between(r, w.TTL/10, 5*w.TTL)
	switch f {
	case Partition:
		w.partition(r, long)
	case CutClient, SlowLink:
		w.hurtLink(f, c, s, r, long)
	case LoseCall, RepeatCall:
		w.single(f, r)
	case Crash, CrashAll, Kill, ShutDown:
		w.down(f, s)
	case DiskError, DiskFull, DiskSlow, DiskHang:
		w.hurtDisk(f, s.disk, r, long)
	case StopServer:
		w.stop(f, &s.process, long, false)
	case StopAll:
		for _, s := range w.servers {
			w.stop(f, &s.process, long, false)
		}
	case StopClient:
		w.stop(f, &c.process, long, false)
	case StopLong:
		w.stop(f, &c.process, between(r, 5*w.TTL, 15*w.TTL), false)
	case StopInStep, HoldWrite:
		w.inStep(f, long)
	case Sleep:
		w.stop(f, p, long, true)
	case Freeze:
		w.freeze(c, long)
	case Rate:
		skew := w.drawSkew(r.IntN)
		w.inject(f, "%s: %+d ppm", p.name, skew)
		p.clock.turn(w.now, skew, p.clock.still)
		p.steady = w.now
	case Jump:
		w.jump(c, between(r, 10*time.Millisecond, 2*w.TTL))
	case Flap:
		w.flap(r, long)
	case Overload:
		w.overload(r)
	case Restart:
		w.inject(f, "%s", c.name)
		c.crash()
		w.lasts(between(r, 0, 3*w.TTL), func() {
			if !c.up {
				c.boot()
			}
		})
	case Clone:
		w.clone(c, long)
	default:
		w.order(f, r)
	}
}

// down takes a server down, or all; each comes back.
func (w *world) down(f Fault, s *server) {
	switch f {
	case CrashAll:
		w.inject(f, "all servers")
		for _, s := range w.servers {
			s.crash()
			w.restartLater(s)
		}
	case ShutDown:
		w.inject(f, "%s", s.name)
		s.shutDown()
	default:
		w.inject(f, "%s", s.name)
		s.ends(f == Crash)
		w.restartLater(s)
	}
}

// single has the next few messages of one exchange lost or repeated.
func (w *world) single(f Fault, r *rand.Rand) {
	what := exchange(2 + r.IntN(int(exchanges)-2))
	n := 1 + r.IntN(6)
	w.inject(f, "the next %d: %v", n, what)
	h := &w.net.hurt[what]
	if f == LoseCall {
		h.lose += n
	} else {
		h.repeat += n
	}
}

// inStep has the next writer stand still between its last look and its write,
// or the next write at the resource, until everything that it believed may be
// wrong.
func (w *world) inStep(f Fault, long time.Duration) {
	w.say("planned %v: the next, for %v", f, long)
	if f == StopInStep {
		w.stepStops = append(w.stepStops, long)
	} else {
		w.stepHolds = append(w.stepHolds, long)
	}
}

// takeStop is how long the next one stands still; 0: not at all.
func takeStop(from *[]time.Duration) (long time.Duration) {
	if len(*from) > 0 {
		long, *from = (*from)[0], (*from)[1:]
	}
	return long
}

// freeze stops a client's machine as a hypervisor does: its clock does not
// count the time. (Worlds that have it are outside the bound of B10.)
func (w *world) freeze(c *client, long time.Duration) {
	if !c.up {
		return
	}
	w.inject(Freeze, "%s for %v", c.name, long)
	c.counts = false
	resume := c.halt(true)
	c.counts = true
	w.lasts(long, resume)
}

// jump lets a client's clock leap forward, as after a sleep that nobody else
// saw. (A server's cannot: CLOCK_MONOTONIC does not leap.)
func (w *world) jump(c *client, by time.Duration) {
	w.inject(Jump, "%s by %v", c.name, by)
	c.clock.turn(w.now, c.clock.skew, c.clock.still)
	c.clock.read += by
	c.steady = w.now
}

// leader is the server that leads in the highest term.
func (w *world) leader() (lead *server) {
	for _, s := range w.servers {
		if s.up && s.leading && (lead == nil || s.m.Role().Term > lead.m.Role().Term) {
			lead = s
		}
	}
	return lead
}

// partition cuts servers off from servers, in one direction or both.
func (w *world) partition(r *rand.Rand, long time.Duration) {
	oneWay, mask := r.IntN(3) == 0, r.IntN(1<<len(w.servers))
	w.inject(Partition, "%0*b for %v, one way %v", len(w.servers), mask, long, oneWay)
	for i, a := range w.servers {
		for j, b := range w.servers {
			if mask>>i&1 == 1 && mask>>j&1 == 0 {
				w.lasts(long, w.net.cut(&a.process, &b.process))
				if !oneWay {
					w.lasts(long, w.net.cut(&b.process, &a.process))
				}
			}
		}
	}
}

// hurtLink cuts a client off from some servers, or makes a link slow.
func (w *world) hurtLink(f Fault, c *client, s *server, r *rand.Rand, long time.Duration) {
	w.inject(f, "%s and %s for %v", c.name, s.name, long)
	if f == SlowLink {
		other := w.servers[r.IntN(len(w.servers))]
		by := between(r, 5*time.Millisecond, w.TTL/2)
		w.lasts(long, w.net.slow(&c.process, &s.process, by))
		w.lasts(long, w.net.slow(&s.process, &other.process, by))
		return
	}
	way := r.IntN(3)
	for _, s := range w.servers {
		if r.IntN(3) == 0 {
			continue
		}
		if way != 0 {
			w.lasts(long, w.net.cut(&c.process, &s.process))
		}
		if way != 1 {
			w.lasts(long, w.net.cut(&s.process, &c.process))
		}
	}
}

// hurtDisk makes a disk ill.
func (w *world) hurtDisk(f Fault, d *disk, r *rand.Rand, long time.Duration) {
	w.inject(f, "%s for %v", d.s.name, long)
	switch f {
	case DiskError: // of one kind of call, or of the next
		d.fail = pick(r, anyCall, anyCall, appends, votes, received, ownSnapshots, probes)
	case DiskFull:
		level := pick(r, lowSpace, lowSpace, noGrowth, noSpace)
		d.full[level]++
		w.lasts(long, func() { d.full[level]-- })
	case DiskSlow:
		by := between(r, time.Millisecond, w.TTL/3)
		d.slow += by
		w.lasts(long, func() { d.slow -= by })
	case DiskHang:
		d.hung++
		w.lasts(long, func() { d.hung-- })
	}
}

// stop makes a process stand still for a while.
func (w *world) stop(f Fault, p *process, long time.Duration, sleep bool) {
	w.inject(f, "%s for %v", p.name, long)
	w.lasts(long, p.halt(sleep))
}

// flap moves leadership again and again.
func (w *world) flap(r *rand.Rand, long time.Duration) {
	period := between(r, 2*w.Tick, w.TTL)
	w.inject(Flap, "every %v for %v", period, long)
	end := w.now + 3*long
	var again func()
	again = func() {
		if w.calm || w.now > end {
			return
		}
		if s := w.anyServer(r); s.up && s.still == 0 {
			if s.leading {
				s.handOver("a flap")
			} else {
				s.m.Campaign()
			}
			s.wake()
		}
		w.after(period, again)
	}
	again()
}

// overload lets every client want a lot at once.
func (w *world) overload(r *rand.Rand) {
	w.inject(Overload, "")
	for _, c := range w.clients {
		for range r.IntN(6) {
			if c.up && c.extra < 8 {
				c.extra++
				c.work()
			}
		}
	}
}
