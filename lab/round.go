package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/lab/stage"
	"holdfast/server"
)

const (
	// lockName is what every world is about.
	lockName = "invoices"
	// earlierRuns is how many honest runs there were before a round begins,
	// and earlierName who made them.
	earlierRuns = 32
	earlierName = "earlier"
	// earlierShown is how many of their lines the page shows.
	earlierShown = 3
	// beginWithin bounds the beginning of a round.
	beginWithin = 20 * time.Second
)

// A round is one service, one ledger and two workers, from their beginning to
// their end. What is heard of a round that is over is dropped.
type round struct {
	lab      *Lab
	number   int
	settings settings
	dir      string
	over     context.Context // ends with the round
	end      context.CancelFunc

	server    *server.Server
	client    *cluster.Client // the lab's own line to the service
	transport *http.Transport // the page's
	ledger    *stage.Ledger
	revision  uint64 // of the service, when the round began
	lastToken uint64
	earlier   []stage.Line

	// Only the world's goroutine touches these.
	seats     map[string]*seat
	comparing bool
	turning   *errand // the switch is being turned
}

// newRound begins a round in a directory of its own: a fresh service, 32
// honest runs, two fresh workers. Nobody hears of it yet.
func newRound(ctx context.Context, l *Lab, dir string, number int, s settings) (_ *round, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	r := &round{lab: l, number: number, settings: s, dir: dir, comparing: s.compare, seats: map[string]*seat{}}
	r.over, r.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	r.server, err = server.Start(ctx, server.Config{
		Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "service"), Logger: slog.New(slog.DiscardHandler), Version: l.cfg.Version,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the lock service: %w", err)
	}
	r.transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: maxStreams, IdleConnTimeout: time.Minute}
	if r.client, err = cluster.Dial(ctx, r.server.Addr(), nil); err != nil {
		return nil, err
	}
	if r.ledger, err = stage.OpenLedger(ctx, r.ledgerFile(), lockName); err != nil {
		return nil, err
	}
	if err := r.ledger.SetComparing(ctx, s.compare); err != nil {
		return nil, err
	}
	hired := make(chan error, 1)
	go func() { hired <- r.hireAll(ctx) }() // workers are asked nothing yet
	if err = r.run(ctx); err != nil {
		err = fmt.Errorf("the earlier runs: %w", err)
	}
	if err = errors.Join(err, <-hired); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *round) ledgerFile() string { return filepath.Join(r.dir, "ledger.sqlite") }

// run makes the honest runs: acquire, write through the gate, release.
func (r *round) run(ctx context.Context) error {
	locker, err := holdfast.NewFencedLocker(r.client.Engine(), &holdfast.Options{Label: earlierName})
	if err != nil {
		return err
	}
	defer locker.Close(ctx)
	for i := range earlierRuns {
		grant, err := locker.Acquire(ctx, lockName, holdfast.Arm(r.ledger.Gate()))
		if err != nil {
			return err
		}
		line := stage.Line{Worker: earlierName, Value: fmt.Sprintf("invoice %d: %d EUR", 4711-earlierRuns+i, 40+(i*37)%200), Basis: int64(i)}
		if _, err := r.ledger.Write(grant.Context(), stage.Always, grant.Token(), line); err != nil {
			return err
		}
		if err := grant.Release(ctx); err != nil {
			return err
		}
		r.lastToken = grant.Token().Number
	}
	status, err := r.client.Status(ctx)
	if err != nil {
		return err
	}
	r.revision = status.Revision
	r.earlier, _, err = r.ledger.Lines(ctx)
	return err
}

// hireAll starts both workers at once: most of it is waiting.
func (r *round) hireAll(ctx context.Context) error {
	type hired struct {
		name   string
		worker stage.Worker
		err    error
	}
	all := make(chan hired, len(cast))
	for _, name := range cast {
		r.seats[name] = &seat{name: name, value: r.settings.values[name], told: r.settings.values[name], standing: idle}
		go func() {
			w, err := r.hire(ctx, name, r.settings.values[name])
			all <- hired{name, w, err}
		}()
	}
	var failed error
	for range cast {
		h := <-all
		failed = errors.Join(failed, h.err)
		if h.err == nil {
			r.seats[h.name].worker = h.worker
		}
	}
	return failed
}

// hire starts a worker and waits until it takes words. It ends with the round
// at the latest.
func (r *round) hire(ctx context.Context, name, value string) (w stage.Worker, err error) {
	spec := stage.WorkerSpec{
		Name: name, Value: value, TTL: r.settings.ttl, Server: r.server.Addr(),
		Lock: lockName, Ledger: r.ledgerFile(), Fencing: stage.BySwitch,
	}
	if r.lab.cfg.InProcess {
		w, err = stage.StartInProcess(r.over, spec)
	} else {
		w, err = stage.StartProcess(r.over, r.lab.cfg.WorkerCommand, spec)
	}
	if err != nil {
		return nil, err
	}
	select {
	case s, ok := <-w.Said():
		switch {
		case ok && s.Event == stage.SaidReady:
			return w, nil
		case ok:
			err = fmt.Errorf("worker %s could not begin: %s", name, s.Text)
		default:
			err = fmt.Errorf("worker %s ended before it began", name)
		}
	case <-ctx.Done():
		err = fmt.Errorf("worker %s did not begin: %w", name, context.Cause(ctx))
	}
	w.Kill()
	return nil, err
}

// begun is the round's first event.
func (r *round) begun(ctx context.Context) (event, error) {
	mark, err := r.ledger.Mark(ctx)
	if err != nil {
		return event{}, err
	}
	e := event{
		Kind: kindRound, Who: whoLab, Round: r.number, TTLMS: r.settings.ttl.Milliseconds(), Compare: new(r.settings.compare),
		Signals: new(!r.lab.cfg.InProcess), Values: r.settings.values, Mark: mark, LastToken: r.lastToken,
		LineCount: int64(len(r.earlier)), Lock: lockName, Service: r.server.Addr(),
	}
	for _, n := range r.earlier[max(0, len(r.earlier)-earlierShown):] {
		e.Earlier = append(e.Earlier, earlierLine{n.Seq, n.Worker, n.Token, n.Value})
	}
	return e, nil
}

// close ends everything of the round and removes it. It may be called on one
// that has not fully begun.
func (r *round) close() {
	r.end()
	for _, s := range r.seats {
		if s.worker != nil {
			s.worker.Kill()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var err error
	if r.client != nil {
		err = errors.Join(err, r.client.Close(ctx))
	}
	if r.transport != nil {
		r.transport.CloseIdleConnections()
	}
	if r.server != nil {
		err = errors.Join(err, r.server.Stop(ctx))
	}
	if r.ledger != nil {
		err = errors.Join(err, r.ledger.Close())
	}
	if err = errors.Join(err, os.RemoveAll(r.dir)); err != nil {
		r.lab.cfg.Logger.Warn("a round of the lab did not end cleanly", "dir", r.dir, "error", err)
	}
}
