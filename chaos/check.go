package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// An entry is one write as the resource holds it.
type entry struct {
	version int64
	number  uint64
	name    string // of the write
}

// A grantEvent is what the service told a watcher about the beginning or the
// end of a grant.
type grantEvent struct {
	kind, cause, lock string
	number            uint64
}

// evidence is all that the judgement is made from.
type evidence struct {
	history *history
	// ledgers are the writes of each resource, in the order in which it took
	// them. What else was wrong when they were read back stands in problems.
	ledgers  map[string][]entry
	problems []string
	// events are those that a watcher was told; nil if it missed some.
	events []grantEvent
}

// A judge collects what is wrong.
type judge struct {
	violations []violation
	undecided  []string
}

// A violation is one thing that must not be.
type violation struct{ check, what string }

func (j *judge) object(check, format string, args ...any) {
	j.violations = append(j.violations, violation{check, fmt.Sprintf(format, args...)})
}

// judgeAll runs every check but that of linearizability, which takes its time.
func (e *evidence) judgeAll(j *judge) {
	e.tokensRise(j)
	e.believers(j)
	e.ledgersHold(j)
	e.grantsAreKnown(j)
	for _, p := range e.problems {
		j.object("ledger", "%s", p)
	}
}

// tokensRise checks that each number was granted once, and that a try that
// began after another had its grant gets a higher one, whatever the locks.
func (e *evidence) tokensRise(j *judge) {
	byNumber := map[uint64]*hold{}
	var asked, granted []*hold
	for _, o := range e.history.holds {
		if o.granted == 0 {
			continue
		}
		if other := byNumber[o.number]; other != nil {
			j.object("tokens rise", "number %d was granted twice: %s and %s", o.number, other.op, o.op)
		}
		byNumber[o.number] = o
		asked, granted = append(asked, o), append(granted, o)
	}
	slices.SortFunc(asked, func(a, b *hold) int { return cmp.Compare(a.asked, b.asked) })
	slices.SortFunc(granted, func(a, b *hold) int { return cmp.Compare(a.granted, b.granted) })
	var highest *hold
	next := 0
	for _, o := range asked {
		for next < len(granted) && granted[next].granted < o.asked {
			if highest == nil || granted[next].number > highest.number {
				highest = granted[next]
			}
			next++
		}
		if highest != nil && o.number <= highest.number {
			j.object("tokens rise", "%s asked after %s had number %d, and got %d", o.op, highest.op, highest.number, o.number)
		}
	}
}

// belief is how long a client was entitled to believe that it holds: from the
// grant to the last deadline that it noted, or to its release.
func (o *hold) belief() (from, to int64) {
	to = o.until
	if o.release != 0 {
		to = min(to, o.release)
	}
	return o.granted, to
}

// believers checks that no two clients were entitled to believe in the same
// lock at the same instant. The clocks are one, so nothing excuses that.
func (e *evidence) believers(j *judge) {
	byLock := map[string][]*hold{}
	for _, o := range e.history.holds {
		if from, to := o.belief(); o.granted != 0 && to > from {
			byLock[o.lock] = append(byLock[o.lock], o)
		}
	}
	for lock, all := range byLock {
		slices.SortFunc(all, func(a, b *hold) int { return cmp.Compare(a.granted, b.granted) })
		var last *hold
		var until int64 = math.MinInt64
		for _, o := range all {
			from, to := o.belief()
			if from < until {
				j.object("one believer", "%s: %s (number %d) was granted %.1f ms before %s (number %d) gives up", lock, o.op, o.number, float64(until-from)/1e6, last.op, last.number)
			}
			if to > until {
				last, until = o, to
			}
		}
	}
}

// ledgersHold checks the resources: no write below an accepted one, no lost
// update, no acknowledged write missing, no refused one there.
func (e *evidence) ledgersHold(j *judge) {
	found := map[string]int64{}
	for lock, all := range e.ledgers {
		for i, w := range all {
			if at, twice := found[w.name]; twice {
				j.object("ledger", "%s: the write %s is there twice, as version %d and %d", lock, w.name, at, w.version)
			}
			found[w.name] = w.version
			if known := e.history.byWrite[w.name]; known == nil || known.number != w.number || known.version != w.version || known.lock != lock {
				j.object("ledger", "%s: nobody began the write %+v", lock, w)
			}
			if i == 0 {
				continue
			}
			if before := all[i-1]; w.number < before.number {
				j.object("stale write accepted", "%s: %s with number %d came after %s with %d", lock, w.name, w.number, before.name, before.number)
			}
			if before := all[i-1]; w.version != before.version+1 {
				j.object("lost update", "%s: %s made version %d of what %s had made %d", lock, w.name, w.version, before.name, before.version)
			}
		}
	}
	for name, w := range e.history.byWrite {
		_, there := found[name]
		switch {
		case w.result == resultDone && !there:
			j.object("lost update", "%s: the write %s was acknowledged and is not there", w.lock, name)
		case (w.result == resultRefused || w.result == resultFailed) && there:
			j.object("ledger", "%s: the write %s was %s and is there", w.lock, name, w.result)
		}
	}
}

// grantsAreKnown checks that each grant that a client was told is one of which
// the service told its watcher.
func (e *evidence) grantsAreKnown(j *judge) {
	if e.events == nil {
		return
	}
	known := map[uint64]string{}
	for _, ev := range e.events {
		if ev.kind != "granted" {
			continue
		}
		if _, twice := known[ev.number]; twice {
			j.object("grants", "the watcher was told of grant %d twice", ev.number)
		}
		known[ev.number] = ev.lock
	}
	for _, o := range e.history.holds {
		if o.granted != 0 && known[o.number] != o.lock {
			j.object("grants", "%s was granted %s with number %d, of which the watcher knows %q", o.op, o.lock, o.number, known[o.number])
		}
	}
}
