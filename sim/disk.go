package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/planted"
	"holdfast/server/replica"
)

// errDisk is what a failing disk says.
var errDisk = errors.New("input/output error")

// A disk is what a server has durable, and the calls that wait for it. It does
// one call at a time, in order (D1). What was handed over and not answered when
// its server dies is durable as far as any prefix.
type disk struct {
	s   *server
	rng *rand.Rand

	hard    *raftpb.HardState
	snap    *raftpb.Snapshot
	entries []*raftpb.Entry // behind snap

	jobs   []job
	busy   bool
	broken bool // a call failed: no further one is made (D3)
	done   []job

	full bool          // a fault: no space
	slow time.Duration // a fault: added to each call
	hung int           // a fault: no call returns
	fail bool          // a fault: the next call fails
}

// A job is one call of the store.
type job struct {
	append   *replica.Append
	snapshot *raftpb.Snapshot
	probe    bool
	since    time.Duration // by the server's clock
	err      error
	nothing  bool // it was merged into the next one
}

// push hands a call over.
func (d *disk) push(j job) {
	switch {
	case j.append != nil && planted.On("D1-append-before-sync"):
		j = d.answerEarly(j)
	case j.snapshot != nil && planted.On("D4-snapshot-overtakes"):
		d.jobs = slices.Insert(d.jobs, min(1, len(d.jobs)), j)
		d.work()
		return
	}
	d.jobs = append(d.jobs, j)
	d.work()
}

// work begins the next call. Batches that follow each other are one.
func (d *disk) work() {
	if d.busy || len(d.jobs) == 0 {
		return
	}
	for len(d.jobs) > 1 && d.jobs[0].append != nil && d.jobs[1].append != nil {
		joined, ok := d.jobs[0].append.Merge(*d.jobs[1].append)
		if !ok {
			break
		}
		d.done = append(d.done, job{nothing: true, since: d.jobs[0].since})
		d.jobs = d.jobs[1:]
		d.jobs[0].append = &joined
	}
	d.busy = true
	life := d.s.life
	d.s.w.after(between(d.rng, 30*time.Microsecond, 500*time.Microsecond)+d.slow, func() { d.finish(life) })
}

// finish ends the call under way.
func (d *disk) finish(life uint64) {
	if d.s.life != life || !d.s.up {
		return
	}
	if d.hung > 0 { // look again later
		d.s.w.after(5*time.Millisecond, func() { d.finish(life) })
		return
	}
	j := d.jobs[0]
	d.jobs = d.jobs[1:]
	d.busy = false
	switch {
	case d.broken:
		j.err = errDisk
	case d.fail && planted.On("D3-error-ignored"):
		d.fail = false
		d.part(j)
	case d.fail:
		d.fail, d.broken, j.err = false, true, errDisk
		d.part(j)
	default:
		d.write(j)
	}
	d.done = append(d.done, j)
	d.work()
	d.s.wake()
}

// write makes a call durable.
func (d *disk) write(j job) {
	switch {
	case j.append != nil:
		a := j.append
		if a.Snapshot != nil {
			d.snap, d.entries = a.Snapshot, nil
		}
		d.add(a.Entries)
		if a.HardState != nil {
			d.hard = d.kept(a)
		}
	case j.snapshot != nil:
		i := j.snapshot.GetMetadata().GetIndex()
		if have := d.snap.GetMetadata().GetIndex(); i > have {
			d.entries = slices.Clone(d.entries[i-have:])
			d.snap = j.snapshot
		}
	}
}

// add appends entries to the log, in place of those that they contradict.
func (d *disk) add(entries []*raftpb.Entry) {
	base := d.snap.GetMetadata().GetIndex()
	for _, e := range entries {
		if e.GetIndex() <= base {
			continue
		}
		at := e.GetIndex() - base - 1
		if at > uint64(len(d.entries)) {
			d.s.w.judge.object(GapInLog, "%s: entry %d after %d", d.s.name, e.GetIndex(), base+uint64(len(d.entries)))
			return
		}
		d.entries = append(d.entries[:at:at], e)
	}
}

// part writes what a call that did not return may have written: a prefix.
func (d *disk) part(j job) {
	a := j.append
	if a == nil || a.Snapshot != nil || len(a.Entries) == 0 {
		return
	}
	d.add(a.Entries[:d.rng.IntN(len(a.Entries)+1)])
}

// crash is the death of the server: of the calls that were not answered any
// prefix is durable.
func (d *disk) crash() {
	if planted.On("D4-log-cut-first") {
		d.cutEarly()
	}
	keep := 0
	if !d.broken && len(d.jobs) > 0 {
		keep = d.rng.IntN(len(d.jobs) + 1)
	}
	for i, j := range d.jobs {
		if i < keep {
			d.write(j)
		} else if i == keep && !d.broken {
			d.part(j)
		}
	}
	d.jobs, d.done, d.busy, d.broken, d.fail = nil, nil, false, false, false
}
