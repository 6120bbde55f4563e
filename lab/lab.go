package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"holdfast/lab/stage"
	"holdfast/server"
)

// DefaultListen is where a lab listens unless told otherwise: a free port of
// this machine.
const DefaultListen = "127.0.0.1:0"

// DefaultIdle is how long a world lives without an action of its visitor.
const DefaultIdle = 30 * time.Minute

// Config says how a lab is to run. Only WorkerCommand and SweeperCommand have
// no default, and are needed unless InProcess, or Dir, makes them needless.
type Config struct {
	// Listen is the address for browsers, host:port; default [DefaultListen].
	// Without Insecure it must be loopback.
	Listen string
	// Insecure allows to listen where others can connect: whoever can, can
	// then start processes on this machine.
	Insecure bool
	// Idle is how long a world lives without an action; default
	// [DefaultIdle]. One without a page ends after 90 s: a browser lets a page
	// that nobody sees ask once a minute.
	Idle time.Duration
	// Dir is where everything of the lab goes. The lab removes what it put
	// there, but not Dir; whoever ends the process by force must. Default: a
	// fresh temporary directory, which is removed however the lab ends.
	Dir string
	// InProcess runs workers in this process, which is what happens anyway on
	// systems without signals that stop and continue a process.
	InProcess bool
	// WorkerCommand is the command line that runs [stage.RunWorker]; the
	// worker's description is appended.
	WorkerCommand []string
	// SweeperCommand is the command line that runs [stage.Sweep]; the
	// directory is appended.
	SweeperCommand []string
	// Page is what the page is made of; default what was built in.
	Page fs.FS
	// Logger gets what went wrong; default slog.Default().
	Logger *slog.Logger
	// Version is what the worlds' lock services say they are; default "dev".
	Version string

	hooks hooks // for tests of this package
}

// hooks are limits that tests make smaller.
type hooks struct {
	pageWithin, pageIdle, tidyEvery, patience, writeWithin time.Duration
	journalKeeps                                           int
}

// A Lab serves the page, and a world to each page. Its methods may be called
// from any goroutine.
type Lab struct {
	cfg      Config
	listener net.Listener
	http     *http.Server
	dir      string
	sweeper  *stage.Sweeper // nil if the directory is the caller's
	worlds   *worlds
	serving  atomic.Int64 // requests that are served now
	made     atomic.Int64 // worlds, since the start

	stop  chan context.Context
	ended chan struct{} // closed when everything has stopped
	err   error         // set before ended is closed
}

// Start makes the lab's directory and serves its port. It returns once the
// page can be opened at [Lab.URL]. An address that cannot be used, and a
// configuration that breaks a rule, are errors that say what to do.
func Start(ctx context.Context, cfg Config) (*Lab, error) {
	cfg, err := cfg.complete(ctx)
	if err != nil {
		return nil, err
	}
	l := &Lab{cfg: cfg, worlds: newWorlds(cfg), stop: make(chan context.Context, 1), ended: make(chan struct{})}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("the lab cannot listen on %s: %w: choose another address, or port 0 for a free one", cfg.Listen, err)
	}
	l.listener = &limited{Listener: listener, free: make(chan struct{}, maxConns), closed: make(chan struct{})}
	if err := l.settle(); err != nil {
		_ = l.listener.Close()
		return nil, err
	}
	l.http = newHTTP(l.guarded(l.routes()), cfg.Logger)
	served := make(chan error, 1)
	go func() { served <- l.http.Serve(l.listener) }()
	go l.run(served)
	cfg.Logger.Info("the lab serves", "address", l.Addr(), "dir", l.dir)
	return l, nil
}

// complete fills in defaults and refuses what cannot work.
func (c Config) complete(ctx context.Context) (Config, error) {
	if c.Listen == "" {
		c.Listen = DefaultListen
	}
	if c.Idle == 0 {
		c.Idle = DefaultIdle
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Page == nil {
		c.Page = builtIn()
	}
	c.InProcess = c.InProcess || !stage.Signals
	h := &c.hooks
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{{&h.pageWithin, 5 * time.Second}, {&h.pageIdle, 90 * time.Second}, {&h.tidyEvery, time.Second}, {&h.patience, 8 * time.Second}, {&h.writeWithin, writeWithin}} {
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if h.journalKeeps == 0 {
		h.journalKeeps = journalKeeps
	}
	switch {
	case c.Idle < 0:
		return c, fmt.Errorf("idle is %v: want more than 0", c.Idle)
	case !c.InProcess && len(c.WorkerCommand) == 0:
		return c, errors.New("there is no worker command: want one, or workers in this process")
	case c.Dir == "" && len(c.SweeperCommand) == 0:
		return c, errors.New("there is no sweeper command: want one, or a directory that somebody else removes")
	}
	return c, c.checkListen(ctx)
}

func (c Config) checkListen(ctx context.Context) error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("listen is %q: want host:port, for example %s: %w", c.Listen, DefaultListen, err)
	}
	loopback, err := server.OnLoopback(ctx, host)
	switch {
	case err != nil:
		return fmt.Errorf("listen is %q: %w", c.Listen, err)
	case !loopback && !c.Insecure:
		return fmt.Errorf("listen is %q, which others can reach, and whoever reaches the lab can start and stop its processes on this machine: listen on loopback (%s), or accept that with insecure", c.Listen, DefaultListen)
	}
	return nil
}

// settle makes the directory, and has it removed whatever happens.
func (l *Lab) settle() (err error) {
	if l.cfg.Dir != "" {
		if l.dir, err = filepath.Abs(l.cfg.Dir); err == nil {
			err = os.MkdirAll(l.dir, 0o700)
		}
	} else {
		l.dir, l.sweeper, err = stage.SweptDir("lab", l.cfg.SweeperCommand)
	}
	if err != nil {
		return fmt.Errorf("the lab's directory: %w", err)
	}
	return nil
}

// run tidies up until there is a reason to end, and ends everything.
func (l *Lab) run(served <-chan error) {
	tick := time.NewTicker(l.cfg.hooks.tidyEvery)
	defer tick.Stop()
	ctx := context.Background()
	for going := true; going; {
		select {
		case <-tick.C:
			l.worlds.tidy()
		case ctx = <-l.stop:
			going = false
		case err := <-served:
			l.err = fmt.Errorf("the lab's port failed: %w", err)
			going = false
		}
	}
	l.worlds.close("the lab was stopped")
	l.hangUp(ctx)
	l.worlds.living.Wait()
	if l.sweeper != nil {
		l.err = errors.Join(l.err, l.sweeper.Close())
	}
	close(l.ended)
}

// hangUp stops listening, waits until the pages were told that their worlds
// have ended and calls were answered, at most 2 s, and closes the connections.
// (http's own Shutdown would wait for those on which nothing was asked yet.)
func (l *Lab) hangUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_ = l.listener.Close()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for l.serving.Load() > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	_ = l.http.Close()
}

// Addr is the address that the lab listens on, host:port.
func (l *Lab) Addr() string { return l.listener.Addr().String() }

// URL is the address of the page, for a browser on this machine.
func (l *Lab) URL() string {
	host, port, _ := net.SplitHostPort(l.Addr())
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/lab"
}

// Wait returns when the lab has ended: nil after a clean [Lab.Stop], else why.
func (l *Lab) Wait() error {
	<-l.ended
	return l.err
}

// Stop ends all worlds and the port; no process and no file is left. It
// returns when that is so, or ctx ends; then the rest goes on ending. It may
// be called more than once.
func (l *Lab) Stop(ctx context.Context) error {
	select {
	case l.stop <- ctx:
	default: // somebody else did
	}
	select {
	case <-l.ended:
		return l.err
	case <-ctx.Done():
		return fmt.Errorf("the lab is still stopping: %w", context.Cause(ctx))
	}
}
