//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/engine/cluster"
)

// A workerSpec says what a client process is to do.
type workerSpec struct {
	Name, Notes          string // Notes is the file for its records
	Endpoints            string
	Certs                string // directory; its own certificate is called as Site
	Site                 string
	DSN, Dir             string // of the ledgers
	Locks                []string
	TTL                  time.Duration
	Gated                bool
	Seed                 uint64
	AcquireTimeout, Last time.Duration // Last: how long it may take to end
}

// A worker is a client process: one client of the service, and one goroutine a
// lock.
type worker struct {
	workerSpec
	client *cluster.Client
	notes  *os.File
	mu     sync.Mutex // of notes
}

// runWorker works until it is told to end.
func runWorker(text string) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(text), &w.workerSpec); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	if w.notes, err = os.OpenFile(w.Notes, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return err
	}
	defer w.notes.Close()
	set, err := openCerts(w.Certs, w.Site)
	if err != nil {
		return err
	}
	db, err := sql.Open("pgx", w.DSN)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(6)
	if w.client, err = w.dial(ctx, &cluster.Options{TTL: w.TTL, Label: w.Name, TLSNow: set.Client, Clock: clock}); err != nil {
		return err
	}
	var all sync.WaitGroup
	fails := make(chan error, len(w.Locks))
	for i, lock := range w.Locks {
		all.Go(func() { fails <- w.task(ctx, db, i, lock) })
	}
	all.Wait()
	close(fails)
	for e := range fails {
		err = errors.Join(err, e)
	}
	last, cancel := context.WithTimeout(context.Background(), w.Last)
	defer cancel()
	_ = w.client.Close(last) // what is left ends with its session
	return err
}

// dial tries until a server answers: they may all be out of reach.
func (w *worker) dial(ctx context.Context, o *cluster.Options) (*cluster.Client, error) {
	for {
		c, err := cluster.Dial(ctx, w.Endpoints, o)
		if err == nil {
			return c, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, err
		}
	}
}

// note writes a record, in one call of the system, so that a kill leaves it
// whole or not at all.
func (w *worker) note(r record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r.At = now()
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.notes.Write(append(line, '\n'))
	return err
}

// A task is one goroutine of a worker, on one lock.
type task struct {
	*worker
	name, lock string
	ledger     ledger
	rng        *rand.Rand
	tries      int
}

func (w *worker) task(ctx context.Context, db *sql.DB, i int, lock string) (err error) {
	t := &task{worker: w, name: fmt.Sprintf("%s/%d", w.Site, i), lock: lock, rng: rand.New(rand.NewPCG(w.Seed, uint64(i)))}
	for t.ledger == nil {
		if isFile(lock) {
			t.ledger, err = opened(openFile(ctx, w.Dir, lock, w.Gated))
		} else {
			t.ledger, err = opened(openPostgres(ctx, db, lock, w.Gated))
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil { // the bound is short, and many begin at once
			fmt.Fprintln(os.Stderr, lock, err)
			pause(ctx, 100*time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		if err := t.try(ctx); err != nil {
			return err
		}
		if t.rng.IntN(4) == 0 {
			if err := t.look(ctx); err != nil {
				return err
			}
		}
		pause(ctx, time.Duration(t.rng.IntN(60))*time.Millisecond)
	}
	return nil
}

// opened makes a ledger of one that was opened without an error.
func opened[L ledger](l L, err error) (ledger, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// try takes the lock once and writes under it.
func (t *task) try(ctx context.Context) error {
	t.tries++
	op := fmt.Sprintf("%s/%s/%d", t.Name, t.lock, t.tries)
	r := record{Op: op, Task: t.name, Lock: t.lock}
	note := func(kind string, with func(*record)) error {
		n := r
		n.Kind = kind
		if with != nil {
			with(&n)
		}
		return t.note(n)
	}
	if err := note(kindAcquire, nil); err != nil {
		return err
	}
	var opts []holdfast.AcquireOption
	if g := t.ledger.gate(); g != nil {
		opts = append(opts, holdfast.Arm(g))
	}
	asking, cancel := context.WithTimeout(ctx, t.AcquireTimeout)
	g, err := t.client.Acquire(asking, t.lock, cluster.AcquireOptions{}, opts...)
	cancel()
	if err != nil {
		return note(kindFailed, func(n *record) { n.Text = err.Error() })
	}
	held := func(n *record) { n.Number, n.Until = g.Token().Number, believes(g) }
	if err := note(kindGranted, held); err != nil {
		return err
	}
	if err := t.work(op, g, note); err != nil {
		return err
	}
	if err := note(kindRelease, held); err != nil {
		return err
	}
	err = g.Release(context.Background())
	return note(kindReleased, func(n *record) { n.Number, n.Result, n.Text = g.Token().Number, released(err), text(err) })
}

// believes is the client's deadline, if it has not given up yet.
func believes(g *holdfast.Grant) int64 {
	until := int64(g.Deadline())
	if s := g.State(); s != holdfast.StateHeld && s != holdfast.StateJeopardy {
		return 0
	}
	return until
}

func released(err error) string {
	if err == nil {
		return resultDone
	}
	return resultUnknown
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// work reads, thinks and writes, one to three times. It does not look whether
// it still holds the lock: that is the gate's part, and a client that is
// stopped between the look and the write would have looked in vain.
func (t *task) work(op string, g *holdfast.Grant, note func(string, func(*record)) error) error {
	token := g.Token()
	for i := range 1 + t.rng.IntN(3) {
		ctx, cancel := context.WithTimeout(context.Background(), t.AcquireTimeout)
		version, err := t.ledger.read(ctx)
		if err != nil {
			cancel()
			return nil // the resource was not reached: nothing is written
		}
		pause(ctx, time.Duration(t.rng.IntN(80))*time.Millisecond)
		e := entry{version: version + 1, number: token.Number, name: fmt.Sprintf("%s/%d", op, i)}
		err = note(kindWrite, func(n *record) {
			n.Write, n.Version, n.Number, n.Until = e.name, e.version, e.number, believes(g)
		})
		if err != nil {
			cancel()
			return err
		}
		failed := t.ledger.write(ctx, token, e)
		cancel()
		err = note(kindWrote, func(n *record) {
			n.Write, n.Number, n.Result, n.Text = e.name, e.number, verdict(failed), text(failed)
		})
		if err != nil || failed != nil {
			return err
		}
	}
	return nil
}

// look reads who holds the lock.
func (t *task) look(ctx context.Context) error {
	t.tries++
	r := record{Op: fmt.Sprintf("%s/%s/%d", t.Name, t.lock, t.tries), Task: t.name, Lock: t.lock, Kind: kindGet}
	if err := t.note(r); err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, t.TTL)
	defer cancel()
	l, err := t.client.Get(asking, t.lock, cluster.GetOptions{})
	r.Kind, r.Result = kindGot, resultDone
	switch {
	case err == nil && len(l.Holders) == 1:
		r.Number = l.Holders[0].Token.Number
	case err == nil || driver.KindOf(err) == driver.NotFound:
	default:
		r.Result, r.Text = resultUnknown, err.Error()
	}
	return t.note(r)
}
