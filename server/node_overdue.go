package server

import (
	"fmt"
	"time"

	"holdfast/server/lease"
)

// overdue is the watch over sessions that are long past their deadline and do
// not end (C78 of the casebook).
type overdue struct {
	watch lease.Watch
	now   lease.Overdue // what the latest round found
}

// watchOverdue looks at some more sessions, at every tick. The alarm is a line
// in the log when it begins and another when it is over, and a metric.
func (l *loop) watchOverdue() {
	o := &l.overdue
	found, done := o.watch.Step(l.n.now(), l.lease, l.m.State())
	if !done {
		return
	}
	before := o.now
	o.now = found
	l.n.met.overdue.Set(float64(found.Sessions))
	switch {
	case found.Sessions > 0 && before.Sessions == 0:
		l.log.Error("ALARM: sessions do not end though they are long past their deadline",
			"sessions", found.Sessions, "one", fmt.Sprintf("%016x", uint64(found.Worst)), "past", found.Past.Round(time.Millisecond).String())
	case found.Sessions == 0 && before.Sessions > 0:
		l.log.Info("no session is long past its deadline any more")
	}
}
