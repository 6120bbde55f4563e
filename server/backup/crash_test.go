package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/server/core"
)

// killedVariable makes the test binary restore a file into a directory and
// kill itself before the step with this number.
const killedVariable = "HOLDFAST_TEST_RESTORE_DIES_AT"

func TestMain(m *testing.M) {
	if at, err := strconv.Atoi(os.Getenv(killedVariable)); err == nil {
		f, err := os.Open(os.Args[1])
		if err == nil {
			n := 0
			_, _, err = Restore(f, Options{Dir: os.Args[2], Today: today, Logger: quiet, Step: func(string) error {
				if n++; n == at {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
				return nil
			}})
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) // it was to die
	}
	os.Exit(m.Run())
}

// steps are the names of a restore's steps, in order.
func steps(t *testing.T, file []byte, o Options) (names []string) {
	t.Helper()
	o.Step = func(name string) error { names = append(names, name); return nil }
	if _, _, err := Restore(bytes.NewReader(file), o); err != nil {
		t.Fatal(err)
	}
	return names
}

// place prepares a directory to restore into, absent or empty.
func place(t *testing.T, exists bool) Options {
	t.Helper()
	o := options(t)
	if exists {
		mustDo(t, os.MkdirAll(o.Dir, 0o700))
	}
	return o
}

// whole reports whether a restored service is at the place, and fails if
// there is anything between nothing and all of it.
func whole(t *testing.T, o Options) bool {
	t.Helper()
	names, err := os.ReadDir(o.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(names) == 0 {
		return false
	}
	s := opened(t, o.Dir, Begun{})
	if l, ok := s.Lock("kept", 0); !ok || string(l.Value) != "stays" || s.SessionCount() != 0 || s.Epoch() != 697 {
		t.Fatalf("%s holds another service", o.Dir)
	}
	return true
}

// A restore that dies at any of its steps, by kill -9, leaves wholly the old
// or wholly the new; and the next attempt succeeds, or finds the new.
func TestRestoreKilledAtEachStep(t *testing.T) {
	data := backupOf(t, everyKind(t).s)
	file := filepath.Join(t.TempDir(), "backup")
	mustDo(t, os.WriteFile(file, data, 0o600))
	exe, err := os.Executable()
	mustDo(t, err)
	for _, exists := range []bool{false, true} {
		names := steps(t, data, place(t, exists))
		if names[0] != "make" || names[len(names)-1] != "sync" || names[len(names)-2] != "rename" || len(names) < 7 {
			t.Fatalf("steps %q", names)
		}
		for i, name := range names {
			o := place(t, exists)
			cmd := exec.Command(exe, file, o.Dir)
			cmd.Env = append(os.Environ(), killedVariable+"="+strconv.Itoa(i+1))
			out, err := cmd.CombinedOutput()
			var ended *exec.ExitError
			if !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("before step %d (%s): %v, %s", i+1, name, err, out)
			}
			if is := whole(t, o); is != (name == "sync") {
				t.Errorf("killed before step %d (%s), the new is there: %v", i+1, name, is)
			}
			_, _, err = Restore(bytes.NewReader(data), o)
			if name == "sync" && !errors.Is(err, ErrNotEmpty) || name != "sync" && err != nil {
				t.Errorf("again after step %d (%s): %v", i+1, name, err)
			}
			if !whole(t, o) {
				t.Errorf("again after step %d (%s): nothing is there", i+1, name)
			}
			if _, err := os.Stat(o.Dir + unfinished); err == nil {
				t.Errorf("after step %d (%s) something is left beside", i+1, name)
			}
		}
	}
}

// A step that fails leaves nothing behind, and is named by the error.
func TestRestoreFailsAtEachStep(t *testing.T) {
	data := backupOf(t, everyKind(t).s)
	for _, exists := range []bool{false, true} {
		for i, name := range steps(t, data, place(t, exists)) {
			o, n := place(t, exists), 0
			broken := errors.New("disk on fire")
			o.Step = func(string) error {
				if n++; n == i+1 {
					return broken
				}
				return nil
			}
			_, _, err := Restore(bytes.NewReader(data), o)
			if !errors.Is(err, broken) {
				t.Errorf("step %d (%s): %v", i+1, name, err)
			}
			if is := whole(t, o); is != (name == "sync") {
				t.Errorf("step %d (%s) failed, the new is there: %v", i+1, name, is)
			}
			if _, err := os.Stat(o.Dir + unfinished); err == nil {
				t.Errorf("step %d (%s) failed, and something is left beside", i+1, name)
			}
		}
	}
}

// Whatever a power failure leaves of the directory beside the place, cut and
// with files gone, the next attempt clears it and succeeds.
func TestRestoreAfterCutDirectories(t *testing.T) {
	data := backupOf(t, everyKind(t).s)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		o := place(t, seed%2 == 0)
		broken := errors.New("cut")
		o.Step = func(name string) error {
			if name != "rename" {
				return nil
			}
			// A copy of the complete directory, as the one that died left it.
			mustDo(t, os.CopyFS(o.Dir+".copy", os.DirFS(o.Dir+unfinished)))
			return broken
		}
		if _, _, err := Restore(bytes.NewReader(data), o); !errors.Is(err, broken) {
			t.Fatal(err)
		}
		mustDo(t, os.Rename(o.Dir+".copy", o.Dir+unfinished))
		mustDo(t, filepath.WalkDir(o.Dir+unfinished, func(path string, e fs.DirEntry, err error) error {
			if err != nil || path == o.Dir+unfinished {
				return err
			}
			switch {
			case r.IntN(4) == 0:
				if err := os.RemoveAll(path); err != nil || !e.IsDir() {
					return err
				}
				return fs.SkipDir
			case !e.IsDir() && r.IntN(2) == 0:
				return os.Truncate(path, r.Int64N(2000))
			}
			return nil
		}))
		if whole(t, o) {
			t.Fatal("it is there already")
		}
		o.Step = nil
		if _, _, err := Restore(bytes.NewReader(data), o); err != nil || !whole(t, o) {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// Two attempts at one place at one time: one is told, and never do they mix.
func TestRestoreAtOneTime(t *testing.T) {
	data := backupOf(t, everyKind(t).s)
	o := options(t)
	inner := 0
	second := o
	o.Step = func(name string) error {
		if name == "make" {
			return nil
		}
		inner++
		_, _, err := Restore(bytes.NewReader(data), second)
		if !errors.Is(err, ErrPlace) && !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "another process") && !strings.Contains(err.Error(), "not empty") {
			t.Errorf("beside step %s: %v", name, err)
		}
		return nil
	}
	if _, _, err := Restore(bytes.NewReader(data), o); err != nil || !whole(t, o) || inner < 6 {
		t.Errorf("%v, after %d others", err, inner)
	}
}

// 100,000 locks, half of them held by 1,000 sessions, go through a backup and a
// restore; in the long form 1,000,000 by 100,000.
func TestBackupOfManyLocks(t *testing.T) {
	sessions, each := 1000, 50
	if os.Getenv("HOLDFAST_SOAK") != "" {
		sessions, each = 100_000, 5
	}
	w := newService(t)
	for id := core.SessionID(1); id <= core.SessionID(sessions); id++ {
		w.open(id)
		var cmds []core.Command
		for i := range each {
			cmds = append(cmds, core.Put{Lock: fmt.Sprintf("value/%d/%d", id, i), Value: []byte("value of a common length")})
			cmds = append(cmds, core.Acquire{Session: id, Request: core.Request{Lane: uint32(i), N: 1}, Lock: fmt.Sprintf("lock/%d/%d", id, i), Value: []byte("value of a common length")})
		}
		w.apply(cmds...)
	}
	held := sessions * each
	if n := w.s.LockCount(); n != 2*held {
		t.Fatalf("%d locks", n)
	}
	var file bytes.Buffer
	start := time.Now()
	h, err := Write(&file, w.s, Info{Term: 1, TakenAt: taken})
	if err != nil {
		t.Fatal(err)
	}
	written := time.Now()
	_, b, err := Restore(&file, options(t))
	if err != nil || b.Ended.Grants != held || b.Left.Locks != held || b.Left.Events != 2 {
		t.Fatalf("%+v, %v", b, err)
	}
	t.Logf("%d sessions, %d locks: %d bytes, written in %v, restored in %v", sessions, 2*held, h.StateBytes, written.Sub(start), time.Since(written))
}
