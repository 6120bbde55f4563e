package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/driver"
	"holdfast/engine/cluster"
)

// Limits of run's own flags. The service has the last word.
const (
	maxValue  = 4096
	maxPeriod = 366 * 24 * time.Hour
	maxLimit  = math.MaxInt32
)

// A runRequest is what the command line of run asks for.
type runRequest struct {
	name    string
	argv    []string
	servers string
	options holdfast.Options // of the lease
	grace   time.Duration
	acquire cluster.AcquireOptions
	wait    time.Duration // 0: without limit
	label   string

	conflictCode int
}

// runFlags are the flags of run as they stand on the command line.
type runFlags struct {
	wait, ttl, grace, oncePer, maxHold time.Duration
	noWait, shared, retryFailed        bool
	limit, conflictCode                int
	value, label                       string
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

SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2 and SIGWINCH are forwarded
to the group, once. On a terminal, Ctrl-C and Ctrl-Z reach the command as if
it ran alone.

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
	duration := func(d *time.Duration, name string, min, max time.Duration, usage string) {
		fs.Var(&durationValue{d: d, min: min, max: max}, name, usage)
	}
	duration(&f.wait, "wait", time.Millisecond, 0, "how long to wait for the lock (default: without limit)")
	fs.BoolVar(&f.noWait, "no-wait", false, "do not wait: exit with 75 if the lock is held")
	duration(&f.ttl, "ttl", holdfast.MinTTL, holdfast.MaxTTL, "how long the lock outlives its last renewal (default 15s)")
	duration(&f.grace, "grace", time.Millisecond, 0, "time between SIGTERM and SIGKILL, at most half of --ttl (default: the smaller of 5s and ttl/3)")
	fs.BoolVar(&f.shared, "shared", false, "hold the lock beside other shared holders")
	fs.Var(&intValue{&f.limit, 1, maxLimit}, "limit", "how many may hold the lock at a time; the same for all who use it (default 1)")
	duration(&f.oncePer, "once-per", time.Millisecond, maxPeriod, "run at most once in this period, over all hosts; else exit with 75 at once")
	fs.BoolVar(&f.retryFailed, "retry-failed", false, "with --once-per: a run that failed may be repeated within the period")
	duration(&f.maxHold, "max-hold", time.Millisecond, maxPeriod, "end the command after this long")
	fs.StringVar(&f.value, "value", "", "`text` to publish with the lock while it is held, at most 4096 bytes")
	fs.StringVar(&f.label, "label", "", "who holds the lock, for people, at most 256 bytes (default: user and command)")
	fs.Var(&intValue{&f.conflictCode, 0, 255}, "conflict-exit-code", "exit code instead of 75")
	serverFlag(cmd)
}

// request checks the whole command line. Nothing is sent before it is right.
func (f *runFlags) request(cmd *cobra.Command, args []string) (*runRequest, error) {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > 1:
		return nil, usagef("the command must stand after '--': holdfast run %s -- %s", printable(args[0]), printable(strings.Join(args[1:], " ")))
	case dash < 0 || len(args) == dash:
		return nil, usagef("no command: want holdfast run NAME [flags] -- CMD [ARG…]")
	case dash == 0:
		return nil, usagef("no lock name: want holdfast run NAME [flags] -- CMD [ARG…]")
	case dash > 1:
		return nil, usagef("%d arguments before '--', want one, the lock's name: holdfast run NAME [flags] -- CMD [ARG…]", dash)
	}
	r := &runRequest{name: args[0], argv: args[dash:], wait: f.wait, conflictCode: f.conflictCode}
	if err := checkLockName(r.name); err != nil {
		return nil, err
	}
	changed := func(name string) bool { return cmd.Flags().Changed(name) }
	switch {
	case f.noWait && changed("wait"):
		return nil, usagef("--wait and --no-wait exclude each other: give one of them")
	case f.shared && f.limit > 1:
		return nil, usagef("--shared and --limit %d exclude each other: a lock with permits has no shared holders", f.limit)
	case f.retryFailed && !changed("once-per"):
		return nil, usagef("--retry-failed needs --once-per PERIOD")
	case len(f.value) > maxValue:
		return nil, usagef("--value has %d bytes: want at most %d", len(f.value), maxValue)
	case len(f.label) > holdfast.MaxLabel:
		return nil, usagef("--label has %d bytes: want at most %d", len(f.label), holdfast.MaxLabel)
	case f.label != clean(f.label):
		return nil, usagef("--label %q: want UTF-8 without control characters", f.label)
	}
	var err error
	if r.options, r.grace, err = holdfast.RunTiming(f.ttl, f.grace); err != nil {
		return nil, withCode(exitUsage, fmt.Errorf("--ttl and --grace: %w", err))
	}
	if r.servers, err = serverList(cmd); err != nil {
		return nil, err
	}
	r.acquire = cluster.AcquireOptions{
		Try: f.noWait, Shared: f.shared, OncePer: f.oncePer, RetryFailed: f.retryFailed, MaxHold: f.maxHold,
	}
	if f.limit > 1 {
		r.acquire.Limit = uint32(f.limit)
	}
	if changed("value") {
		r.acquire.Value = []byte(f.value)
	}
	if r.label = f.label; r.label == "" {
		r.label = clean(userName() + ": " + filepath.Base(r.argv[0]))
	}
	return r, nil
}

// run acquires, runs the command under the lock, and releases.
func (r *runRequest) run(ctx context.Context) error {
	path, err := findCommand(r.argv[0], os.Getenv("PATH"))
	if err != nil {
		return err
	}
	ctx, interrupted, stop := notifyEnd(ctx)
	defer stop()
	wait, cancel := ctx, context.CancelFunc(func() {})
	if r.wait > 0 {
		wait, cancel = context.WithTimeout(ctx, r.wait)
	}
	defer cancel()
	w := &wrapper{
		cmd: command{path: path, argv: r.argv, grace: r.grace}, renewed: make(chan struct{}, 1),
	}
	client, err := r.dial(wait, w.renewed)
	if err == nil {
		defer func() { _ = client.Close(context.Background()) }()
	}
	var grant *holdfast.Grant
	if err == nil {
		grant, err = r.get(ctx, wait, client)
	}
	tell := newSayer(os.Stderr)
	defer tell.close()
	w.say = tell.say
	if err == nil && r.acquire.RetryFailed {
		if note := r.rerunNote(client, grant); note != "" {
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
		return withCode(exitSignal+int(s), fmt.Errorf("ended by %v before the command started; nothing stays held", s))
	}
	if err != nil {
		return err
	}
	return r.guard(grant, w)
}

// dial connects.
func (r *runRequest) dial(ctx context.Context, renewed chan<- struct{}) (*cluster.Client, error) {
	client, err := cluster.Dial(ctx, r.servers, &cluster.Options{
		TTL: r.options.TTL, Margin: r.options.Margin,
		KeepaliveInterval: r.options.KeepaliveInterval, CallTimeout: r.options.CallTimeout,
		Label: r.label, Host: hostName(),
		OnPulse: func(p holdfast.PulseInfo) {
			if p.Err != nil {
				return
			}
			select {
			case renewed <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return nil, unreachable(r.servers, err)
	}
	return client, nil
}

// get acquires the lock, or says who has it. wait is ctx, bounded by --wait.
func (r *runRequest) get(ctx, wait context.Context, client *cluster.Client) (*holdfast.Grant, error) {
	grant, err := client.Acquire(wait, r.name, r.acquire)
	if err == nil {
		return grant, nil
	}
	if ctx.Err() != nil {
		return nil, err // a signal
	}
	switch {
	case errors.Is(err, holdfast.ErrClosed):
		return nil, withCode(r.conflictCode, r.closed(client, err))
	case errors.Is(err, holdfast.ErrUnavailable), errors.Is(err, holdfast.ErrSessionLost):
		return nil, unreachable(r.servers, err)
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return nil, withCode(exitUsage, err)
	case errors.Is(err, holdfast.ErrBusy), errors.Is(err, holdfast.ErrHeldByYou),
		errors.Is(err, holdfast.ErrLimit), errors.Is(err, holdfast.ErrOverloaded):
		return nil, withCode(r.conflictCode, err)
	case wait.Err() != nil:
		return nil, r.timedOut(client)
	}
	return nil, err
}

// timedOut says who holds the lock that was waited for in vain.
func (r *runRequest) timedOut(client *cluster.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	l, err := client.Get(ctx, r.name, cluster.GetOptions{})
	switch {
	case driver.KindOf(err) == driver.Unavailable:
		return unreachable(r.servers, fmt.Errorf("lock %q was not granted within %v, and now: %w", r.name, r.wait, err))
	case err != nil || len(l.Holders) == 0:
		return withCode(r.conflictCode, fmt.Errorf("lock %q was not granted within %v", r.name, r.wait))
	}
	h := l.Holders[0]
	return withCode(r.conflictCode, fmt.Errorf("lock %q was not granted within %v: it is held by %s for %v (grant %d), %d waiting; see 'holdfast lock get %s'",
		r.name, r.wait, holderName(h.Label, h.Host, h.SessionID), h.Held.Round(time.Millisecond), h.Grant, l.Waiters, shellQuote(r.name)))
}

// closed says that the lock is closed, why, and when it opens.
func (r *runRequest) closed(client *cluster.Client, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	why := "it ran already in this period"
	if r.acquire.OncePer > 0 {
		why += fmt.Sprintf(" (--once-per %v)", r.acquire.OncePer)
	}
	if l, err := client.Get(ctx, r.name, cluster.GetOptions{QueueLimit: 1}); err == nil && l.Closed && l.ClosedCause != "once-per" {
		why = "its last holder did not give it back (" + l.ClosedCause + ")"
	}
	if e, ok := errors.AsType[*holdfast.Error](err); ok && e.OpensIn > 0 {
		return fmt.Errorf("lock %q is closed: %s; it opens in %v, at %s", r.name, why, e.OpensIn.Round(time.Millisecond), time.Now().Add(e.OpensIn).Format(time.DateTime))
	}
	return fmt.Errorf("lock %q is closed: %s; see when it opens with 'holdfast lock get %s'", r.name, why, shellQuote(r.name))
}

// guard runs the command under the grant and turns its end into run's own.
func (r *runRequest) guard(grant *holdfast.Grant, w *wrapper) error {
	w.lease, w.cmd.env = grant, childEnv(os.Environ(), grant)
	end := w.run()
	if len(end.survivors) > 0 {
		w.say("these processes left the command's group and live on, without the lock: %s", listed(end.survivors))
	}
	failed := end.err != nil || end.lost != nil || end.code != 0
	var opts []holdfast.ReleaseOption
	if failed {
		opts = append(opts, holdfast.Failed())
	}
	if err := grant.Release(context.Background(), opts...); err != nil && end.lost == nil {
		w.say("%v", err)
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
		return withCode(exitLost, fmt.Errorf("lock %q was lost while the command ran, which was ended (exit code %d): %w", r.name, end.code, end.lost))
	case end.code != 0:
		return withCode(end.code, errSilent)
	}
	return nil
}

// errSilent ends the program without a word: the command has said what there
// is to say.
var errSilent = errors.New("")

// childEnv is the environment with the lock's variables set.
func childEnv(env []string, grant *holdfast.Grant) []string {
	t := grant.Token()
	set := []string{
		"HOLDFAST_LOCK=" + grant.Lock(),
		"HOLDFAST_TOKEN=" + t.String(),
		fmt.Sprintf("HOLDFAST_TOKEN_NUMBER=%d", t.Number),
	}
	out := make([]string, 0, len(env)+len(set))
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if name != "HOLDFAST_LOCK" && name != "HOLDFAST_TOKEN" && name != "HOLDFAST_TOKEN_NUMBER" {
			out = append(out, e)
		}
	}
	return append(out, set...)
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

type signalError struct{ syscall.Signal }

func (e signalError) Error() string { return e.String() }
