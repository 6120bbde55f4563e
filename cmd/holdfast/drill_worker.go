package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/fence"
	"holdfast/gate/sqlgate"
)

// What the drill tells a worker process, one word a line on its standard input.
const (
	doAcquire = "acquire"
	doRead    = "read"
	doWrite   = "write"        // says "about-to-write", then waits for doGo
	doInside  = "write-inside" // opens the guarded step, says "inside", then waits for doGo
	doGo      = "go"
	doRelease = "release"
)

// A said is one line that a worker says on its standard output.
type said struct {
	Event  string `json:"event"`
	Token  string `json:"token,omitempty"`   // text form
	Seen   string `json:"seen,omitempty"`    // refused: the gate's mark
	Seq    int64  `json:"seq,omitempty"`     // read: the last line
	LeftMS int64  `json:"left_ms,omitempty"` // pulse: until the worker would give up
	TookMS int64  `json:"took_ms,omitempty"` // acquired: how long it took
	Waits  bool   `json:"waits,omitempty"`   // pulse: it holds nothing yet
	Text   string `json:"text,omitempty"`    // error, lost: for people
}

// What a worker says.
const (
	saidReady    = "ready"
	saidPulse    = "pulse"
	saidAcquired = "acquired"
	saidRead     = "read"
	saidAbout    = "about-to-write"
	saidInside   = "inside"
	saidWritten  = "written"
	saidRefused  = "refused"
	saidReleased = "released"
	saidLost     = "lost"
	saidError    = "error"
)

// A worker is the process that holds the lock and writes. It is told step by
// step what to do, as a debugger would, so that it can be stopped between any
// two; it does nothing to protect itself.
type worker struct {
	name, value string
	ttl         time.Duration
	ledger      *ledger
	gate        *sqlgate.Gate // nil with fencing off
	client      *cluster.Client
	grant       *holdfast.Grant
	basis       int64
	in          *bufio.Scanner

	mu  sync.Mutex // guards out
	out *json.Encoder
}

func newDrillWorkerCommand() *cobra.Command {
	w := &worker{}
	var server, path string
	var fencing bool
	cmd := &cobra.Command{
		Use:    "drill-worker",
		Short:  "one worker of the drill (started by it)",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.in = bufio.NewScanner(cmd.InOrStdin())
			w.out = json.NewEncoder(cmd.OutOrStdout())
			return w.run(cmd.Context(), server, path, fencing)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.name, "name", "", "the worker's name")
	f.StringVar(&w.value, "value", "", "the value that it writes")
	f.DurationVar(&w.ttl, "ttl", 2*time.Second, "its session's TTL")
	f.StringVar(&server, "lock-server", "", "address of the lock service")
	f.StringVar(&path, "ledger", "", "the ledger's file")
	f.BoolVar(&fencing, "fenced", false, "write through the gate")
	return cmd
}

func (w *worker) run(ctx context.Context, server, path string, fencing bool) error {
	var err error
	if w.ledger, err = openLedger(ctx, path); err != nil {
		return w.fail(err)
	}
	defer w.ledger.close()
	if fencing {
		if w.gate, err = sqlgate.New(ctx, w.ledger.db, sqlgate.Config{Lock: drillLock, Name: "ledger", Dialect: sqlgate.SQLite}); err != nil {
			return w.fail(err)
		}
	}
	w.client, err = cluster.Dial(ctx, server, &cluster.Options{
		TTL: w.ttl, Label: "worker " + w.name,
		OnPulse: func(p holdfast.PulseInfo) {
			if p.Err == nil {
				w.say(said{Event: saidPulse, LeftMS: p.Left.Milliseconds(), Waits: len(p.Locks) == 0})
			}
		},
	})
	if err != nil {
		return w.fail(err)
	}
	defer w.client.Close(context.WithoutCancel(ctx))
	w.say(said{Event: saidReady})
	for w.in.Scan() {
		if err := w.do(ctx, w.in.Text()); err != nil {
			return w.fail(err)
		}
	}
	return w.in.Err()
}

func (w *worker) say(s said) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.out.Encode(s); err != nil && !errors.Is(err, os.ErrClosed) {
		// The drill is gone; the pipe's end on standard input ends us.
		return
	}
}

func (w *worker) fail(err error) error {
	w.say(said{Event: saidError, Text: err.Error()})
	return err
}

func (w *worker) do(ctx context.Context, what string) error {
	switch what {
	case doAcquire:
		return w.acquire(ctx)
	case doRead:
		seq, err := w.ledger.last(ctx)
		if err != nil {
			return err
		}
		w.basis = seq
		w.say(said{Event: saidRead, Seq: seq, Token: w.grant.Token().String()})
		return nil
	case doWrite:
		// Whoever reads this to learn: here a careful worker would look at
		// w.grant.Context(). It would not help: the stop can come after
		// the look.
		w.say(said{Event: saidAbout, Token: w.grant.Token().String()})
		if err := w.awaitGo(); err != nil {
			return err
		}
		return w.write(nil)
	case doInside:
		var wait error
		err := w.write(func() {
			w.say(said{Event: saidInside, Token: w.grant.Token().String()})
			wait = w.awaitGo()
		})
		return errors.Join(err, wait)
	case doRelease:
		if err := w.grant.Release(ctx); err != nil {
			return err
		}
		w.say(said{Event: saidReleased, Token: w.grant.Token().String()})
		return nil
	}
	return fmt.Errorf("drill-worker: unknown step %q", what)
}

func (w *worker) acquire(ctx context.Context) error {
	var opts []holdfast.AcquireOption
	if w.gate != nil {
		opts = append(opts, holdfast.Arm(w.gate))
	}
	start := time.Now()
	grant, err := w.client.Locker().Acquire(ctx, drillLock, opts...)
	if err != nil {
		return err
	}
	w.grant = grant
	w.say(said{Event: saidAcquired, Token: grant.Token().String(), TookMS: time.Since(start).Milliseconds()})
	context.AfterFunc(grant.Context(), func() {
		if grant.State() == holdfast.StateLost {
			w.say(said{Event: saidLost, Token: grant.Token().String(), Text: context.Cause(grant.Context()).Error()})
		}
	})
	return nil
}

// awaitGo waits for the drill's word. This is where the process is stopped.
func (w *worker) awaitGo() error {
	if !w.in.Scan() {
		return errors.Join(io.ErrUnexpectedEOF, w.in.Err())
	}
	if got := w.in.Text(); got != doGo {
		return fmt.Errorf("drill-worker: got %q, want %q", got, doGo)
	}
	return nil
}

// write writes the worker's line. Its context is not the grant's: only the
// gate stands between a zombie and the ledger.
func (w *worker) write(inside func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	token := w.grant.Token()
	n := line{Worker: w.name, Token: token.Number, Value: w.value, Basis: w.basis}
	var err error
	if w.gate == nil {
		err = w.ledger.writePast(ctx, n)
	} else {
		err = writeThrough(ctx, w.gate, token, n, inside)
	}
	var stale *fence.StaleError
	switch {
	case err == nil:
		w.say(said{Event: saidWritten, Token: token.String()})
		return nil
	case errors.As(err, &stale):
		w.say(said{Event: saidRefused, Token: stale.Offered.String(), Seen: stale.Seen.String(), Text: err.Error()})
		return nil
	}
	return err
}
