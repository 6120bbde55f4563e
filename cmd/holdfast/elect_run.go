package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/elect"
	"holdfast/engine/cluster"
)

// An electRequest is what the command line of elect asks for.
type electRequest struct {
	guarded
	flags electFlags
	path  string // of the command
}

// An electRun is one process that stands.
type electRun struct {
	*electRequest
	tell    *sayer
	renewed chan struct{} // gets a value after each renewal
	began   time.Time
	cancel  context.CancelFunc // stands no more

	mu      sync.Mutex
	elector *elect.Elector // nil until a server was found
	why     error          // none was found
	wrapper *wrapper       // of the command that runs; nil if none does
	ending  syscall.Signal // asked this process to end; 0: none did
}

// run stands until a signal, or the command's end, says that it is enough.
func (r *electRequest) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := &electRun{
		electRequest: r, tell: newSayer(os.Stderr), renewed: make(chan struct{}, 1),
		began: time.Now(), cancel: cancel, why: errors.New("no server was found yet"),
	}
	defer e.tell.close()
	r.tlsSay.become(e.tell.say)
	if r.flags.health != "" {
		if err := e.serveHealth(r.flags.health); err != nil {
			return err
		}
	}
	caught := &wrapper{}
	caught.catch()
	go e.dispatch(caught.signals)
	line := &outage{w: e.tell}
	client, err := e.connect(ctx, line.dial)
	if err != nil {
		return e.result(err)
	}
	defer func() { _ = client.Close(context.Background()) }()
	defer line.end()
	elector, err := elect.New(client.Locker(), r.name, &elect.Options{
		Board: client.Board(), Value: r.value, Prefer: r.flags.prefer, Rest: r.flags.rest, Tolerance: 2 * r.options.TTL,
		StopOnReturn: r.flags.stopOnSuccess, StopOnFailure: r.flags.stopOnFailure, Logger: slog.New(sayHandler{(&onceSay{tell: e.tell.say}).say}),
	})
	if err != nil {
		return withCode(exitUsage, plain(err))
	}
	e.mu.Lock()
	e.elector = elector
	e.mu.Unlock()
	return e.result(elector.Run(ctx, e.office))
}

// result turns the end of standing into the program's own.
func (r *electRun) result(err error) error {
	r.mu.Lock()
	ending := r.ending
	r.mu.Unlock()
	switch {
	case err == nil || ending != 0:
		return nil
	case errors.Is(err, holdfast.ErrInvalid), errors.Is(err, holdfast.ErrUnsupported):
		return withCode(exitUsage, plain(err))
	}
	return err
}

// dialPause spaces the searches for a server before the first was found.
const dialPause = time.Second

// connect finds a server, however long that takes: a machine that starts before
// the service must not have to be told to try again.
func (r *electRun) connect(ctx context.Context, open dialFunc) (*cluster.Client, error) {
	once := onceSay{tell: r.tell.say}
	for {
		client, err := r.guarded.connect(ctx, r.renewed, slog.DiscardHandler, open)
		if err == nil || ctx.Err() != nil || exitCode(err) != exitUnreachable {
			return client, err
		}
		once.say("%s; trying again until one answers", plainText(err))
		r.mu.Lock()
		r.why = err
		r.mu.Unlock()
		pause(ctx, dialPause)
	}
}

// standing is how this candidate stands, and the error of its check.
func (r *electRun) standing() (elect.Standing, error) {
	r.mu.Lock()
	elector, why := r.elector, r.why
	r.mu.Unlock()
	if elector == nil {
		out := time.Since(r.began)
		return elect.Standing{State: elect.Asking, For: out, Out: out, Why: why}, why
	}
	return elector.Standing(), elector.Check()
}

// dispatch hands signals to the command that runs, and ends the process if they
// ask for it.
func (r *electRun) dispatch(signals <-chan os.Signal) {
	for s := range signals {
		r.mu.Lock()
		w := r.wrapper
		switch s {
		case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
			r.ending = s.(syscall.Signal)
			if w == nil {
				r.cancel()
			}
		}
		r.mu.Unlock()
		switch {
		case w != nil:
			select {
			case w.signals <- s:
			default: // it does not take them
			}
		case s == unix.SIGTSTP:
			stopSelf()
		}
	}
}

// errEnding: this process was asked to end.
var errEnding = errors.New("asked to end")

// start makes w the command that runs, unless this process is to end.
func (r *electRun) start(w *wrapper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending != 0 {
		return false
	}
	r.wrapper = w
	return true
}

// ended notes that no command runs, and reports whether this process is to end:
// a signal asked for it, or somebody at the terminal, whose Ctrl-C reaches the
// command alone.
func (r *electRun) ended(w *wrapper) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrapper = nil
	if w.wantTTY && w.exited != nil && w.end.lost == nil {
		switch s := syscall.Signal(w.exited.Signal); s {
		case unix.SIGINT, unix.SIGQUIT:
			r.ending = s
		}
	}
	if r.ending != 0 {
		r.cancel()
	}
	return r.ending != 0
}

// tenure is what the wrapper must know of a time in office: the lease is the
// grant's, and the command is also ended when the office is to be handed over.
type tenure struct {
	*holdfast.Grant
	ctx context.Context
}

// Context implements lease.
func (t tenure) Context() context.Context { return t.ctx }

// office runs the command for one time in office.
func (r *electRun) office(ctx context.Context, grant *holdfast.Grant) error {
	w := &wrapper{
		cmd:   command{path: r.path, argv: r.argv, env: childEnv(os.Environ(), grant), grace: r.grace},
		lease: tenure{grant, ctx}, renewed: r.renewed, again: true, say: r.tell.say,
		signals: make(chan os.Signal, 32),
	}
	if !r.start(w) {
		return errEnding
	}
	r.tell.say("in office in election %q, token %d: starting %s", r.name, grant.Token().Number, printable(r.argv[0]))
	end := w.run()
	ending := r.ended(w)
	w.survivors(end)
	switch {
	case ending:
		return errEnding
	case end.err != nil:
		r.tell.say("%s", plainText(end.err))
		code := exitFailure
		if e, ok := errors.AsType[*execError](end.err); ok {
			code = e.exitCode()
		}
		return withCode(code, errSilent)
	case end.lost != nil:
		r.tell.say("left office; standing again")
		// The lease may have been renewed after all, but the command is gone.
		return fmt.Errorf("%w: %w", holdfast.ErrLost, end.lost)
	case end.code != 0:
		r.tell.say("the command ended with exit code %d", end.code)
		return withCode(end.code, errSilent)
	}
	r.tell.say("the command ended with exit code 0")
	return nil
}

// A onceSay leaves out what it said last.
type onceSay struct {
	mu   sync.Mutex
	last string
	tell func(format string, args ...any)
}

func (o *onceSay) say(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if text := fmt.Sprintf(format, args...); text != o.last {
		o.last = text
		o.tell("%s", text)
	}
}
