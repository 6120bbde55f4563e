package filegate_test

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
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
	"holdfast/gate/filegate"
)

// This test binary is also the other process: with childPath set it does what
// childDo says, to the file at childPath.
const (
	childPath  = "FILEGATE_TEST_PATH"
	childDo    = "FILEGATE_TEST_DO" // write or remove
	childStop  = "FILEGATE_TEST_STOP"
	childDie   = "FILEGATE_TEST_DIE"
	childToken = "FILEGATE_TEST_TOKEN"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(childPath); path != "" {
		if err := child(path); err != nil {
			fmt.Println("refused", err)
			os.Exit(1)
		}
		fmt.Println("done")
		os.Exit(0)
	}
	os.Exit(m.Run())
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

// child arms the gate, reads, and writes. It stops at the point that childStop
// names, and kills itself at the point with the number in childDie.
func child(path string) error {
	ctx := context.Background()
	token, err := fence.ParseToken(os.Getenv(childToken))
	if err != nil {
		return err
	}
	die, _ := strconv.Atoi(os.Getenv(childDie))
	armed, passed := false, 0
	filegate.SetNowhere(func(_ context.Context, point string) {
		if passed++; passed == die {
			fmt.Println("dies before", point)
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if armed && point == os.Getenv(childStop) {
			stopHere()
		}
	})
	g, err := filegate.New(ctx, filegate.Config{Path: path, Lock: token.Lock, Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	if err := g.Arm(ctx, token); err != nil {
		return err
	}
	armed = true
	fmt.Println("armed")
	return g.Do(ctx, token, func(_ context.Context, u *filegate.Update) error {
		if os.Getenv(childStop) == "reading" {
			if _, err := u.Old(); err != nil {
				return err
			}
			stopHere()
		}
		if os.Getenv(childDo) == "remove" {
			u.Remove()
			return nil
		}
		return appendLine(u, token, "child")
	})
}

// process is a child that a test has started.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, path string, token fence.Token, settings ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), childPath+"="+path, childToken+"="+token.String()), settings...)
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

// shop is the parent's side: a file and a gate of its own.
type shop struct {
	*testing.T
	path string
	gate *filegate.Gate
}

func newShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{T: t, path: filepath.Join(newDir(t), "ledger")}
	s.gate = s.another()
	return s
}

func (s *shop) another() *filegate.Gate {
	s.Helper()
	g, err := filegate.New(s.Context(), filegate.Config{Path: s.path, Lock: "invoices", Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		s.Fatal(err)
	}
	return g
}

func (s *shop) write(n uint64, value string) error {
	return suiteGate{s.gate}.Write(s.Context(), fencetest.Write{Token: token(n), Value: value})
}

func (s *shop) values() (got []string) {
	s.Helper()
	entries, err := ledger(s.path)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Value)
	}
	return got
}

func (s *shop) wantValues(want ...string) {
	s.Helper()
	if got := s.values(); !slices.Equal(got, want) {
		s.Fatalf("the file has %q, want %q", got, want)
	}
}

// A pauses after its check; B writes; A goes on to write, or to remove as its
// release would: it is refused, and nothing of B's is touched. The lock is not
// held meanwhile.
func TestCasebookC53_PausedOwnerTouchesNothingOfTheNext(t *testing.T) {
	for _, do := range []string{"write", "remove"} {
		for _, stop := range []string{"reading", filegate.PointPlanned, "lock"} {
			t.Run(do+"/"+stop, func(t *testing.T) {
				s := newShop(t)
				if err := s.write(33, "by 33"); err != nil {
					t.Fatal(err)
				}
				a := start(t, s.path, token(33), childDo+"="+do, childStop+"="+stop)
				a.line("armed")
				a.awaitStopped()
				if err := s.gate.Arm(t.Context(), token(34)); err != nil {
					t.Fatalf("Arm while the older holder is stopped: %v", err)
				}
				if err := s.write(34, "by 34"); err != nil {
					t.Fatalf("Write while the older holder is stopped: %v", err)
				}
				a.signal(syscall.SIGCONT)
				if said := a.line("refused"); !strings.Contains(said, "stale") || !strings.Contains(said, "33") || !strings.Contains(said, "34") {
					t.Fatalf("the late one got %q; want stale, with 33 and 34", said)
				}
				s.wantValues("by 33", "by 34")
				s.wantClean()
			})
		}
	}
}

// Nobody takes a lock over for its age: a holder that is stopped in the final
// step keeps it, however old all files look, and Arm fails in bounded time and
// names the process. When it is killed, the lock is free at once.
func TestCasebookC53_AgeIsNoDeath(t *testing.T) {
	for _, stop := range []string{filegate.PointLocked, filegate.PointFinal} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/killed=%t", stop, killed), func(t *testing.T) {
				s := newShop(t)
				a := start(t, s.path, token(33), childStop+"="+stop)
				a.line("armed")
				a.awaitStopped()
				s.age()
				s.gate.SetBound(200 * time.Millisecond)
				began := time.Now()
				err := s.gate.Arm(t.Context(), token(34))
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("Arm took %v, want about 200ms", took)
				}
				var undrained *fence.UndrainedError
				if !errors.As(err, &undrained) || !strings.Contains(undrained.By, fmt.Sprintf("process %d ", a.cmd.Process.Pid)) ||
					!strings.Contains(undrained.By, "stopped") || !strings.Contains(undrained.By, "token 33") {
					t.Fatalf("Arm got %v; want *fence.UndrainedError that names process %d, that it is stopped, and token 33", err, a.cmd.Process.Pid)
				}
				s.gate.SetBound(20 * time.Second)
				want := []string{"child", "by 34"}
				if killed {
					a.signal(syscall.SIGKILL)
					_ = a.cmd.Wait()
					want = want[1:]
				} else {
					a.signal(syscall.SIGCONT)
					a.line("done") // it was admitted, and nobody newer was
				}
				if err := s.write(34, "by 34"); err != nil {
					t.Fatal(err)
				}
				s.wantValues(want...)
				s.another() // removes what the dead have left
				s.wantClean()
			})
		}
	}
}

// age makes everything of the gate look a day old.
func (s *shop) age() {
	s.Helper()
	yesterday := time.Now().Add(-24 * time.Hour)
	err := filepath.WalkDir(filepath.Dir(s.path), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, yesterday, yesterday)
	})
	if err != nil {
		s.Fatal(err)
	}
}

// wantClean checks that nothing temporary is left.
func (s *shop) wantClean() {
	s.Helper()
	err := filepath.WalkDir(filepath.Dir(s.path), func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".scratch") {
			s.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil {
		s.Fatal(err)
	}
}

// A process is killed before each of the system calls of opening, arming and
// writing, in a new directory and in one that has a gate: the file is the old
// one or the new one, the record is whole, its mark never falls, the next
// holder works, and nothing is left.
func TestCasebookC53_KilledBeforeEachSystemCall(t *testing.T) {
	for _, fresh := range []bool{true, false} {
		points := map[string]int{}
		for die := 1; ; die++ {
			s := &shop{T: t, path: filepath.Join(newDir(t), "ledger")}
			var had []string
			if !fresh {
				s.gate = s.another()
				if err := s.write(33, "one"); err != nil {
					t.Fatal(err)
				}
				had = []string{"one"}
			}
			a := start(t, s.path, token(34), childDie+"="+strconv.Itoa(die))
			said, err := io.ReadAll(a.out)
			if err != nil {
				t.Fatal(err)
			}
			_ = a.cmd.Wait()
			last := strings.TrimSpace(string(said))
			last = last[strings.LastIndex(last, "\n")+1:]
			s.afterDeath(last, had, strings.Contains(string(said), "armed"))
			if last == "done" {
				break
			}
			points[strings.TrimPrefix(last, "dies before ")]++
		}
		want := []string{"create", "created", "write", "sync", "announce", "planned", "lock", "locked", "raise", "final", "unlock", "sync-room", "sync-parent"}
		for _, point := range want {
			if points[point] == 0 {
				t.Errorf("new directory %t: no child died before %s: %v", fresh, point, points)
			}
		}
	}
}

func (s *shop) afterDeath(last string, had []string, armed bool) {
	s.Helper()
	got := s.values()
	if old, new := slices.Equal(got, had), slices.Equal(got, append(slices.Clone(had), "child")); !old && !new || (last == "done" && !new) {
		s.Fatalf("%s: the file has %q", last, got)
	}
	s.gate = s.another()
	state, err := s.gate.Show(s.Context())
	if err != nil {
		s.Fatalf("%s: Show: %v", last, err)
	}
	mark := state.Mark(token(1).Domain, 0).Number
	if mark != 34 && (armed || len(had) > 0 && mark != 33 || mark != 0 && mark != 33) {
		s.Fatalf("%s: the mark is %d", last, mark)
	}
	if err := s.write(35, "next"); err != nil {
		s.Fatalf("%s: the next holder's write: %v", last, err)
	}
	if err := s.write(34, "late"); fence.KindOf(err) != fence.KindStale {
		s.Fatalf("%s: a late write got %v", last, err)
	}
	s.wantValues(append(got, "next")...)
	s.wantClean()
}
