package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"holdfast/server"
)

// mother is a program that has a directory swept, and leaves files in it until
// it is ended.
func mother() error {
	self, err := Self()
	if err != nil {
		return err
	}
	dir, sweeper, err := SweptDir("test", []string{self, "sweeper"})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "deep", "er"), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "deep", "er", "file"), []byte("x"), 0o400); err != nil {
		return err
	}
	fmt.Println(dir)
	fmt.Println(sweeper.PID())
	select {}
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// TestSweeperAfterKill: the program is killed, and its directory goes; nothing
// that ends programs keeps the sweeper from it, and it holds nothing open.
func TestSweeperAfterKill(t *testing.T) {
	t.Parallel()
	inherit, keep, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer inherit.Close()
	self := exe(t, "mother")
	cmd := exec.Command(self[0], self[1])
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.ExtraFiles = []*os.File{keep} // not marked for exec there
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	keep.Close()
	var dir string
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &dir, &pid); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a sweeper that ignores signals, and has only its own files", func() bool {
		return ignores(pid, syscall.SIGTERM) && len(strangeFiles(t, pid)) == 0
	})
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE} {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
	if sid, err := syscall.Getpgid(pid); err != nil || sid != pid {
		t.Errorf("the sweeper %d stands in group %d, %v", pid, sid, err)
	}
	if !there(filepath.Join(dir, "deep", "er", "file")) {
		t.Fatal("the directory was swept while its program lived")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the end of the directory", func() bool { return !there(dir) })
	eventually(t, "the end of the sweeper", func() bool { return ended(pid) })
}

// ignores reports whether the process ignores a signal.
func ignores(pid int, sig syscall.Signal) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		var mask uint64
		if n, _ := fmt.Sscanf(line, "SigIgn:\t%x", &mask); n == 1 {
			return mask&(1<<(sig-1)) != 0
		}
	}
	return false
}

// strangeFiles are open files of the process that a sweeper has no use for.
func strangeFiles(t *testing.T, pid int) []string {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var strange []string
	for _, fd := range fds {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name()))
		if err != nil {
			continue
		}
		switch {
		case fd.Name() == "0" || fd.Name() == "2":
			if !strings.HasPrefix(to, "pipe:") {
				strange = append(strange, to)
			}
		case fd.Name() == "1" && to == os.DevNull:
		case strings.HasPrefix(to, "anon_inode:"), strings.HasPrefix(to, "/sys/fs/cgroup/"): // the runtime's own
		default:
			strange = append(strange, fd.Name()+" "+to)
		}
	}
	return strange
}

func TestSweeperClose(t *testing.T) {
	dir, s, err := SweptDir("test", exe(t, "sweeper"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if there(dir) {
		t.Errorf("%s is still there", dir)
	}
}

// TestSweeperWasEnded: somebody kills the sweeper; Close does its work.
func TestSweeperWasEnded(t *testing.T) {
	dir, s, err := SweptDir("test", exe(t, "sweeper"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil || there(dir) {
		t.Errorf("%v; still there: %v", err, there(dir))
	}
}

func TestSweeperMeetsAnEmptyPlace(t *testing.T) {
	dir, s, err := SweptDir("test", exe(t, "sweeper"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// family is a program with a service and a worker that stands still before a
// write, with the word to write in its pipe. It does not end by a hang-up, and
// so neither does the worker.
func family(dir string) error {
	ctx := context.Background()
	signal.Ignore(syscall.SIGHUP)
	srv, err := server.Start(ctx, server.Config{Listen: "127.0.0.1:0", Dir: filepath.Join(dir, "service"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	self, err := Self()
	if err != nil {
		return err
	}
	w, err := StartProcess(ctx, []string{self, "worker"}, WorkerSpec{
		Name: "A", Value: "from A", TTL: longTTL, Server: srv.Addr(), Lock: testLock, Ledger: filepath.Join(dir, "ledger"), Fencing: Always,
	})
	if err != nil {
		return err
	}
	if err := w.Tell(DoAcquire); err != nil {
		return err
	}
	for s := range w.Said() {
		if s.Event == SaidAcquired {
			err = w.Tell(DoPoise)
		}
		if s.Event == SaidLooked || err != nil {
			break
		}
	}
	if err := errors.Join(err, w.Freeze(ctx), w.Tell(DoGo)); err != nil {
		return err
	}
	fmt.Println(w.PID())
	select {}
}

// TestWorkersDieWithTheirProgram: also if that is killed while they stand
// still. The kernel wakes them then, and they must not do what they were told.
func TestWorkersDieWithTheirProgram(t *testing.T) {
	t.Parallel()
	self := exe(t, "family")
	dir := t.TempDir()
	cmd := exec.Command(self[0], self[1], dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(bufio.NewReader(out), &pid); err != nil {
		t.Fatal(err)
	}
	if !standsStill(pid) {
		t.Error("the worker does not stand still")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "the end of the worker", func() bool { return ended(pid) })
	if n, err := openLedger(t, filepath.Join(dir, "ledger")).Last(t.Context()); err != nil || n != 0 {
		t.Errorf("the worker outlived its program and wrote: the last line is %d, %v", n, err)
	}
}

// ended reports whether a process has ended, waited for or not.
func ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// notOurs makes directories in temp that a sweeper must not touch; good is one
// that it may.
func notOurs(t *testing.T, temp, good string) map[string]string {
	t.Helper()
	fresh := func(name string) string {
		dir := filepath.Join(temp, name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	marked := func(dir, text string) string {
		if err := os.WriteFile(filepath.Join(dir, markFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	link := filepath.Join(temp, dirPrefix+"link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	linkedMark := fresh(dirPrefix + "linked-mark")
	if err := os.Symlink(filepath.Join(marked(fresh("store"), linkedMark+"\n"), markFile), filepath.Join(linkedMark, markFile)); err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(good, dirPrefix+"deep")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(temp, dirPrefix+"file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"no mark":         fresh(dirPrefix + "bare"),
		"another's mark":  marked(fresh(dirPrefix+"copied"), good+"\n"),
		"other name":      marked(fresh("other"), filepath.Join(temp, "other")+"\n"),
		"symbolic link":   link,
		"linked mark":     linkedMark,
		"relative":        filepath.Base(good),
		"not clean":       good + "/../" + filepath.Base(good),
		"elsewhere":       marked(deep, deep+"\n"),
		"the root":        "/",
		"empty":           "",
		"the temp itself": temp,
		"a file":          file,
		"missing":         filepath.Join(temp, dirPrefix+"missing"),
	}
}

// TestWhatIsNotSwept: directories that are not ours stay, whoever asks.
func TestWhatIsNotSwept(t *testing.T) {
	temp, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", temp)
	good, err := MakeDir("test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := recognise(good); err != nil {
		t.Fatal(err)
	}
	for name, dir := range notOurs(t, temp, good) {
		if _, err := recognise(dir); err == nil {
			t.Errorf("%s: %q is taken for ours", name, dir)
		}
		if _, err := StartSweeper(dir, exe(t, "sweeper")); err == nil {
			t.Errorf("%s: a sweeper is started for %q", name, dir)
		}
		self := exe(t, "sweeper")
		out, err := exec.Command(self[0], self[1], dir).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "will not be removed") {
			t.Errorf("%s: the sweeper says %v, %q", name, err, out)
		}
		if name != "missing" && name != "relative" && name != "empty" && !there(dir) {
			t.Errorf("%s: %q is gone", name, dir)
		}
	}
	if !there(good) {
		t.Error("a directory went that nobody swept")
	}
}

// TestSweeperOfAnother: the directory is exchanged for another one of the same
// name, which is not touched by the sweeper.
func TestSweeperOfAnother(t *testing.T) {
	dir, s, err := SweptDir("test", exe(t, "sweeper"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "a sweeper that has looked", func() bool { return ignores(s.PID(), syscall.SIGTERM) && waits(s.PID()) })
	away := filepath.Join(t.TempDir(), "away")
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "another one") || !there(dir) || !there(away) {
		t.Errorf("%v; there: %v, %v", err, there(dir), there(away))
	}
}

// waits reports whether the process sleeps in a read of its standard input.
func waits(pid int) bool {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil {
		return false
	}
	for _, path := range tasks {
		if text, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(text), "0 0x0 ") {
			return true
		}
	}
	return false
}
