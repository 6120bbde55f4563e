package sim

import (
	"maps"
	"testing"
	"testing/cryptotest"
	"time"

	"holdfast/fence"
	"holdfast/internal/watchdog"
	"holdfast/server/core"
)

// dullWorld is a healthy world, stopped at a moment at which somebody holds.
func dullWorld(t *testing.T) (*world, *hold) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 7)
	s := Draw(7)
	s.Rates, s.Skew, s.Servers, s.Clients, s.Locks = Rates{}, 0, 3, 6, 2
	s.TTL, s.Margin, s.Tick = 2*time.Second, 200*time.Millisecond, 50*time.Millisecond
	w := newWorld(s, nil)
	w.build()
	w.judge.watchOffice()
	for at := 10 * time.Second; at < 20*time.Second; at += 10 * time.Millisecond {
		w.run(at)
		for _, c := range w.clients {
			for _, x := range c.sessions {
				for _, h := range x.sortedHolds() {
					if h.believes() && x.opened < at-100*time.Millisecond {
						return w, h
					}
				}
			}
		}
	}
	t.Fatal("nobody holds anything for ten seconds")
	return nil, nil
}

// A story is what happens to a dull world, and who is to object.
type story struct {
	want Property
	do   func(w *world, h *hold)
}

const fine = Property("")

func late(w *world, by time.Duration) { w.judge.office.served += by }

// stories of promises to clients, and of what gates accept.
func storiesOfClients() map[string]story {
	return map[string]story{
		"nothing is wrong": {fine, func(w *world, _ *hold) { w.judge.due.all() }},
		"a session expires on which its client counts": {GivesUpFirst, func(w *world, h *hold) { w.judge.sessionExpired(h.s.id) }},
		"its client has died":                          {fine, func(w *world, h *hold) { h.s.c.crash(); w.judge.sessionExpired(h.s.id) }},
		"a grant ends under its holder":                {GivesUpFirst, func(w *world, h *hold) { w.judge.grantOver(core.Event{Grant: h.number}, false) }},
		"a revoke at once ends it":                     {fine, func(w *world, h *hold) { w.judge.grantOver(core.Event{Grant: h.number}, true) }},
		"a belief comes back": {GivesUpFirst, func(w *world, h *hold) {
			w.judge.clients.over[h.number] = core.CauseExpired
			w.judge.settled(h.s)
		}},
		"a session comes back": {GivesUpFirst, func(w *world, h *hold) {
			w.judge.ended[h.s.id] = w.now
			w.judge.settled(h.s)
		}},
		"a healthy session is told that it has ended": {Healthy, func(w *world, h *hold) { w.judge.sessionOver(h.s, watchdog.SessionEnded) }},
		"a healthy session is lost":                   {Healthy, func(w *world, h *hold) { h.s.opened = 0; w.judge.sessionOver(h.s, watchdog.Unreachable) }},
		"one whose client stood still": {fine, func(w *world, h *hold) {
			h.s.opened, h.s.c.steady = 0, w.now
			w.judge.sessionOver(h.s, watchdog.Unreachable)
		}},
		"one whose servers were ill": {fine, func(w *world, h *hold) {
			h.s.opened, w.judge.office.whole = 0, w.now
			w.judge.sessionOver(h.s, watchdog.Unreachable)
		}},
		"a write below what the gate was armed with": {WentBack, func(w *world, h *hold) {
			r := h.resource()
			w.judge.armed[r] = h.token.Number + 1
			w.judge.wrote(r, h, r.version)
		}},
		"a write that has not seen the last one": {LostUpdate, func(w *world, h *hold) { w.judge.wrote(h.resource(), h, h.resource().version-1) }},
		"two who believe": {TwoHolders, func(w *world, h *hold) {
			o := *h
			o.token = fence.Token{Slot: h.token.Slot, Number: h.token.Number + 1}
			w.judge.held = append(w.judge.held, h)
			w.judge.granted(&o, &want{request: watchdog.Request(w.judge.log.request[h.number].request)})
		}},
	}
}

// stories of servers, their clocks and disks.
func storiesOfServers() map[string]story {
	return map[string]story{
		"the log's clock outruns time": {ClockRuns, func(w *world, _ *hold) {
			w.judge.runs(w.leader().m.Role().Term, w.judge.log.clock+core.Clock(time.Hour))
		}},
		"it runs over a stall": {ClockRuns, func(w *world, _ *hold) {
			s := w.leader()
			w.now += 3 * time.Second
			s.stood = stood{long: s.stood.long + 3*time.Second, times: s.stood.times + 1}
			w.judge.runs(s.m.Role().Term, w.judge.log.clock+core.Clock(3*time.Second))
		}},
		"it runs while time passes": {fine, func(w *world, _ *hold) {
			w.now += 3 * time.Second
			w.judge.runs(w.leader().m.Role().Term, w.judge.log.clock+core.Clock(3*time.Second))
		}},
		"an expiry right after a stall": {Unread, func(w *world, h *hold) {
			s := w.leader()
			s.stalled = w.now
			w.judge.proposes(s, core.Expire{ID: h.s.id})
		}},
		"an expiry after the drain": {fine, func(w *world, h *hold) {
			s := w.leader()
			s.stalled, s.drained = w.now, w.now
			w.judge.proposes(s, core.Expire{ID: h.s.id})
		}},
		"an expiry, and a keepalive lies unread": {Unread, func(w *world, h *hold) {
			s := w.leader()
			s.socket = append(s.socket, message{call: callKeepalive, session: h.s.id, reached: w.now - time.Second})
			w.judge.proposes(s, core.Expire{ID: h.s.id})
		}},
		"an answer past a revoke in flight": {Untold, func(w *world, h *hold) {
			s := w.leader()
			s.flight = &flight{items: []proposal{{cmd: core.Revoke{Lock: h.lock.name, Grant: h.number}}}, since: w.now - time.Millisecond}
			w.judge.untold(s, message{session: h.s.id, read: w.now})
		}},
		"an answer to a call from before it": {fine, func(w *world, h *hold) {
			s := w.leader()
			s.flight = &flight{items: []proposal{{cmd: core.Revoke{Lock: h.lock.name, Grant: h.number}}}, since: w.now}
			w.judge.untold(s, message{session: h.s.id, read: w.now - time.Millisecond})
		}},
		"a node speaks while its disk hangs": {Speaks, func(w *world, _ *hold) {
			s := w.leader()
			s.outstanding = []time.Duration{s.time() - 20*time.Second}
			w.judge.speaks(s)
			w.now += time.Second
			w.judge.speaks(s)
		}},
	}
}

// stories of what is due.
func storiesOfBounds() map[string]story {
	return map[string]story{
		"a snapshot above the commit index": {SnapshotBehind, func(w *world, _ *hold) { w.judge.snapshotWritten(w.servers[0].disk, 1<<40) }},
		"a closing is forgotten": {Late, func(w *world, _ *hold) {
			w.judge.due.expect(dueReopen, "lock/0", 0, core.Clock(time.Second))
			late(w, 2*time.Second)
			w.judge.due.all()
		}},
		"a closing is reopened in time": {fine, func(w *world, _ *hold) {
			w.judge.due.expect(dueReopen, "lock/0", 0, core.Clock(time.Second))
			late(w, time.Second)
			w.judge.due.met(dueReopen, "lock/0", 0)
			late(w, time.Second)
			w.judge.due.all()
		}},
		"a dead session stays": {Immortal, func(w *world, h *hold) { late(w, 2*w.TTL); w.judge.outlived(h.s.id) }},
		"no tick": {Late, func(w *world, _ *hold) {
			w.judge.log.suspects, w.judge.log.entered = true, w.now-200*time.Millisecond
			w.judge.ticks()
		}},
		"no tick, and nobody is suspected": {fine, func(w *world, _ *hold) {
			w.judge.log.suspects, w.judge.log.entered = false, w.now-200*time.Millisecond
			w.judge.ticks()
		}},
		"as B7 counts":      {Immortal, func(w *world, h *hold) { w.judge.office.counted += 3 * w.TTL; w.judge.outlived(h.s.id) }},
		"not for that long": {fine, func(w *world, h *hold) { late(w, w.TTL); w.judge.outlived(h.s.id) }},
	}
}

// Each checker of promises and times objects to what breaks it, and says
// nothing about what only looks like that.
func TestPromisesAndTimes(t *testing.T) {
	all := storiesOfClients()
	maps.Copy(all, storiesOfServers())
	maps.Copy(all, storiesOfBounds())
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			w, h := dullWorld(t)
			c.do(w, h)
			got := fine
			for _, v := range w.judge.violations {
				if got = v.Property; got == c.want {
					break
				}
			}
			if got != c.want {
				t.Errorf("%v, want %q", w.judge.violations, c.want)
			}
		})
	}
}
