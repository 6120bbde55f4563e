package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/server"
)

// asNode says that a process of this test binary is to be a node, so that
// nothing need be built, and the nodes run with the race detector, too.
const asNode = "HOLDFAST_SCALE_TEST_NODE"

func TestMain(m *testing.M) {
	if os.Getenv(asNode) != "" {
		if err := node1(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// node1 is "holdfast serve" as far as this program uses it.
func node1(args []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	cfg := server.Config{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	flags.StringVar(&cfg.Cluster.Name, "name", "", "")
	flags.StringVar(&cfg.Dir, "data", "", "")
	flags.StringVar(&cfg.Listen, "listen", "", "")
	flags.StringVar(&cfg.Cluster.PeerListen, "peer-listen", "", "")
	flags.IntVar(&cfg.MaxSessions, "max-sessions", 0, "")
	flags.String("log-format", "", "")
	founders := flags.String("initial-cluster", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if cfg.Cluster.Founders, err = server.ParseFounders(*founders); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, cfg)
	if err != nil {
		return err
	}
	return s.Wait()
}

// newTestTrial is a trial on nodes that are processes of this test binary.
func newTestTrial(t *testing.T, sessions, lines int, ttl time.Duration) *trial {
	t.Helper()
	t.Setenv(asNode, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := settings{binary: self, sessions: sessions, locks: sessions, lines: lines, ttl: ttl}
	f, err := newFleet(s, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	out := &testWriter{t}
	tr := &trial{settings: s, fleet: f, figures: figures{out: out, progress: out, began: time.Now()}, dir: t.TempDir()}
	t.Cleanup(func() {
		tr.close()
		f.killAll()
		if t.Failed() {
			for _, n := range f.nodes {
				t.Logf("log of %s ends with\n%s", n.name, n.lastWords())
			}
		}
	})
	return tr
}

// testWriter writes to a test's log.
type testWriter struct{ t *testing.T }

func (w *testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func TestArguments(t *testing.T) {
	for _, refused := range [][]string{{"extra"}, {"-sessions", "3", "-lines", "4"}, {"-locks", "7"}, {"-ttl", "1s"}, {"-what"}} {
		if err := run(t.Context(), refused, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is taken", refused)
		}
	}
	s, err := parseFlags(nil, io.Discard)
	if err != nil || s.sessions != 100_000 || s.locks != 1_000_000 {
		t.Errorf("without flags: %+v, %v", s, err)
	}
}

func TestFiguresAreForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		12*time.Second + 345*time.Millisecond: "12.3s", 1234 * time.Millisecond: "1.23s", 56*time.Millisecond + 789*time.Microsecond: "57ms",
	} {
		if got := seconds(d); got != want {
			t.Errorf("%d ns are %s, want %s", d, got, want)
		}
	}
	if got := megabytes(123456789); got != "123 MB" {
		t.Errorf("got %s", got)
	}
}
