package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/fence"
	"holdfast/gate/memgate"
	"holdfast/gate/sqlgate"
)

// serveOn starts a server on a data directory.
func serveOn(t *testing.T, data string) *service {
	t.Helper()
	return startService(t, "serve", "--data", data, "--listen", "127.0.0.1:0", "--log-level", "warn")
}

// kill9 ends a server as a crash does. Clients are closed before, because one
// that cannot reach its server takes its time to.
func (s *service) kill9(clients ...*cluster.Client) {
	for _, c := range clients {
		_ = c.Close(context.Background())
	}
	kill(s.cmd.Process.Pid, unix.SIGKILL)
	s.wait()
}

// connect is a client with a session of its own.
func (s *service) connect(t *testing.T) *cluster.Client {
	t.Helper()
	c, err := cluster.Dial(t.Context(), s.addr, &cluster.Options{TTL: 5 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// take acquires and returns the grant.
func take(t *testing.T, c *cluster.Client, lock string) *holdfast.Grant {
	t.Helper()
	g, err := c.Acquire(t.Context(), lock, cluster.AcquireOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// begun decodes what restore and recover print.
func begun(t *testing.T, p *program) (b begunJSON) {
	t.Helper()
	if err := json.Unmarshal([]byte(p.stdout.String()), &b); err != nil {
		t.Fatalf("%v: %s", err, p.stdout)
	}
	return b
}

// gates are a gate in memory and one in a database, that both guard a lock.
func gates(t *testing.T, lock string) map[string]func(fence.Token) error {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	mem, err := memgate.New(memgate.Config{Lock: lock, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "gate.db")+"?_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	inSQL, err := sqlgate.New(t.Context(), db, sqlgate.Config{Lock: lock, Dialect: sqlgate.SQLite, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]func(fence.Token) error{
		"memgate": func(token fence.Token) error { return mem.Do(t.Context(), token, func() error { return nil }) },
		"sqlgate": func(token fence.Token) error {
			return inSQL.Do(t.Context(), token, func(context.Context, *sqlgate.Snapshot) ([]sqlgate.Stmt, error) { return nil, nil })
		},
	}
}

// A lostRun is a service that was backed up, went on, and died.
type lostRun struct {
	dir, file string
	guard     map[string]func(fence.Token) error // have seen the last of its tokens
	tokens    []fence.Token                      // that it minted after the backup
}

func newLostRun(t *testing.T) *lostRun {
	t.Helper()
	r := &lostRun{dir: t.TempDir(), guard: gates(t, "paper")}
	r.file = filepath.Join(r.dir, "backup")
	old := serveOn(t, filepath.Join(r.dir, "old"))
	client := old.connect(t)
	for range 49 { // the backup knows of about 50 tokens
		if err := take(t, client, "paper").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	take(t, client, "kept/held")
	if _, err := client.Put(t.Context(), "kept/value", []byte("stays"), cluster.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, 0, old.on(), "backup", r.file)
	for range 10 {
		g := take(t, client, "paper")
		r.tokens = append(r.tokens, g.Token())
		if err := g.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range r.guard {
		if err := write(r.last()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	old.kill9(client)
	return r
}

func (r *lostRun) last() fence.Token { return r.tokens[len(r.tokens)-1] }

// restored restores the backup into a new directory, serves it, and returns
// what was told, and its first token.
func (r *lostRun) restored(t *testing.T, flags ...string) (begunJSON, fence.Token) {
	t.Helper()
	args := append([]string{"restore", r.file, "--data", filepath.Join(t.TempDir(), "data"), "-o", "json"}, flags...)
	b := begun(t, run(t, 0, nil, args...))
	s := serveOn(t, b.Data)
	client := s.connect(t)
	token := take(t, client, "paper").Token()
	if l, ok := s.lock(t, "kept/value"); !ok || l.Value == nil || string(*l.Value) != "stays" {
		t.Errorf("the value: %+v", l)
	}
	if l, ok := s.lock(t, "kept/held"); ok {
		t.Errorf("a lock of a void session: %+v", l)
	}
	s.kill9(client)
	return b, token
}

// The whole story on real processes: a service is backed up, goes on, and
// dies. The restored one, with the domain kept, gives out tokens above all that
// the lost run gave out after the backup; its gates accept them and still
// refuse those of the lost run; sessions of the backup are lost. A second
// restore on the same day, told of the first, is above that; one that is not
// told forks, and the gate says so; a copy with a new domain is refused by name.
func TestCasebookC75_RestoredServiceGoesOnAbove(t *testing.T) {
	t.Parallel()
	r := newLostRun(t)
	first, one := r.restored(t, "--keep-domain")
	if one.Number <= r.last().Number || one.Number < first.Lowest || one.Domain != r.last().Domain || one.Incarnation == r.last().Incarnation || one.Epoch() != uint64(first.Epoch) {
		t.Errorf("token %v after %v", one, r.last())
	}
	for name, write := range r.guard {
		if err := write(one); err != nil {
			t.Errorf("%s: a token of the restored service: %v", name, err)
		}
		for _, zombie := range r.tokens {
			var stale *fence.StaleError
			if err := write(zombie); !errors.As(err, &stale) {
				t.Errorf("%s: a token of the lost run: %v", name, err)
			}
		}
	}
	// Once more on the same day: with what the first printed, without it, and
	// as a copy.
	above := "--keep-domain --above " + strconv.FormatUint(first.Lowest, 10)
	if want := "holdfast restore " + r.file + " --data DIR " + above; first.Next != want {
		t.Errorf("the line for the next restore is %q, want %q", first.Next, want)
	}
	_, two := r.restored(t, strings.Fields(above)...)
	_, twin := r.restored(t, "--keep-domain")
	_, other := r.restored(t, "--new-domain")
	if two.Epoch() != one.Epoch()+1 || two.Number <= one.Number {
		t.Errorf("the second restore gave out %v after %v", two, one)
	}
	if twin.Number != one.Number || twin.Incarnation == one.Incarnation {
		t.Errorf("the fork gave out %v, the first %v", twin, one)
	}
	for name, write := range r.guard {
		var forked *fence.ForkError
		if err := write(twin); !errors.As(err, &forked) {
			t.Errorf("%s: a token of the fork: %v", name, err)
		}
		var wrong *fence.WrongDomainError
		if err := write(other); !errors.As(err, &wrong) {
			t.Errorf("%s: a token of the copy: %v", name, err)
		}
		if err := write(two); err != nil {
			t.Errorf("%s: a token of the second restore: %v", name, err)
		}
	}
}

// A backup that is taken while clients work, and one of each kind of what a
// client can see, come back; what is damaged is refused before anything is
// made.
func TestCasebookC76_BackupRestoreRoundTrip(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serveOn(t, filepath.Join(dir, "data"))
	client := s.connect(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				g, err := client.Acquire(t.Context(), fmt.Sprintf("work/%d/%d", i, n%10), cluster.AcquireOptions{Value: []byte("v")})
				if err == nil {
					err = g.Release(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 20 {
		if _, err := client.Put(t.Context(), fmt.Sprintf("value/%d", i), []byte{byte(i)}, cluster.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "backup")
	taken := run(t, 0, s.on(), "backup", file, "-o", "json")
	close(stop)
	wg.Wait()
	verified := run(t, 0, nil, "backup", "verify", file, "-o", "json")
	if taken.stdout.String() != verified.stdout.String() {
		t.Errorf("taken %s\nverified %s", taken.stdout, verified.stdout)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(dir, "damaged")
	for what, b := range map[string][]byte{
		"cut short":            whole[:len(whole)-100],
		"damaged":              append(append(append([]byte(nil), whole[:len(whole)/2]...), whole[len(whole)/2]^4), whole[len(whole)/2+1:]...),
		"not a Holdfast":       []byte("anything else"),
		"bytes follow its end": append(append([]byte(nil), whole...), '\n'),
	} {
		if err := os.WriteFile(damaged, b, 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, 1, nil, "backup", "verify", damaged).says(damaged, what)
		run(t, 1, nil, "restore", damaged, "--data", filepath.Join(dir, "none"), "--keep-domain").says(damaged, "nothing was restored", what)
		if left, _ := filepath.Glob(filepath.Join(dir, "none*")); len(left) > 0 {
			t.Errorf("%s: there is %v", what, left)
		}
	}
	run(t, 0, nil, "restore", file, "--data", filepath.Join(dir, "new"), "--keep-domain")
	again := serveOn(t, filepath.Join(dir, "new"))
	for i := range 20 {
		if l, ok := again.lock(t, fmt.Sprintf("value/%d", i)); !ok || l.Value == nil || string(*l.Value) != string([]byte{byte(i)}) {
			t.Errorf("value/%d: %+v", i, l)
		}
	}
	run(t, 1, nil, "restore", file, "--data", filepath.Join(dir, "new"), "--keep-domain").says("not empty", "mv ")
}

// What restore and recover are asked for must be said.
func TestRestoreUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	none := filepath.Join(dir, "none")
	token := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "l", Mode: fence.Exclusive, Number: 5}.String()
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{64, "--keep-domain", []string{"restore", none, "--data", none}},
		{64, "there is no default", []string{"restore", none, "--data", none, "--keep-domain", "--new-domain"}},
		{64, "--data DIR is missing", []string{"restore", none, "--keep-domain"}},
		{64, "--above goes with --keep-domain", []string{"restore", none, "--data", none, "--new-domain", "--above", "5"}},
		{64, "fencing token", []string{"restore", none, "--data", none, "--keep-domain", "--above", "-1"}},
		{64, "fencing token", []string{"restore", none, "--data", none, "--keep-domain", "--above", "0"}},
		{64, "nothing is given with --above", []string{"restore", none, "--data", none, "--keep-domain", "--above", ""}},
		{64, "nothing is given with --above", []string{"recover", none, "--data", none, "--keep-domain", "--i-am-the-only-one", "--above="}},
		{64, "FILE is empty", []string{"restore", "", "--data", none, "--keep-domain"}},
		{64, "OLD is empty", []string{"recover", "", "--data", none, "--keep-domain", "--i-am-the-only-one"}},
		{64, "FILE is empty", []string{"backup", ""}},
		{64, "FILE is empty", []string{"backup", "verify", ""}},
		{64, "want exactly: FILE", []string{"restore", "--data", none, "--keep-domain"}},
		{66, "no such file", []string{"restore", none, "--data", none, "--keep-domain", "--above", token}},
		{64, "is a directory", []string{"restore", dir, "--data", none, "--keep-domain"}},
		{64, "--i-am-the-only-one", []string{"recover", none, "--data", none, "--keep-domain"}},
		{64, "there is no default", []string{"recover", none, "--data", none, "--i-am-the-only-one"}},
		{66, "no data of a lock service", []string{"recover", none, "--data", none, "--i-am-the-only-one", "--keep-domain"}},
		{66, "no such file", []string{"backup", "verify", none}},
	} {
		run(t, c.code, nil, c.args...).says(c.says)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("something was made")
	}
	for _, command := range []string{"restore", "recover"} {
		help := run(t, 0, nil, command, "--help").stdout.String()
		for _, text := range []string{"SECOND RESTORE", "--above", "2025-01-01", "sessions", "--new-domain"} {
			if !strings.Contains(help, text) {
				t.Errorf("%s --help does not speak of %q", command, text)
			}
		}
	}
}

// Above takes a token of the data's domain, and refuses one of another.
func TestRestoreAboveAToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serveOn(t, filepath.Join(dir, "data"))
	own := take(t, s.connect(t), "l").Token()
	file := filepath.Join(dir, "backup")
	run(t, 0, s.on(), "backup", file)
	own.Number = 5000<<fence.EpochShift + 7
	b := begun(t, run(t, 0, nil, "restore", file, "--data", filepath.Join(dir, "a"), "--keep-domain", "--above", own.String(), "-o", "json"))
	if b.Epoch != 5001 || b.Lowest != 5001<<fence.EpochShift+1 {
		t.Errorf("%+v", b)
	}
	own.Domain[0]++
	run(t, 64, nil, "restore", file, "--data", filepath.Join(dir, "b"), "--keep-domain", "--above", own.String()).says("another domain")
	text := run(t, 0, nil, "restore", file, "--data", filepath.Join(dir, "c"), "--keep-domain").stdout.String()
	for _, part := range []string{"once more today", "--above " + strconv.FormatUint(uint64(epochOf(t, text))<<fence.EpochShift+1, 10), "holdfast serve --data", "1 sessions, with 1 grants"} {
		if !strings.Contains(text, part) {
			t.Errorf("restore prints\n%s\nand not %q", text, part)
		}
	}
	if strings.Contains(run(t, 0, nil, "restore", file, "--data", filepath.Join(dir, "d"), "--new-domain").stdout.String(), "--above") {
		t.Error("a new domain needs no --above")
	}
}

func epochOf(t *testing.T, text string) (epoch int) {
	t.Helper()
	_, rest, _ := strings.Cut(text, "epoch ")
	if _, err := fmt.Sscan(rest, &epoch); err != nil {
		t.Fatal(err)
	}
	return epoch
}
