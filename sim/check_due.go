package sim

import (
	"slices"
	"time"

	"holdfast/server/core"
)

// A dueKind is what the service must do within a time of its own.
type dueKind uint8

const (
	dueReopen dueKind = iota // a closed lock
	dueMark                  // ask for a grant whose maximum hold is reached
	dueFree                  // free a grant that was asked for
)

var dueNames = [...]string{"reopen", "ask for the grant on", "free the grant on"}

// dues are what the service must still do, and how long it was led by somebody
// whose office counts when it began to run.
type dues struct {
	j    *judge
	open []dueItem // in the order of their beginning
}

type dueItem struct {
	kind   dueKind
	lock   string
	grant  uint64
	served time.Duration // of offices, when it began
	office int           // how many there had been
	within time.Duration
}

func newDues(j *judge) *dues { return &dues{j: j} }

// expect says that something is due within a time on the clock; of two about
// the same thing the later one counts.
func (d *dues) expect(kind dueKind, lock string, grant uint64, within core.Clock) {
	d.drop(kind, lock, grant)
	d.j.sampleOffice()
	d.open = append(d.open, dueItem{kind, lock, grant, d.j.office.served, d.j.office.offices, time.Duration(within)})
}

// met says that it was done, or is not due any more.
func (d *dues) met(kind dueKind, lock string, grant uint64) {
	d.j.sampleOffice()
	for _, i := range d.open {
		if i.kind == kind && i.lock == lock && i.grant == grant {
			d.check(i)
		}
	}
	d.drop(kind, lock, grant)
}

func (d *dues) drop(kind dueKind, lock string, grant uint64) {
	d.open = slices.DeleteFunc(d.open, func(i dueItem) bool { return i.kind == kind && i.lock == lock && i.grant == grant })
}

// check objects if it is late (B7 says how time without a leader counts). Each
// office takes with it what its clock ran since the latest tick of the log (B6).
func (d *dues) check(i dueItem) {
	w := d.j.w
	lost := time.Duration(d.j.office.offices-i.office) * max(w.TTL/32, 100*time.Millisecond)
	if took := d.j.office.served - i.served; took > i.within+w.late(i.within)+lost && !w.garbled() {
		d.j.object(Late, "to %s %s (grant %d) was due within %v of a leader's time, and has taken %v", dueNames[i.kind], i.lock, i.grant, i.within, took)
	}
}

// all checks what is still open.
func (d *dues) all() {
	d.j.sampleOffice()
	for _, i := range d.open {
		d.check(i)
	}
}

// late is by how much a leader may be late with what is due within a time: its
// clock may run slow, a tick of the log may get lost with its predecessor (B6),
// it takes turns, and an entry takes its way.
func (w *world) late(within time.Duration) time.Duration {
	logTick := max(w.TTL/32, 100*time.Millisecond)
	return within*time.Duration(w.Skew)/1_000_000*11/10 + logTick + 2*w.Tick + 50*time.Millisecond
}

// ticks checks that the clock reaches the log while a session is suspected: a
// leader in office lets no more time pass between two entries (B6).
func (j *judge) ticks() {
	w, o := j.w, &j.office
	gap := w.now - j.log.entered
	every := max(w.TTL/32, 100*time.Millisecond)
	if limit := every + every*time.Duration(w.Skew)/1_000_000*11/10 + 60*time.Millisecond; gap <= limit || !j.log.suspects {
		return
	}
	if o.good && o.stretch >= gap && w.Rates[Delay] == 0 && !w.garbled() {
		j.object(Late, "nothing was logged for %v, and a session is suspected (B6)", gap)
	}
}

// entered notes that an entry was applied first.
func (j *judge) entered() {
	j.sampleOffice()
	j.ticks()
	j.log.entered, j.log.suspects = j.w.now, false
	for _, x := range j.audit.sessions { // in any order: is there one?
		if j.log.suspects = x.suspected; x.suspected {
			break
		}
	}
}

// garbled reports that so many messages are late or lost that a leader may be
// in office and get nothing committed: no bound is checked there.
func (w *world) garbled() bool { return w.Rates[Drop]+w.Rates[Delay] > 2000 }
