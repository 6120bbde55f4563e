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

// What a failing disk says.
var (
	errDisk  = errors.New("input/output error")
	errSpace = errors.New("no space left on device")
)

// How full a disk is: below the watermark; below half of it, where even a
// follower takes no entries; and without any room, where a write fails.
const (
	lowSpace = 1 + iota
	noGrowth
	noSpace
)

// fullness counts, by how little space there is, the reasons for it.
type fullness [noSpace + 1]int

// level is how little space there is.
func (f *fullness) level() int {
	for level := noSpace; level > 0; level-- {
		if f[level] > 0 {
			return level
		}
	}
	return 0
}

// A disk is what a server has durable, and the calls that wait for it. It does
// one call at a time, in order (D1).
//
// What can be lost: of the calls that were not answered when the machine dies,
// and of the last one's entries, all but a prefix; a commit index that was
// written without a sync (as the real log does when a batch has nothing else);
// and, after a failed call, what was written then and is read well until the
// machine dies, unless the next start made it durable (D3). A process that
// dies alone loses nothing that it wrote. What cannot happen here and can on a
// real disk, bytes that change or a sector that is torn, is the business of
// package store, which refuses them by name: here such a disk has lost all, a
// fault of its own (Wipe).
type disk struct {
	s   *server
	rng *rand.Rand

	hard    *raftpb.HardState // synced
	soft    *raftpb.HardState // written
	snap    *raftpb.Snapshot
	entries []*raftpb.Entry // behind snap
	// unsure is the index above which entries were written by a call that
	// failed: they may be in the page cache alone. 0: none.
	unsure uint64

	jobs    []job
	busy    bool
	broken  bool // a call failed: no further one is made (D3)
	stopped bool // the store was closed
	done    []job

	full fullness      // a fault: how little space there is
	slow time.Duration // a fault: added to each call
	lags bool          // the call under way began when it was slow
	hung int           // a fault: no call returns
	fail callKinds     // a fault: the next call of these kinds fails
}

// A job is one call of the store.
type job struct {
	append   *replica.Append
	snapshot *raftpb.Snapshot
	probe    bool
	space    bool
	full     int           // the answer to space
	merged   int           // how many before it are done with it
	nothing  bool          // its end was told before it came
	since    time.Duration // by the server's clock
	err      error
}

// callKinds are calls of the store, one bit each.
type callKinds uint8

const (
	appends callKinds = 1 << iota
	votes             // appends with a new term or vote
	received
	ownSnapshots
	probes
	anyCall callKinds = 1<<iota - 1
)

// kinds are those of a call.
func (d *disk) kinds(j job) callKinds {
	switch {
	case j.space:
		return 0
	case j.probe:
		return probes
	case j.snapshot != nil:
		return ownSnapshots
	case j.append.Snapshot != nil:
		return received
	case d.syncs(j.append.HardState):
		return appends | votes
	}
	return appends
}

// syncs reports whether a hard state must be synced: a commit index alone need
// not be.
func (d *disk) syncs(hs *raftpb.HardState) bool {
	return hs != nil && (hs.GetTerm() != d.soft.GetTerm() || hs.GetVote() != d.soft.GetVote())
}

// push hands a call over.
func (d *disk) push(j job) {
	switch {
	case j.append != nil && planted.On("D1-append-before-sync"):
		j = d.answerEarly(j)
	case j.snapshot != nil && planted.On("D4-snapshot-beside-the-log"):
		d.write(j)
		d.done = append(d.done, j)
		d.s.wake()
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
		merged := d.jobs[0].merged + 1
		d.jobs = d.jobs[1:]
		d.jobs[0].append, d.jobs[0].merged = &joined, merged
	}
	d.busy, d.lags = true, d.slow > 0
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
	d.busy, d.lags = false, false
	kinds := d.kinds(j)
	switch {
	case j.space:
		j.full = d.full.level()
	case d.broken:
		j.err = errDisk
	case d.fail&kinds != 0 && planted.On("D3-error-ignored"):
		d.fail = 0
		d.part(j)
	case d.fail&kinds != 0:
		d.fail, d.broken, j.err = 0, true, errDisk
	case d.full.level() == noSpace && kinds&probes == 0 && (j.append == nil || len(j.append.Entries) > 0):
		d.broken, j.err = true, errSpace
	default:
		d.write(j)
	}
	if j.err != nil && kinds&appends != 0 {
		d.fails(j)
	}
	d.done = append(d.done, j)
	d.work()
	d.s.wake()
}

// fails writes what a call that failed may have written: into the page cache
// alone, perhaps, from which the next start reads it.
func (d *disk) fails(j job) {
	if a := j.append; a.Snapshot == nil && len(a.Entries) > 0 {
		at := max(min(d.last(), a.Entries[0].GetIndex()-1), d.snap.GetMetadata().GetIndex())
		if d.unsure == 0 || at < d.unsure {
			d.unsure = at
		}
	}
	d.part(j)
}

// last is the index of the last entry.
func (d *disk) last() uint64 { return d.snap.GetMetadata().GetIndex() + uint64(len(d.entries)) }

// renew makes durable, at a start, what is read (D3).
func (d *disk) renew() {
	if !planted.On("D3-no-renewal") {
		d.unsure, d.hard = 0, d.soft
	}
}

// write makes a call durable.
func (d *disk) write(j job) {
	switch {
	case j.append != nil:
		a := j.append
		sync := len(a.Entries) > 0 || a.Snapshot != nil || d.syncs(a.HardState)
		if a.Snapshot != nil {
			d.snap, d.entries = a.Snapshot, nil
		}
		d.add(a.Entries)
		if a.HardState != nil {
			d.soft = d.kept(a)
		}
		if sync {
			d.hard = d.soft
		}
	case j.snapshot != nil:
		d.save(j.snapshot)
	}
}

// save makes a snapshot of the own state durable. Its record in the log is
// synced, and with it what stands before it.
func (d *disk) save(snap *raftpb.Snapshot) {
	i := snap.GetMetadata().GetIndex()
	d.hard = d.soft
	if d.s.w.judge.snapshotWritten(d, i); d.s.w.stopped {
		return
	}
	if have := d.snap.GetMetadata().GetIndex(); i > have {
		d.entries = slices.Clone(d.entries[i-have:])
		d.snap = snap
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
		if at == uint64(len(d.entries)) {
			d.entries = append(d.entries, e)
		} else {
			d.entries = append(d.entries[:at:at], e) // a server that starts may read what stood there
		}
		if e.GetIndex() <= d.unsure {
			d.unsure = 0 // written anew
		}
	}
}

// part writes what a call that did not return may have written: a prefix. The
// hard state stands behind the entries.
func (d *disk) part(j job) {
	a := j.append
	if a == nil || a.Snapshot != nil {
		return
	}
	n := d.rng.IntN(len(a.Entries) + 1)
	d.add(a.Entries[:n])
	if n == len(a.Entries) && a.HardState != nil && d.rng.IntN(2) == 0 {
		d.soft = a.HardState
	}
}

// crash is the death of the server: of the calls that were not answered any
// prefix is durable, and if its machine died as well, what was not synced may
// be lost.
func (d *disk) crash(power bool) {
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
	if power && !d.stopped {
		d.loseUnsynced()
	}
	d.lags = false
	d.jobs, d.done, d.busy, d.broken, d.stopped, d.fail = nil, nil, false, false, false, 0
}

// loseUnsynced is a loss of power.
func (d *disk) loseUnsynced() {
	if d.rng.IntN(2) == 0 {
		d.soft = d.hard
	}
	if base := d.snap.GetMetadata().GetIndex(); d.unsure > 0 && d.unsure >= base && d.unsure < d.last() {
		d.entries = d.entries[:d.unsure-base]
	}
	d.unsure, d.hard = 0, d.soft
}
