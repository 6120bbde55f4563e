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
	s := w.servers[r.IntN(len(w.servers))]
	c := w.clients[r.IntN(len(w.clients))]
	if lead := w.leader(); lead != nil && r.IntN(2) == 0 {
		s = lead // the one whom it hurts
	}
	long := between(r, w.TTL/10, 5*w.TTL)
	switch f {
	case Partition:
		w.partition(r, long)
	case CutClient, SlowLink:
		w.hurtLink(f, c, s, r, long)
	case Crash:
		w.inject(f, "%s", s.name)
		s.crash()
		w.restartLater(s)
	case CrashAll:
		w.inject(f, "all servers")
		for _, s := range w.servers {
			s.crash()
			w.restartLater(s)
		}
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
	case Sleep:
		p := &s.process
		if r.IntN(2) == 0 {
			p = &c.process
		}
		w.stop(f, p, long, true)
	case Rate:
		p := &s.process
		if r.IntN(2) == 0 {
			p = &c.process
		}
		skew := w.drawSkew(r.IntN)
		w.inject(f, "%s: %+d ppm", p.name, skew)
		p.clock.turn(w.now, skew, p.clock.still)
		p.steady = w.now
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
	case RevokeNow, RevokeAsk:
		w.revoke(f, r)
	}
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
	case DiskError:
		d.fail = true
	case DiskFull:
		d.full = true
		w.lasts(long, func() { d.full = false })
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
		if s := w.servers[r.IntN(len(w.servers))]; s.up && s.still == 0 {
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
