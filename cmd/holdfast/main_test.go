package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaryVariable makes the test binary be holdfast: it then holds the same
// code with the same main, and the tests start it as a process of its own.
const binaryVariable = "HOLDFAST_TEST_IS_HOLDFAST"

func TestMain(m *testing.M) {
	// A fuzz target's own processes inherit the variable and stay tests.
	if os.Getenv(binaryVariable) != "" && !slices.Contains(os.Args, "-test.fuzzworker") {
		if len(os.Args) > 1 && os.Args[1] == fakeRunCommand {
			os.Exit(fakeRun(os.Args[2:]))
		}
		main()
	}
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "HOLDFAST_") && name != soakVariable {
			os.Unsetenv(name) // the tests' own settings only
		}
	}
	os.Setenv(binaryVariable, "1")
	// The tests wait for leases and other processes more than they compute.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6")
	}
	os.Exit(m.Run())
}

// binary is the path of holdfast.
func binary(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// patience is how long a test waits for what must come. It is no measure of
// anything: machines are slow.
const patience = 30 * time.Second

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within(t, patience, what, ok)
}

func within(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("within %v: %s did not come to be", limit, what)
		}
		<-tick.C
	}
}

// A program is a started holdfast.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *safeBuffer
	stderr *safeBuffer
	done   chan struct{}
	err    error
}

// safeBuffer may be read while a process writes to it.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// command prepares holdfast with arguments and further environment.
func newProgram(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, stdout: &safeBuffer{}, stderr: &safeBuffer{}, done: make(chan struct{})}
	p.cmd = exec.Command(binary(t), args...)
	// What a program that is killed leaves behind is removed with the test's
	// own directory.
	p.cmd.Env = append(append(os.Environ(), "GOTRACEBACK=all", "TMPDIR="+t.TempDir()), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	// What a killed program leaves behind may hold its output open.
	p.cmd.WaitDelay = time.Second
	return p
}

func (p *program) start() *program {
	p.t.Helper()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

// start starts holdfast.
func start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return newProgram(t, env, args...).start()
}

// wait waits for the end and returns the exit code; a program that a signal
// ended has the code that a shell would tell.
func (p *program) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		_ = p.cmd.Process.Signal(syscall.SIGABRT) // tells where it hangs
		select {
		case <-p.done:
		case <-time.After(patience):
		}
		p.t.Fatalf("%v did not end; stdout %q, stderr %s", p.cmd.Args[1:], p.stdout, p.stderr)
	}
	if p.err == nil || errors.Is(p.err, exec.ErrWaitDelay) {
		return p.cmd.ProcessState.ExitCode()
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// ended reports whether the program has ended.
func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// expect waits for the end and checks the exit code.
func (p *program) expect(code int) *program {
	p.t.Helper()
	if got := p.wait(); got != code {
		p.t.Fatalf("holdfast %q: exit code %d, want %d; stdout %q, stderr %q", p.cmd.Args[1:], got, code, p.stdout, p.stderr)
	}
	return p
}

// says checks that stderr has each text.
func (p *program) says(texts ...string) *program {
	p.t.Helper()
	for _, text := range texts {
		if !strings.Contains(p.stderr.String(), text) {
			p.t.Errorf("holdfast %q: stderr %q, want it to say %q", p.cmd.Args[1:], p.stderr, text)
		}
	}
	return p
}

// run runs holdfast to its end and checks the exit code.
func run(t *testing.T, code int, env []string, args ...string) *program {
	t.Helper()
	return start(t, env, args...).expect(code)
}

func (p *program) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// readFile is the file's content, or "" while there is none.
func readFile(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// pidFrom waits for a process ID in a file.
func pidFrom(t *testing.T, path string) int {
	t.Helper()
	var pid int
	eventually(t, "a process ID in "+filepath.Base(path), func() bool {
		text := readFile(path)
		if !strings.HasSuffix(text, "\n") {
			return false
		}
		_, err := fmt.Sscan(text, &pid)
		return err == nil
	})
	return pid
}

// alive reports whether a process is there and not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	p, ok := parseStat(pid, stat)
	return ok && !p.dead()
}

func gone(t *testing.T, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(pid) })
	}
}
