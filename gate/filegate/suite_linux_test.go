package filegate_test

import (
	"bufio"
	"context"
	"crypto/sha256"
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
	"holdfast/fence/fencetest"
	"holdfast/gate/filegate"
)

// resource is a directory with a ledger for each lock: a file has one lock.
type resource struct {
	dir   string
	bound time.Duration
	mu    sync.Mutex
	paths []string
}

// newDir returns a new directory, in memory where there is such a thing, for
// the tests sync often, and none of them cuts the power.
func newDir(t fencetest.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "filegate-test-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func newResource(t fencetest.T) fencetest.Resource {
	return &resource{dir: newDir(t), bound: time.Second}
}

func (r *resource) path(lock string) string {
	path := filepath.Join(r.dir, fmt.Sprintf("%x", sha256.Sum256([]byte(lock))))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.paths {
		if p == path {
			return path
		}
	}
	r.paths = append(r.paths, path)
	return path
}

func (r *resource) Ledger(t fencetest.T) (all []fencetest.Entry) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, path := range r.paths {
		entries, err := ledger(path)
		if err != nil {
			t.Fatalf("the ledger: %v", err)
		}
		all = append(all, entries...)
	}
	return all
}

// ledger reads a file with a line an entry.
func ledger(path string) (all []fencetest.Entry, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, value, ok := strings.Cut(lines.Text(), "\t")
		token, err := fence.ParseToken(text)
		if err != nil || !ok {
			return all, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		all = append(all, fencetest.Entry{Token: token, Value: value})
	}
	return all, lines.Err()
}

func (r *resource) Open(t fencetest.T, o fencetest.Options) (fencetest.Gate, error) {
	t.Helper()
	g, err := filegate.New(context.Background(), filegate.Config{
		Path: r.path(o.Lock), Lock: o.Lock, Name: o.Name, Slots: o.Slots, AllowShared: o.AllowShared,
		Domain: o.Domain, Bound: r.bound, Reporter: o.Reporter, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	g.SetReached(func(ctx context.Context, point string) {
		if final, ok := ctx.Value(finalKey{}).(func()); ok && point == filegate.PointFinal {
			final()
		}
	})
	return suiteGate{g}, nil
}

type finalKey struct{}

type suiteGate struct{ *filegate.Gate }

var errFailed = errors.New("the write was to fail")

func (g suiteGate) Write(ctx context.Context, w fencetest.Write) error {
	if w.Final != nil {
		ctx = context.WithValue(ctx, finalKey{}, w.Final)
	}
	for {
		err := g.Do(ctx, w.Token, func(_ context.Context, u *filegate.Update) error {
			if err := appendLine(u, w.Token, w.Value); err != nil {
				return err
			}
			if w.Inside != nil {
				w.Inside()
			}
			if w.Fail {
				return errFailed
			}
			return nil
		})
		if !errors.Is(err, filegate.ErrChanged) {
			return err
		}
	}
}

// appendLine writes the old content and one line more.
func appendLine(u *filegate.Update, t fence.Token, value string) error {
	old, err := u.Old()
	if err == nil {
		_, err = io.Copy(u, old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = fmt.Fprintf(u, "%s\t%s\n", t, value)
	return err
}

func harness(rounds int) fencetest.Harness {
	return fencetest.Harness{New: newResource, ArmBound: 20 * time.Second, Rounds: rounds}
}

func TestGate(t *testing.T) { fencetest.Run(t, harness(10)) }

func TestCasebookC44_NumbersAreExact(t *testing.T) {
	r := newResource(t)
	g, err := r.Open(t, fencetest.Options{Lock: "invoices", Name: "file"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		number uint64
		kind   fence.Kind
	}{
		{9007199254740993, fence.KindNone}, {9007199254740992, fence.KindStale}, {9007199254740993, fence.KindNone},
		{1<<63 - 1, fence.KindNone}, {1<<63 - 2, fence.KindStale},
	} {
		if err := g.Write(t.Context(), fencetest.Write{Token: token(c.number), Value: "v"}); fence.KindOf(err) != c.kind || (err != nil) != (c.kind != fence.KindNone) {
			t.Errorf("a write of %d got %v; want %s", c.number, err, c.kind)
		}
	}
}

func TestCasebookC45_EqualNumberOfAnotherIncarnation(t *testing.T) {
	fencetest.Case(t, harness(0), "C45")
}

func TestCasebookC46_ArmWithoutData(t *testing.T) { fencetest.Case(t, harness(0), "C46") }

func TestCasebookC48_FirstUseRace(t *testing.T) { fencetest.Case(t, harness(200), "C48") }

func token(n uint64) fence.Token {
	return fence.Token{Domain: fence.Domain{1}, Incarnation: 2, Lock: "invoices", Mode: fence.Exclusive, Number: n}
}
