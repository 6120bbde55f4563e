package stage

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"holdfast/engine/cluster"
	"holdfast/server"
)

// reexecVariable makes this test binary one of the programs that the tests
// start as processes of their own; its first argument says which.
const reexecVariable = "HOLDFAST_STAGE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(reexecVariable) != "" && len(os.Args) > 1 {
		if err := playedAs(os.Args[1], os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Setenv(reexecVariable, "1")
	// The tests wait for leases and processes more than they compute.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("5")
	}
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

// leaks waits for goroutines to end: the line of a worker that was killed in
// this process takes a second to give up.
func leaks() int {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := goleak.Find()
		if err == nil {
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
}

func playedAs(name string, args []string) error {
	switch name {
	case "worker":
		spec, err := ParseWorkerSpec(args[0])
		if err != nil {
			return err
		}
		return RunWorker(context.Background(), spec, os.Stdin, os.Stdout)
	case "sweeper":
		return Sweep(context.Background(), args[0], os.Stdin)
	case "mother":
		return mother()
	case "family":
		return family(args[0])
	}
	return fmt.Errorf("no program %q", name)
}

// exe is how a program of this test binary is started.
func exe(t *testing.T, name string) []string {
	t.Helper()
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, name}
}

const (
	testLock = "invoices"
	// shortTTL is for workers whose lease must run out, longTTL for those
	// whose lease must not, however busy the machine is.
	shortTTL = 2 * time.Second
	longTTL  = 10 * time.Second
	// most is how long a test waits for what must come. It is no measure of
	// anything: machines are slow.
	most = 30 * time.Second
)

// A play is a lock service with a ledger, for workers of one kind.
type play struct {
	t       *testing.T
	kind    string
	srv     *server.Server
	path    string
	ledger  *Ledger
	watcher *cluster.Client
}

// kinds plays a test with workers of each kind.
func kinds(t *testing.T, test func(t *testing.T, p *play)) {
	t.Parallel()
	for _, kind := range []string{"process", "in-process"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newPlay(t, kind))
		})
	}
}

func newPlay(t *testing.T, kind string) *play {
	t.Helper()
	dir := memoryDir(t)
	p := &play{t: t, kind: kind, path: filepath.Join(dir, "ledger.sqlite")}
	var err error
	p.srv, err = server.Start(context.Background(), server.Config{
		Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "service"), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stopService)
	if p.ledger, err = OpenLedger(t.Context(), p.path, testLock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.ledger.Close() })
	if p.watcher, err = cluster.Dial(t.Context(), p.srv.Addr(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.watcher.Close(context.Background()) })
	return p
}

// memoryDir is a directory in memory, where there is such a thing: leases of a
// second should not depend on how busy the disk is just now.
func memoryDir(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-stage-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (p *play) stopService() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_ = p.srv.Stop(ctx)
}

func (p *play) spec(name, value string) WorkerSpec {
	return WorkerSpec{Name: name, Value: value, TTL: longTTL, Server: p.srv.Addr(), Lock: testLock, Ledger: p.path, Fencing: BySwitch}
}

// hire starts a worker of the play's kind, and waits until it is ready.
func (p *play) hire(name, value string) *actor {
	return p.hireSpec(p.spec(name, value))
}

// mortal is hire for a worker whose lease is to run out.
func (p *play) mortal(name, value string) *actor {
	spec := p.spec(name, value)
	spec.TTL = shortTTL
	return p.hireSpec(spec)
}

func (p *play) hireSpec(spec WorkerSpec) *actor {
	p.t.Helper()
	var w Worker
	var err error
	if p.kind == "process" {
		w, err = StartProcess(p.t.Context(), exe(p.t, "worker"), spec)
	} else {
		w, err = StartInProcess(p.t.Context(), spec)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(w.Kill)
	a := &actor{Worker: w, t: p.t, name: spec.Name}
	a.await(SaidReady)
	return a
}

// An actor is a worker and what it said.
type actor struct {
	Worker
	t    *testing.T
	name string
	all  []Said
}

// await reads what the worker says until it says what; an error that was not
// waited for fails the test.
func (a *actor) await(what ...string) Said {
	a.t.Helper()
	deadline := time.After(most)
	for {
		select {
		case s, ok := <-a.Said():
			if !ok {
				a.t.Fatalf("worker %s ended before it said %q; it said %+v", a.name, what, a.all)
			}
			a.all = append(a.all, s)
			for _, w := range what {
				if s.Event == w {
					return s
				}
			}
			if s.Event == SaidError || s.Event == SaidEnded {
				a.t.Fatalf("worker %s instead of %q: %s: %s", a.name, what, s.Event, s.Text)
			}
		case <-deadline:
			a.t.Fatalf("worker %s did not say %q; it said %+v", a.name, what, a.all)
		}
	}
}

// tell tells it a word and waits until it says what.
func (a *actor) tell(word string, what ...string) Said {
	a.t.Helper()
	if err := a.Tell(word); err != nil {
		a.t.Fatal(err)
	}
	return a.await(what...)
}

// freeze reads on meanwhile, to the last that was said before.
func (a *actor) freeze() {
	a.t.Helper()
	done := make(chan error, 1)
	go func() { done <- a.Freeze(a.t.Context()) }()
	frozen := false
	eventually(a.t, "a worker that stands still and has been heard", func() bool {
		select {
		case s := <-a.Said():
			a.all = append(a.all, s)
		case err := <-done:
			if err != nil {
				a.t.Fatal(err)
			}
			frozen = true
		default:
		}
		return frozen && a.unread().idle()
	})
}

// unread is what it said and nobody has read.
func (a *actor) unread() *sayings {
	if p, ok := a.Worker.(*Process); ok {
		return p.said
	}
	return a.Worker.(*inProcess).said
}

func (a *actor) thaw() {
	a.t.Helper()
	if err := a.Thaw(); err != nil {
		a.t.Fatal(err)
	}
}

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(most)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come to be", what)
		}
		<-tick.C
	}
}

// released waits until the service frees the lock of a token, and returns why.
func (p *play) released(token uint64) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), most)
	defer cancel()
	for batch, err := range p.watcher.Watch(ctx, cluster.WatchOptions{Lock: testLock, After: new(uint64)}) {
		if err != nil {
			p.t.Fatal(err)
		}
		for _, e := range batch.Events {
			if e.Kind == "released" && e.Token.Number == token {
				return e.Cause
			}
		}
	}
	p.t.Fatalf("token %d was not freed", token)
	return ""
}
