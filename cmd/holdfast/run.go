package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/engine/cluster"
)

// Limits of run's own flags. The service has the last word.
const (
	maxValue  = 4096
	maxPeriod = 400 * 24 * time.Hour
	maxLimit  = 10_000
)

// A runRequest is what the command line of run asks for.
type runRequest struct {
	guarded
	acquire cluster.AcquireOptions
	wait    time.Duration // 0: without limit

	conflictCode int
}

// runFlags are the flags of run as they stand on the command line.
type runFlags struct {
	guardedFlags
	wait, oncePer, maxHold      time.Duration
	noWait, shared, retryFailed bool
	limit, conflictCode         int
}

func runCmd() *cobra.Command {
	f := &runFlags{conflictCode: exitConflict, limit: 1}
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- CMD [ARG…]",
		Short: "Run a command while holding a lock",
		Long: `Runs CMD while holding the lock NAME, and ends CMD before the lock can pass to
somebody else.

CMD runs in a process group of its own. If the lease cannot be renewed, the
whole group gets SIGTERM when the grace before the deadline begins, and SIGKILL
at the deadline; SIGTERM is never taken back. The lock is released only after
the command has ended. Processes that leave the group (setsid) are not ended,
but reported. If holdfast run itself is killed, the group is killed.

CMD gets HOLDFAST_LOCK, HOLDFAST_TOKEN (the fencing token, for a gate) and
HOLDFAST_TOKEN_NUMBER in its environment. Its arguments reach it as they are;
no shell is involved unless you name one: -- sh -c '…'.

--once-per closes the lock, for all who use it, for nine tenths of the period
from the grant.

The wait for the lock ends early if the service cannot be reached, or refuses
new work, for 5 s. If an operator ends the session that waits, run queues again.

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGWINCH are forwarded
to the group, once; holdfast run then waits for the command, however long that
takes, and says so if it takes longer than --grace. On a terminal, Ctrl-C and
Ctrl-Z reach the command as if it ran alone.

What it cannot do: processes that are themselves stopped (SIGSTOP on holdfast
run and its guardian, a frozen container, a machine that sleeps) end nothing in
time. A command that becomes another user (sudo) cannot be ended by a holdfast
that is not root. Where a late write would do harm, give the token to a gate at
the resource.

` + runExitTable,
		Example: `  holdfast run nightly --no-wait -- /usr/local/bin/backup --full
  holdfast run billing --once-per 1h -- sh -c 'make-invoices && send-invoices'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.request(cmd, args)
			if err != nil {
				return err
			}
			return r.run(cmd.Context())
		},
	}
	f.register(cmd)
	return cmd
}

func (f *runFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.guardedFlags.register(cmd)
	durationFlag(cmd, &f.wait, "wait", time.Millisecond, 0, "how long to wait for the lock, once a server answers (default: without limit)")
	boolFlag(fs, &f.noWait, "no-wait", "do not wait: exit with 75 if the lock is held")
	boolFlag(fs, &f.shared, "shared", "hold the lock beside other shared holders")
	fs.Var(&intValue{&f.limit, 1, maxLimit}, "limit", "how many may hold the lock at a time; the same for all who use it; 1 to 10000")
	durationFlag(cmd, &f.oncePer, "once-per", time.Millisecond, maxPeriod, "run at most once in this period, over all hosts; else exit with 75 at once")
	boolFlag(fs, &f.retryFailed, "retry-failed", "with --once-per: a run that failed may be repeated within the period")
	durationFlag(cmd, &f.maxHold, "max-hold", time.Millisecond, maxPeriod, "end the command after this long, or up to ttl/6 later, when its next renewal tells")
	fs.Var(&intValue{&f.conflictCode, 0, 255}, "conflict-exit-code", "exit code instead of 75, 0 to 255")
}

// request checks the whole command line. Nothing is sent before it is right.
func (f *runFlags) request(cmd *cobra.Command, args []string) (*runRequest, error) {
	g, err := f.guardedFlags.request(cmd, args)
	if err != nil {
		return nil, err
	}
	switch {
	case f.noWait && cmd.Flags().Changed("wait"):
		return nil, usagef("--wait and --no-wait exclude each other: give one of them")
	case f.shared && f.limit > 1:
		return nil, usagef("--shared and --limit %d exclude each other: a lock with permits has no shared holders", f.limit)
	case f.retryFailed && !cmd.Flags().Changed("once-per"):
		return nil, usagef("--retry-failed needs --once-per PERIOD")
	}
	r := &runRequest{guarded: g, wait: f.wait, conflictCode: f.conflictCode}
	r.acquire = cluster.AcquireOptions{
		Try: f.noWait, Shared: f.shared, OncePer: f.oncePer, RetryFailed: f.retryFailed, MaxHold: f.maxHold, Value: g.value,
	}
	if f.limit > 1 {
		r.acquire.Limit = uint32(f.limit)
	}
	return r, nil
}

// run acquires, runs the command under the lock, and releases.
func (r *runRequest) run(ctx context.Context) error {
	path, err := findCommand(r.argv[0], searchPath())
	if err != nil {
		return err
	}
	ctx, interrupted, stop := notifyEnd(ctx)
	defer stop()
	w := &wrapper{
		cmd: command{path: path, argv: r.argv, grace: r.grace}, renewed: make(chan struct{}, 1),
	}
	tell := newSayer(os.Stderr)
	defer tell.close()
	w.say = tell.say
	r.tlsSay.become(tell.say)
	var grant *holdfast.Grant
	a, err := r.dial(ctx, w)
	if err == nil {
		defer func() { _ = a.client.Close(context.Background()) }()
		grant, err = a.get(ctx)
	}
	if err == nil && r.acquire.RetryFailed {
		if note := r.rerunNote(a.client, grant); note != "" {
			tell.say("%s", note)
		}
	}
	// From here on signals are for the command. Whatever came before is not
	// lost: it is looked at after the change.
	w.catch()
	stop()
	if s := interrupted(); s != 0 {
		if grant != nil {
			_ = grant.Release(context.Background(), holdfast.Failed())
		}
		return withCode(exitSignal+int(s), fmt.Errorf("ended by %s before the command started; nothing stays held", signalName(s)))
	}
	if err != nil {
		return err
	}
	return r.guard(grant, w)
}

// guard runs the command under the grant and turns its end into run's own.
func (r *runRequest) guard(grant *holdfast.Grant, w *wrapper) error {
	w.lease, w.cmd.env = grant, childEnv(os.Environ(), grant)
	end := w.run()
	w.survivors(end)
	failed := end.err != nil || end.lost != nil || end.code != 0
	var opts []holdfast.ReleaseOption
	if failed {
		opts = append(opts, holdfast.Failed())
	}
	if err := grant.Release(context.Background(), opts...); err != nil && end.lost == nil {
		w.say("%s", plainText(err))
	}
	if failed && end.lost == nil && r.acquire.RetryFailed {
		w.say("the command failed: lock %q stays open for another run in this period (--retry-failed)", r.name)
	}
	switch {
	case end.err != nil:
		if e, ok := errors.AsType[*execError](end.err); ok {
			return withCode(e.exitCode(), e)
		}
		return withCode(exitFailure, end.err)
	case end.lost != nil:
		return withCode(exitLost, fmt.Errorf("lock %q was lost while the command ran, which was ended (exit code %d): %w", r.name, end.code, lossOf(end.lost)))
	case end.code != 0:
		return withCode(end.code, errSilent)
	}
	return nil
}

// errSilent ends the program without a word: the command has said what there
// is to say.
var errSilent = errors.New("")

// grantVariables tell the command of its lock.
var grantVariables = []string{"HOLDFAST_LOCK", "HOLDFAST_TOKEN", "HOLDFAST_TOKEN_NUMBER"}

// childEnv is the environment with the lock's variables set.
func childEnv(env []string, grant *holdfast.Grant) []string {
	t := grant.Token()
	values := []string{grant.Lock(), t.String(), number(t.Number)}
	out := make([]string, 0, len(env)+len(values))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains(grantVariables, name) {
			out = append(out, e)
		}
	}
	for i, name := range grantVariables {
		out = append(out, name+"="+values[i])
	}
	return out
}

// notifyEnd returns a context that ends with the first signal that asks this
// process to end, and what tells which one it was (0: none). After stop, no
// further signal is taken, and none that was taken is left out.
func notifyEnd(ctx context.Context) (_ context.Context, first func() syscall.Signal, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := make(chan os.Signal, 4)
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
	took := make(chan struct{})
	go func() {
		defer close(took)
		if s, ok := <-c; ok {
			cancel(signalError{s.(syscall.Signal)})
		}
	}()
	first = func() syscall.Signal {
		if e, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
			return e.Signal
		}
		return 0
	}
	stop = sync.OnceFunc(func() {
		signal.Stop(c)
		close(c) // nothing is sent to it any more
		<-took
	})
	return ctx, first, stop
}

// signalError is a signal as the cause of an end.
type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return signalName(e.Signal) }
