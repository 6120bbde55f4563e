package server

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/replica"
)

// diskJob is one call of the store.
type diskJob struct {
	append   *replica.Append
	snapshot *raftpb.Snapshot
	probe    bool
	space    bool
	since    time.Duration // when the loop handed it over
}

// diskResult is a job that was done.
type diskResult struct {
	diskJob
	err           error
	took          time.Duration
	free, reserve uint64 // for space
}

// disk is the one goroutine that calls the store (D1): a disk that hangs hangs
// it, and the loop goes on and notices.
type disk struct {
	store replica.Storage
	wake  func() // tells the loop that there are results
	now   func() time.Duration
	work  chan struct{} // has room for one value: look at jobs
	ended chan struct{}

	failed error // of a write; only the goroutine looks

	mu struct {
		sync.Mutex
		jobs    []diskJob
		results []diskResult
		quit    bool
		closed  error // of the store's Close
	}
}

func startDisk(store replica.Storage, now func() time.Duration, wake func()) *disk {
	d := &disk{store: store, wake: wake, now: now, work: make(chan struct{}, 1), ended: make(chan struct{})}
	go d.run()
	return d
}

// push hands a job over; it never waits.
func (d *disk) push(j diskJob) {
	d.mu.Lock()
	d.mu.jobs = append(d.mu.jobs, j)
	d.mu.Unlock()
	select {
	case d.work <- struct{}{}:
	default:
	}
}

// results takes what was done since the last call, in order.
func (d *disk) results() []diskResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.mu.results
	d.mu.results = nil
	return r
}

// close lets the goroutine finish its jobs, close the store, and end.
func (d *disk) close() {
	d.mu.Lock()
	d.mu.quit = true
	d.mu.Unlock()
	select {
	case d.work <- struct{}{}:
	default:
	}
}

func (d *disk) run() {
	defer close(d.ended)
	for range d.work {
		for {
			d.mu.Lock()
			jobs, quit := d.mu.jobs, d.mu.quit
			d.mu.jobs = nil
			d.mu.Unlock()
			if len(jobs) == 0 {
				if quit {
					err := d.store.Close()
					d.mu.Lock()
					d.mu.closed = err
					d.mu.Unlock()
					return
				}
				break
			}
			d.do(jobs)
			d.wake()
		}
	}
}

// do runs jobs in order; batches that follow each other share one write.
func (d *disk) do(jobs []diskJob) {
	for i := 0; i < len(jobs); {
		j, last := jobs[i], i
		for j.append != nil && last+1 < len(jobs) && jobs[last+1].append != nil {
			joined, ok := j.append.Merge(*jobs[last+1].append)
			if !ok {
				break
			}
			j.append, last = &joined, last+1
		}
		r := d.call(j)
		d.mu.Lock()
		for k := i; k <= last; k++ {
			if k < last { // answered with the one that has all of it
				d.mu.results = append(d.mu.results, diskResult{diskJob: diskJob{since: jobs[k].since}, err: r.err})
			} else {
				d.mu.results = append(d.mu.results, r)
			}
		}
		d.mu.Unlock()
		i = last + 1
	}
}

func (d *disk) call(j diskJob) diskResult {
	r := diskResult{diskJob: j, err: d.failed}
	if r.err != nil {
		return r // D3: no further call
	}
	start := d.now()
	switch {
	case j.append != nil:
		r.err = d.store.Append(j.append.HardState, j.append.Entries, j.append.Snapshot)
	case j.snapshot != nil:
		r.err = d.store.SaveSnapshot(j.snapshot)
	case j.probe:
		r.err = d.store.Probe()
	case j.space:
		r.free, r.reserve, r.err = d.store.Space()
	}
	r.took = d.now() - start
	if j.append != nil && r.err == nil {
		j.append.Decode() // a received snapshot: here, and not on the loop
	}
	if !j.space {
		d.failed = r.err
	}
	return r
}
