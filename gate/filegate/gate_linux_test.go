package filegate_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/gate/filegate"
)

func (s *shop) config() filegate.Config {
	return filegate.Config{Path: s.path, Lock: "invoices", Bound: 20 * time.Second, Logger: slog.New(slog.DiscardHandler)}
}

func (s *shop) room() string {
	return filepath.Join(filepath.Dir(s.path), "."+filepath.Base(s.path)+".holdfast")
}

func TestNewRefusesBadConfig(t *testing.T) {
	dir := newDir(t)
	for name, change := range map[string]func(*filegate.Config){
		"no path":       func(c *filegate.Config) { c.Path = "" },
		"no lock":       func(c *filegate.Config) { c.Lock = "" },
		"short bound":   func(c *filegate.Config) { c.Bound = time.Microsecond },
		"endless bound": func(c *filegate.Config) { c.Bound = filegate.MaxBound + 1 },
		"mode":          func(c *filegate.Config) { c.Perm = fs.ModeSetuid | 0o644 },
		"long name":     func(c *filegate.Config) { c.Path = filepath.Join(dir, strings.Repeat("x", filegate.MaxName+1)) },
		"root":          func(c *filegate.Config) { c.Path = "/" },
	} {
		c := filegate.Config{Path: filepath.Join(dir, "ledger"), Lock: "invoices"}
		change(&c)
		if _, err := filegate.New(t.Context(), c); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%s: New got %v; want ErrMalformed", name, err)
		}
	}
	if _, err := filegate.New(t.Context(), filegate.Config{Path: filepath.Join(dir, "no", "ledger"), Lock: "invoices"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: New got %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("refused configurations left %v, %v", entries, err)
	}
}

// What cannot be replaced by a rename, or has locks that do not hold, is
// refused, saying why.
func TestNewRefusesWhatCannotBeFenced(t *testing.T) {
	s := newShop(t)
	if err := os.Mkdir(s.path+"-dir", 0o755); err != nil {
		t.Fatal(err)
	}
	c := s.config()
	c.Path += "-dir"
	if _, err := filegate.New(t.Context(), c); !errors.Is(err, filegate.ErrCannotFence) || !strings.Contains(err.Error(), "regular") {
		t.Errorf("a directory: New got %v", err)
	}
	c.Path = s.path + "-dir/file"
	if err := os.WriteFile(s.path+"-dir/.file.holdfast", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := filegate.New(t.Context(), c); !errors.Is(err, filegate.ErrCannotFence) {
		t.Errorf("a file in place of the folder: New got %v", err)
	}
	for magic, name := range map[uint32]string{0x6969: "NFS", 0xff534d42: "CIFS", 0x65735546: "FUSE", 0x01021997: "9P"} {
		if err := filegate.CheckMagic(magic); !errors.Is(err, filegate.ErrCannotFence) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "TrustLocks") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, magic := range []uint32{0xef53, 0x01021994, 0x58465342, 0x9123683e} { // ext4, tmpfs, XFS, Btrfs
		if err := filegate.CheckMagic(magic); err != nil {
			t.Error(err)
		}
	}
	if _, err := filegate.New(t.Context(), filegate.Config{Path: "/proc/self/gate", Lock: "invoices"}); err == nil {
		t.Error("a file in /proc was accepted")
	}
	other := s.config()
	other.Lock = "other"
	if _, err := filegate.New(t.Context(), other); !errors.Is(err, fence.ErrMalformed) || !strings.Contains(err.Error(), "invoices") {
		t.Errorf("another lock for the same file: New got %v", err)
	}
}

// A record that makes no sense, or is gone, refuses everything.
func TestDamagedRecordFailsClosed(t *testing.T) {
	change := func(f func(string) string) func(*shop) {
		return func(s *shop) {
			text, err := os.ReadFile(filepath.Join(s.room(), "record"))
			if err == nil {
				err = os.WriteFile(filepath.Join(s.room(), "record"), []byte(f(string(text))), 0o644)
			}
			if err != nil {
				s.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(*shop){
		"removed":      func(s *shop) { os.Remove(filepath.Join(s.room(), "record")) },
		"folder gone":  func(s *shop) { os.RemoveAll(s.room()) },
		"empty":        change(func(string) string { return "" }),
		"cut":          change(func(text string) string { return text[:len(text)/2] }),
		"no last line": change(func(text string) string { return text[:strings.LastIndex(text, "sum ")] }),
		"lower number": change(func(text string) string { return strings.Replace(text, "5@", "4@", 1) }),
		"longer":       change(func(text string) string { return text + "mark\n" }),
	} {
		s := newShop(t)
		if err := s.gate.Arm(t.Context(), token(5)); err != nil {
			t.Fatal(err)
		}
		damage(s)
		for _, n := range []uint64{4, 5, 6} {
			if err := s.gate.Arm(t.Context(), token(n)); !errors.Is(err, fence.ErrRecord) {
				t.Errorf("%s: Arm(%d) got %v; want ErrRecord", name, n, err)
			}
			if err := s.write(n, "must not land"); !errors.Is(err, fence.ErrRecord) {
				t.Errorf("%s: Write(%d) got %v; want ErrRecord", name, n, err)
			}
		}
		if n := s.gate.Refusals()[fence.KindRecord]; n != 6 {
			t.Errorf("%s: %d refusals were counted, want 6", name, n)
		}
		s.wantValues()
	}
}

// All ways to name a file lead to one gate.
func TestPathsLeadToOneGate(t *testing.T) {
	s := newShop(t)
	if err := s.write(5, "first"); err != nil {
		t.Fatal(err)
	}
	links := newDir(t)
	for name, to := range map[string]string{"file": s.path, "dir": filepath.Dir(s.path)} {
		if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(links, "file"), filepath.Join(links, "dir", "ledger"), filepath.Dir(s.path) + "/./../" + filepath.Base(filepath.Dir(s.path)) + "//ledger"} {
		c := s.config()
		c.Path = path
		g, err := filegate.New(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Arm(t.Context(), token(4)); fence.KindOf(err) != fence.KindStale {
			t.Errorf("%s: a lower token got %v; want stale", path, err)
		}
	}
	if info, err := os.Lstat(filepath.Join(links, "file")); err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
}

// A folder that is replaced while a write is being prepared, by a copy or by
// nothing, does not let it pass: who locks one folder does not write beside
// who locks the other.
func TestReplacedFolder(t *testing.T) {
	for name, replace := range map[string]func(s *shop) error{
		"folder by a copy": func(s *shop) error {
			return errors.Join(os.Rename(s.room(), s.room()+".old"), os.CopyFS(s.room(), os.DirFS(s.room()+".old")))
		},
		"folder by nothing": func(s *shop) error { return os.Rename(s.room(), s.room()+".old") },
		"directory by a copy": func(s *shop) error {
			dir := filepath.Dir(s.path)
			s.Cleanup(func() { os.RemoveAll(dir + ".old") })
			return errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")))
		},
	} {
		s := newShop(t)
		if err := s.write(5, "first"); err != nil {
			t.Fatal(err)
		}
		err := s.gate.Do(t.Context(), token(5), func(_ context.Context, u *filegate.Update) error {
			return errors.Join(appendLine(u, token(5), "must not land"), replace(s))
		})
		if !errors.Is(err, filegate.ErrChanged) {
			t.Errorf("%s: Do got %v; want ErrChanged", name, err)
		}
		s.wantValues("first")
	}
}

// A write that read is not applied on top of another that came between with
// the same token; one that did not read is. A file that was replaced past the
// gate is noticed too.
func TestDoNoticesAChangeSinceOld(t *testing.T) {
	s := newShop(t)
	between := func(read bool, change func() error) error {
		return s.gate.Do(t.Context(), token(5), func(_ context.Context, u *filegate.Update) error {
			if read {
				if _, err := u.Old(); err != nil && !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			if err := change(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(u, "%s\tafter\n", token(5))
			return err
		})
	}
	byGate := func() error { return s.write(5, "between") }
	if err := between(true, byGate); !errors.Is(err, filegate.ErrChanged) || errors.Is(err, fence.ErrRefused) {
		t.Fatalf("a first write that read, and lost, got %v; want ErrChanged, which is no refusal", err)
	}
	if err := between(true, byGate); !errors.Is(err, filegate.ErrChanged) {
		t.Fatalf("Do got %v; want ErrChanged", err)
	}
	s.wantValues("between", "between")
	if err := between(true, func() error { return os.Remove(s.path) }); !errors.Is(err, filegate.ErrChanged) {
		t.Fatalf("after a removal past the gate, Do got %v; want ErrChanged", err)
	}
	if err := between(false, byGate); err != nil {
		t.Fatalf("a Do that read nothing got %v", err)
	}
	s.wantValues("after")
}

// Many goroutines of one holder count up and lose nothing.
func TestDoLosesNoUpdate(t *testing.T) {
	s := newShop(t)
	const workers, each = 4, 10
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		g := s.another()
		all.Go(func() {
			for i := 0; i < each && errs[w] == nil; {
				err := g.Do(t.Context(), token(5), func(_ context.Context, u *filegate.Update) error {
					return appendLine(u, token(5), fmt.Sprintf("%d.%d", w, i))
				})
				if err == nil {
					i++
				} else if !errors.Is(err, filegate.ErrChanged) {
					errs[w] = err
				}
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := len(s.values()); n != workers*each {
		t.Fatalf("%d updates of %d survived", n, workers*each)
	}
	s.wantClean()
}

// What an Update can do: an empty file, no file, nothing; modes are kept; it
// ends with its function, and an error of that comes back as it is.
func TestUpdate(t *testing.T) {
	s := newShop(t)
	do := func(fn func(u *filegate.Update) error) error {
		return s.gate.Do(t.Context(), token(5), func(_ context.Context, u *filegate.Update) error { return fn(u) })
	}
	is := func(want string) {
		t.Helper()
		text, err := os.ReadFile(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			text = []byte("none")
		}
		if string(text) != want {
			t.Errorf("the file is %q, want %q", text, want)
		}
	}
	say := func(text string) func(*filegate.Update) error {
		return func(u *filegate.Update) error { _, err := io.WriteString(u, text); return err }
	}
	var kept *filegate.Update
	mine, theirs := errors.New("mine"), &fence.StaleError{Gate: "another", Offered: token(1), Seen: token(2)}
	for _, c := range []struct {
		fn   func(*filegate.Update) error
		fail error
		want string
	}{
		{func(u *filegate.Update) error { kept = u; return nil }, nil, "none"},
		{func(u *filegate.Update) error { u.Remove(); return nil }, nil, "none"},
		{say("a"), nil, "a"},
		{func(u *filegate.Update) error { return errors.Join(say("must not land")(u), mine) }, mine, "a"},
		{func(u *filegate.Update) error { return theirs }, theirs, "a"},
		{func(u *filegate.Update) error { return nil }, nil, "a"},
		{func(u *filegate.Update) error { u.Remove(); return say("b")(u) }, nil, "b"},
		{say(""), nil, ""},
		{func(u *filegate.Update) error { u.Remove(); return nil }, nil, "none"},
		{say("c"), nil, "c"},
	} {
		if err := do(c.fn); !errors.Is(err, c.fail) || (err == nil) != (c.fail == nil) {
			t.Errorf("Do got %v, want %v", err, c.fail)
		}
		is(c.want)
	}
	if len(s.gate.Refusals()) != 0 {
		t.Errorf("errors of the function were counted as refusals: %v", s.gate.Refusals())
	}
	if _, err := kept.Write(nil); !errors.Is(err, filegate.ErrUpdateClosed) {
		t.Errorf("a write after the function: %v", err)
	}
	if _, err := kept.Old(); !errors.Is(err, filegate.ErrUpdateClosed) {
		t.Errorf("a read after the function: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = do(func(u *filegate.Update) error { _, _ = u.Write([]byte("must not land")); panic("function") })
	}()
	is("c")
	if err := os.Chmod(s.path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := do(say("d")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode is %v, %v; want that of the old file", info.Mode(), err)
	}
	s.wantClean()
	if s.gate.Do(t.Context(), token(5), nil) == nil {
		t.Error("Do without a function succeeded")
	}
}

// Somebody else's mark is synced before anything rests on it: whoever raised it
// may have died before it was on disk.
func TestMarkIsOnDiskBeforeAWrite(t *testing.T) {
	s := newShop(t)
	if err := s.gate.Arm(t.Context(), token(5)); err != nil {
		t.Fatal(err)
	}
	var seen []string
	g := s.another()
	g.SetReached(func(_ context.Context, point string) { seen = append(seen, point) })
	if err := (suiteGate{g}).Gate.Arm(t.Context(), token(5)); err != nil || len(seen) != 2 || seen[0] != "sync-room" {
		t.Errorf("the first Arm with a mark that another raised went %v, %v; want it synced", seen, err)
	}
	seen = nil
	if err := g.Arm(t.Context(), token(5)); err != nil || len(seen) != 0 {
		t.Errorf("the second went %v, %v; want nothing to do", seen, err)
	}
}

// A sweep removes what the dead have left and nothing that somebody works on.
func TestSweep(t *testing.T) {
	s := newShop(t)
	left := filepath.Join(s.room(), "data-1-0000000000000000.scratch")
	if err := os.WriteFile(left, []byte("left"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := s.gate.Do(t.Context(), token(5), func(_ context.Context, u *filegate.Update) error {
		if err := appendLine(u, token(5), "alive"); err != nil {
			return err
		}
		s.another()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s.wantValues("alive")
	s.wantClean()
}

// Any number of processes may open a new gate at once.
func TestNewRace(t *testing.T) {
	dir := newDir(t)
	for round := range 20 {
		errs := make([]error, 6)
		gates := make([]*filegate.Gate, len(errs))
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				gates[i], errs[i] = filegate.New(t.Context(), filegate.Config{Path: filepath.Join(dir, fmt.Sprint(round)), Lock: "invoices", Logger: slog.New(slog.DiscardHandler)})
				if errs[i] == nil {
					errs[i] = gates[i].Arm(t.Context(), token(5))
				}
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 20 {
		t.Errorf("the directory has %d entries, %v; want 20 folders", len(entries), err)
	}
}
