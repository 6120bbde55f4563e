package sqlgate_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/sqlgate"
	"holdfast/internal/pgtest"
)

// This test binary is also the other process: with childEnv set it does what
// childDo says, on the database at childEnv.
const (
	childEnv   = "SQLGATE_TEST_DATABASE"
	childDo    = "SQLGATE_TEST_DO"
	childToken = "SQLGATE_TEST_TOKEN"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		run := child
		if strings.HasPrefix(path, "postgres://") {
			run = childOnPostgres
		}
		if err := run(path, os.Getenv(childDo), os.Getenv(childToken)); err != nil {
			fmt.Println("refused", err)
			os.Exit(1)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	os.Exit(pgtest.Main(m))
}

// dieT is the T of a child: it has nobody to tell but its parent.
type dieT struct{ fencetest.T }

func (dieT) Helper()        {}
func (dieT) Cleanup(func()) {}
func (dieT) Fatalf(format string, args ...any) {
	fmt.Printf("failed "+format+"\n", args...)
	os.Exit(2)
}

// stopHere stops this process as an operator or a debugger would, and returns
// when it goes on. (The kernel stops a process's threads one by one, so the
// calling one waits, lest it run on for a moment.)
func stopHere() {
	goOn := make(chan os.Signal, 1)
	signal.Notify(goOn, syscall.SIGCONT)
	defer signal.Stop(goOn)
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-goOn
}

// child arms the gate, reads, and writes; where it stops is what do says.
func child(path, do, text string) error {
	ctx := context.Background()
	token, err := fence.ParseToken(text)
	if err != nil {
		return err
	}
	g, err := sqlgate.New(ctx, openDB(dieT{}, path), sqlgate.Config{Lock: token.Lock, Dialect: sqlgate.SQLite, Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	g.SetReached(func(_ context.Context, point string) {
		if point == do {
			stopHere()
		}
	})
	if err := g.Arm(ctx, token); err != nil {
		return err
	}
	fmt.Println("armed")
	if do == "before" {
		stopHere()
	}
	for i := 0; ; i++ {
		err := g.Do(ctx, token, func(ctx context.Context, s *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
			var n int
			if err := s.QueryRow(ctx, `SELECT count(*) FROM ledger`).Scan(&n); err != nil {
				return nil, err
			}
			if do == "reading" {
				stopHere()
			}
			return []sqlgate.Stmt{sqlgate.Exec(`INSERT INTO ledger (token, value) VALUES (?, ?)`, token.String(), strconv.Itoa(i))}, nil
		})
		if err != nil || do != "loop" {
			return err
		}
		fmt.Println("wrote", i)
	}
}

// process is a child that a test has started.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, path, do string, token fence.Token) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path, childDo+"="+do, childToken+"="+token.String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // a stopped process dies of it too
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return &process{t: t, cmd: cmd, out: bufio.NewReader(out)}
}

func (p *process) line(want string) string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil || !strings.HasPrefix(line, want) {
		p.t.Fatalf("the child said %q, %v; want %q", line, err, want)
	}
	return strings.TrimSpace(line)
}

// awaitStopped returns when the kernel says that the child is stopped.
func (p *process) awaitStopped() {
	p.t.Helper()
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || !status.Stopped() {
			p.t.Fatalf("waiting for the child to stop: %v, status %#x", err, status)
		}
		return
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// shop is the parent's side: a database and a gate of its own.
type shop struct {
	*testing.T
	path     string
	resource *resource
	gate     *sqlgate.Gate
}

func newShop(t *testing.T) *shop {
	t.Helper()
	path := newPath(t)
	db := openDB(t, path)
	if _, err := db.Exec(createLedger); err != nil {
		t.Fatal(err)
	}
	g, err := sqlgate.New(t.Context(), db, sqlgate.Config{Lock: "invoices", Dialect: sqlgate.SQLite, Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &shop{t, path, &resource{path: path, db: db}, g}
}

func (s *shop) write(t fence.Token, value string) error {
	return suiteGate{s.gate}.Write(s.Context(), fencetest.Write{Token: t, Value: value})
}

func (s *shop) wantValues(want ...string) {
	s.Helper()
	var got []string
	for _, e := range s.resource.Ledger(s) {
		got = append(got, e.Value)
	}
	if !slices.Equal(got, want) {
		s.Fatalf("the ledger has %q, want %q", got, want)
	}
}

func token(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 2, Lock: "invoices", Mode: fence.Exclusive, Number: n}
}

// A real process is stopped; the next holder arms and writes; the late write
// is refused by the gate, with both numbers. Stopped before the guarded step,
// while it reads, and when it has read: none of them holds the door.
func TestCasebookC01_StoppedProcessWritesLate(t *testing.T) {
	for _, where := range []string{"before", "reading", sqlgate.PointPlanned} {
		t.Run(where, func(t *testing.T) {
			s := newShop(t)
			a := start(t, s.path, where, token(33))
			a.line("armed")
			a.awaitStopped()
			if err := s.gate.Arm(t.Context(), token(34)); err != nil {
				t.Fatalf("Arm while the older holder is stopped: %v", err)
			}
			if err := s.write(token(34), "by 34"); err != nil {
				t.Fatalf("Write while the older holder is stopped: %v", err)
			}
			a.signal(syscall.SIGCONT)
			if said := a.line("refused"); !strings.Contains(said, "stale") || !strings.Contains(said, "33") || !strings.Contains(said, "34") {
				t.Fatalf("the late writer got %q; want stale, with 33 and 34", said)
			}
			s.wantValues("by 34")
		})
	}
}

// The same script corrupts when nobody raises the mark: the test can fail.
func TestCasebookC01_WithoutTheGateItLands(t *testing.T) {
	s := newShop(t)
	a := start(t, s.path, "before", token(33))
	a.line("armed")
	a.awaitStopped()
	if _, err := s.resource.db.Exec(`INSERT INTO ledger (token, value) VALUES (?, 'past the gate')`, token(34).String()); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGCONT)
	a.line("done")
	s.wantValues("past the gate", "0")
}

// A process that is stopped within the final step holds SQLite's only write
// lock: Arm fails in bounded time and names it. When it goes on, its write is
// lawful, since no newer token was armed.
func TestStoppedInTheFinalStep(t *testing.T) {
	for _, where := range []string{sqlgate.PointLocked, sqlgate.PointUncommitted} {
		t.Run(where, func(t *testing.T) {
			s := newShop(t)
			if err := s.gate.Arm(t.Context(), token(33)); err != nil { // else it stops while it arms
				t.Fatal(err)
			}
			a := start(t, s.path, where, token(33))
			a.line("armed")
			a.awaitStopped()
			s.gate.SetBound(200 * time.Millisecond)
			began := time.Now()
			err := s.gate.Arm(t.Context(), token(34))
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("Arm took %v, want about 200ms", took)
			}
			var undrained *fence.UndrainedError
			if !errors.As(err, &undrained) || !strings.Contains(undrained.By, "token 33") {
				t.Fatalf("Arm got %v; want *fence.UndrainedError that names token 33", err)
			}
			if err := s.write(token(34), "must not land"); !errors.Is(err, fence.ErrUndrained) {
				t.Fatalf("Write got %v; want ErrUndrained", err)
			}
			a.signal(syscall.SIGCONT)
			a.line("done")
			s.gate.SetBound(20 * time.Second)
			if err := s.gate.Arm(t.Context(), token(34)); err != nil {
				t.Fatal(err)
			}
			if err := s.write(token(33), "late"); fence.KindOf(err) != fence.KindStale {
				t.Fatalf("the old token got %v; want stale", err)
			}
			s.wantValues("0")
		})
	}
}

// A process that is killed within the final step leaves nothing behind: no
// write, no lock, and the mark that it had armed.
func TestKilledInTheFinalStep(t *testing.T) {
	s := newShop(t)
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	a := start(t, s.path, sqlgate.PointUncommitted, token(5))
	a.line("armed")
	a.awaitStopped()
	a.signal(syscall.SIGKILL)
	_ = a.cmd.Wait()
	if err := s.write(token(4), "stale"); fence.KindOf(err) != fence.KindStale {
		t.Fatalf("a lower token got %v; want stale", err)
	}
	if err := s.write(token(5), "goes on"); err != nil {
		t.Fatal(err)
	}
	s.wantValues("goes on")
}

// A process that is killed at any moment loses nothing that it was told had
// been written, and the mark stays.
func TestKilledBetweenCalls(t *testing.T) {
	for writes := range 4 {
		s := newShop(t)
		a := start(t, s.path, "loop", token(9007199254740993))
		a.line("armed")
		for i := range writes {
			a.line("wrote " + strconv.Itoa(i))
		}
		a.signal(syscall.SIGKILL)
		said, _ := io.ReadAll(a.out)
		_ = a.cmd.Wait()
		told := writes + strings.Count(string(said), "wrote ")
		entries := len(s.resource.Ledger(t))
		if entries < told || entries > told+1 {
			t.Fatalf("the child was told of %d writes, and the ledger has %d", told, entries)
		}
		if err := s.gate.Arm(t.Context(), token(9007199254740992)); fence.KindOf(err) != fence.KindStale {
			t.Fatalf("a lower token got %v; want stale", err)
		}
		state, err := s.gate.Show(t.Context())
		if err != nil || len(state.Marks) != 1 || state.Marks[0].Token != token(9007199254740993) || !strings.Contains(state.Marks[0].RaisedBy, strconv.Itoa(a.cmd.Process.Pid)) {
			t.Fatalf("Show gave %+v, %v; want the child's mark, raised by process %d", state, err, a.cmd.Process.Pid)
		}
		if err := s.write(token(9007199254740994), "next"); err != nil {
			t.Fatal(err)
		}
	}
}
