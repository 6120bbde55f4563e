package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
	"holdfast/lab/stage"
	"holdfast/server"
)

// drillLock is the lock that the drill is about.
const drillLock = "invoices"

// The range of --ttl for the drill: the service's least TTL, and the most at
// which the whole still takes about a minute.
const (
	drillMinTTL = time.Second
	drillMaxTTL = 5 * time.Second
)

// drillWaiterTTL is B's TTL with --kill-leader: a waiter whose lease runs out
// during an election gives up, and an election takes 1 to 2 s, and more on a
// busy machine.
const drillWaiterTTL = 15 * time.Second

// errTheory means that what happened is not what the theory says.
var errTheory = errors.New("drill: what happened is not what the theory says")

type drillFlags struct {
	fencing string
	ttl     time.Duration
	a, b    string
	gate    string
	dsn     string
	output  string

	nodes      int
	killLeader bool
}

// The kinds of gates, and ledgers, that a drill can be played with.
const (
	gateSQLite   = "sqlite"
	gatePostgres = "postgres"
	gateFile     = "file"
)

func newDrillCommand() *cobra.Command {
	var o drillFlags
	cmd := &cobra.Command{
		Use:   "drill",
		Short: "Stage the disaster: a paused holder writes after its lease ran out",
		Long: `drill stages, on real processes, the failure that no lock service can prevent:
a lock holder is paused, outlives its lease, and writes when it wakes.

It starts a lock service on a loopback port, two worker processes and a ledger,
all in a temporary directory, and plays the story without fencing
(the late write lands and the ledger is corrupted), then with fencing (the gate
at the ledger refuses the late write). Nothing is simulated: the pause is
SIGSTOP, and the worker takes no care of its own.

--gate says where the ledger is: sqlite and file need nothing; postgres needs an
address, --dsn, of a database (PostgreSQL 13 or newer) in which the user may
create a schema: the drill keeps everything in one of its own,
holdfast_drill_NUMBER, and removes it. An address with a password belongs in the
environment variable HOLDFAST_DSN, since arguments can be read by others.

With --nodes 3 (5, 7) the lock service is a cluster of that many processes, and
a last act compares the states of all of them. With --kill-leader the one that
leads is killed by SIGKILL in the middle of the disaster: A is paused and holds
the lock, and B waits in its queue. The others elect a leader that has never
heard of A by itself. It must know A's token and B's place, wait out A's lease,
and give B a higher token, and the gate must refuse A. At the end the dead node
is started again, must catch up to the same state, and then leads and hands out
the next token.

At its end, when it is interrupted, when the reader of its output leaves, and
also when it is ended by kill -9, no process is left and everything is removed.
For the last of these it starts a sweeper: a process that waits for the drill's
end and then removes holdfast-drill-* from the directory for temporary files
(TMPDIR, else /tmp).

` + drillExitTable,
		Example: "  holdfast drill\n  holdfast drill --fencing on --ttl 1s\n  holdfast drill --gate file\n" +
			"  holdfast drill --nodes 3 --kill-leader\n" +
			"  holdfast drill --gate postgres --dsn postgres://me@localhost/test\n  holdfast drill -o json | jq .text",
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.gate == gatePostgres && o.dsn == "" {
				o.dsn = os.Getenv(stage.DSNVariable)
			}
			if err := o.validate(); err != nil {
				return err
			}
			ctx, end, stop := untilAsked(cmd.Context())
			defer stop()
			err := runDrill(ctx, o, newTeller(listened{cmd.OutOrStdout(), end}, o.output == "json"))
			if why := context.Cause(ctx); why != nil && !errors.Is(err, why) {
				err = errors.Join(why, err)
			}
			return err
		},
	}
	f := cmd.Flags()
	o.fencing, o.ttl, o.gate, o.output = "both", 2*time.Second, gateSQLite, formatText
	f.Var(&choiceValue{&o.fencing, []string{"off", "on", "both"}}, "fencing", "which story: off, on, or both: first off, then on")
	f.Var(&durationValue{d: &o.ttl, min: drillMinTTL, max: drillMaxTTL}, "ttl", fmt.Sprintf("the workers' session TTL, %v to %v; scales the whole drill; with --kill-leader A's only, and B's is %v", drillMinTTL, drillMaxTTL, drillWaiterTTL))
	f.Var(&choiceValue{&o.gate, []string{gateSQLite, gatePostgres, gateFile}}, "gate", "the ledger and its gate")
	f.StringVar(&o.dsn, "dsn", "", "the database, for --gate postgres: postgres://user@host/database or host=… dbname=…")
	o.nodes = 1
	f.Var(&intValue{&o.nodes, 1, 7}, "nodes", "nodes of the lock service: 1 in the drill's own process; 3, 5 or 7, each a process")
	boolFlag(f, &o.killLeader, "kill-leader", "kill the node that leads, with SIGKILL, while A is paused and B waits; start it again at the end")
	f.StringVar(&o.a, "a", "invoice 4711: 100 EUR", "the value that worker A writes")
	f.StringVar(&o.b, "b", "invoice 4711: 250 EUR", "the value that worker B writes")
	f.VarP(&choiceValue{&o.output, []string{formatText, formatJSON}}, "output", "o", "what to print; json: one object an event")
	return cmd
}

func (o drillFlags) validate() error {
	for flag, value := range map[string]string{"--a": o.a, "--b": o.b} {
		if err := stage.CheckValue(value); err != nil {
			return usagef("%s: %v", flag, err)
		}
	}
	if o.a == o.b {
		return usagef("--a and --b are both %q: give the workers different values, or nobody could tell whose write survived", o.a)
	}
	switch {
	case o.nodes%2 == 0:
		return usagef("--nodes %d: want 1, 3, 5 or 7: one more than an odd number outlives no more failures", o.nodes)
	case o.killLeader && o.nodes == 1:
		return usagef("--kill-leader with --nodes 1 would leave no lock service: want --nodes 3, 5 or 7, of which most go on")
	case o.gate != gatePostgres && o.dsn != "":
		return usagef("--dsn is for --gate postgres, and the gate is %s", o.gate)
	case o.gate == gatePostgres && o.dsn == "":
		return usagef("--gate postgres needs the address of a database: --dsn postgres://user@host/database, or HOLDFAST_DSN")
	case o.gate == gatePostgres:
		if err := stage.CheckDSN(o.dsn); err != nil {
			return usagef("--dsn: %v", err)
		}
	}
	return nil
}

// runDrill starts the service, plays what was asked, and leaves nothing.
func runDrill(ctx context.Context, o drillFlags, out *teller) (err error) {
	if o.gate == gatePostgres {
		// Workers and sweeper find it there.
		if err := os.Setenv(stage.DSNVariable, o.dsn); err != nil {
			return fmt.Errorf("drill: %w", err)
		}
	}
	dir, sweeper, err := sweptDir("drill")
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	defer func() { err = errors.Join(err, sweeper.Close()) }()
	worker, err := ownCommand(workerCommand)
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	out.opening(o)
	addrs, nodes, stop, err := drillService(ctx, o, dir, out)
	if err != nil {
		return fmt.Errorf("drill: starting the lock service: %w", err)
	}
	defer func() { err = errors.Join(err, stop()) }()
	watcher, err := cluster.Dial(ctx, addrs, nil)
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	defer watcher.Close(context.WithoutCancel(ctx))
	holds := true
	for _, fencing := range plays(o.fencing) {
		s := &story{flags: o, fencing: fencing, dir: dir, addr: addrs, nodes: nodes, worker: worker, watcher: watcher, out: out}
		ok, err := s.play(ctx)
		if err != nil {
			return fmt.Errorf("drill: %w", err)
		}
		holds = holds && ok
	}
	out.closing(plays(o.fencing), o.killLeader, holds)
	if !holds {
		return errTheory
	}
	return nil
}

// drillService starts what the drill is played on: a service in this process,
// or nodes with processes of their own.
func drillService(ctx context.Context, o drillFlags, dir string, out *teller) (addrs string, nodes *drillCluster, stop func() error, err error) {
	if o.nodes > 1 {
		nodes, err := foundCluster(ctx, o.nodes, dir)
		if err != nil {
			return "", nil, nil, err
		}
		stop := func() error { nodes.kill(); return nil }
		lead, term, err := nodes.leader(ctx, 0)
		if err != nil {
			return "", nil, nil, errors.Join(err, stop())
		}
		out.nodes(nodes, lead, term)
		return nodes.endpoints(), nodes, stop, nil
	}
	srv, err := server.Start(ctx, server.Config{
		Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "service"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", nil, nil, err
	}
	out.service(srv.Addr())
	return srv.Addr(), nil, func() error {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return srv.Stop(stopCtx)
	}, nil
}

// untilAsked returns a context that ends when the program is asked to end, by
// a signal or by end; its cause carries the exit code.
func untilAsked(parent context.Context) (ctx context.Context, end context.CancelCauseFunc, stop func()) {
	ctx, end = context.WithCancelCause(parent)
	// That a reader has left is told by the error of the write. The signal,
	// which would end the program before it has cleared up, also comes for the
	// pipe to a worker that has just ended, and for sockets.
	signal.Ignore(syscall.SIGPIPE)
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case sig := <-asked:
			number, _ := sig.(syscall.Signal)
			end(&codedError{exitSignal + int(number), fmt.Errorf("ended by %s; nothing is left behind", signalName(number))})
		case <-ctx.Done():
		}
	}()
	return ctx, end, func() {
		signal.Stop(asked)
		end(nil)
	}
}

// listened is where the story goes. When nobody takes it any more, the drill
// ends.
type listened struct {
	io.Writer
	end context.CancelCauseFunc
}

// Write implements io.Writer.
func (l listened) Write(b []byte) (int, error) {
	n, err := l.Writer.Write(b)
	switch {
	case errors.Is(err, syscall.EPIPE):
		l.end(unread(err))
	case err != nil:
		l.end(withCode(exitFailure, fmt.Errorf("the story cannot be printed: %w; nothing is left behind", err)))
	}
	return n, err
}

func plays(fencing string) []bool {
	switch fencing {
	case "off":
		return []bool{false}
	case "on":
		return []bool{true}
	}
	return []bool{false, true}
}

func init() { moreCommands = append(moreCommands, newDrillCommand) }
