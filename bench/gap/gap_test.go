package gap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A test's nodes are this program, called as "… node ADDRESS": they accept
// connections, and that is all.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "node" {
		l, err := net.Listen("tcp", os.Args[2])
		for err == nil {
			var c net.Conn
			if c, err = l.Accept(); err == nil {
				c.Close()
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if len(os.Args) == 2 && os.Args[1] == "lines" {
		fmt.Println("ready")
		for {
			var id, millis, lock string
			if _, err := fmt.Scan(&id, &millis, &lock); err != nil {
				return
			}
			switch lock {
			case "good":
				fmt.Printf("%s granted\n%s done\n", id, id)
			case "half":
				fmt.Printf("%s granted\n%s error lost the way\n", id, id)
			case "last":
				return
			}
		}
	}
	os.Exit(m.Run())
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestJudge(t *testing.T) {
	at := func(list ...int) (all []success) { // worker, time in ms, worker, …
		for i := 0; i < len(list); i += 2 {
			all = append(all, success{list[i], ms(list[i+1])})
		}
		return all
	}
	for _, c := range []struct {
		name        string
		all         []success
		killed, end int // the process has ended 10 ms later
		gap, served int // ms
		err         string
	}{
		{"plain", at(0, 90, 1, 100, 1, 1500, 0, 1600, 1, 1601, 0, 1700), 110, 2000, 1400, 1590, ""},
		{"a dead leader's last grant", at(0, 90, 1, 112, 1, 115, 0, 125, 1, 1500, 0, 1600, 1, 1602), 110, 2000, 1375, 1492, ""},
		{"the second gap is longer", at(0, 100, 0, 400, 1, 410, 1, 1400, 0, 1401), 110, 2000, 990, 1291, ""},
		{"a gap before the kill is none", at(0, 0, 0, 5000, 1, 5001, 0, 5200, 1, 5201, 0, 5202, 1, 5203), 5100, 6000, 199, 103, ""},
		{"no grant before", at(0, 300, 1, 400, 0, 401, 1, 402), 100, 500, 200, 302, ""},
		{"none after", at(0, 90, 1, 100), 110, 2000, 0, 0, "no grant in the last 1.9s"},
		{"it stopped again", at(0, 90, 0, 300, 1, 301, 0, 302, 1, 303), 110, 2000, 0, 0, "no grant in the last 1.697s"},
		{"a worker is left out", at(0, 90, 1, 100, 0, 1500, 0, 1600, 1, 1601), 110, 2000, 0, 0, "1 of 2 workers"},
	} {
		got, err := judge(c.all, 2, ms(c.killed), ms(c.killed+10), ms(c.end))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if want := (Outage{Gap: ms(c.gap), All: ms(c.served)}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", c.name, got, err, want)
		}
	}
}

// outage grants in 1 ms, except while it lasts: then tries fail, or hang.
type outage struct {
	t        *timeline
	from, to time.Duration
	slow     string // this lock hangs for as long as it may
}

func (o outage) Close() {}

func (o outage) Once(ctx context.Context, lock string, granted func()) error {
	pause(ctx, time.Millisecond)
	switch now := o.t.now(); {
	case now < o.from || now >= o.to:
		granted()
		return nil
	case lock == o.slow:
		<-ctx.Done()
		return ctx.Err()
	}
	return errors.New("no leader")
}

// The workers' loop and the sums find an outage of known length, in the time
// of a bubble: exactly, but for the 10 ms between two tries.
func TestLoadMeasuresAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := newTimeline(4)
		stop := load(t.Context(), outage{t: line, from: ms(1500), to: ms(2800), slow: "gap/2"}, ms(5000), line)
		pause(t.Context(), ms(1000))
		line.forget()
		killed := ms(1500)
		pause(t.Context(), ms(7000))
		got, err := line.judge(killed, killed)
		stop()
		if err != nil {
			t.Fatal(err)
		}
		within := func(what string, got, least time.Duration) {
			if got < least || got > least+retryPause+ms(3) {
				t.Errorf("%s is %v, want %v or a little more", what, got, least)
			}
		}
		within("the gap", got.Gap, ms(1300))
		within("the last worker's", got.All, ms(5000)) // its try began at the kill
		if line.failed["no leader"] == 0 || line.failed[context.DeadlineExceeded.Error()] != 1 {
			t.Errorf("failed: %v", line.failed)
		}
	})
}

// still is a service whose leader is the first node that runs.
type still struct{ program string }

func (s still) Name() string { return "still" }

func (s still) Command(i int, nodes []Node) []string {
	return []string{s.program, "node", nodes[i].Client}
}

func (s still) runs(n Node) bool {
	c, err := net.Dial("tcp", n.Client)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func (s still) Status(_ context.Context, n Node) (Status, error) {
	if !s.runs(n) {
		return Status{}, errors.New("down")
	}
	return Status{Leads: n.Name != "n3", Ready: true}, nil
}

func (s still) Open(_ context.Context, nodes []Node) (Acquirer, error) {
	return stillClient{s, nodes}, nil
}

type stillClient struct {
	still
	nodes []Node
}

func (s stillClient) Close() {}

func (s stillClient) Once(ctx context.Context, _ string, granted func()) error {
	pause(ctx, time.Millisecond)
	if !s.runs(s.nodes[0]) || !s.runs(s.nodes[1]) {
		pause(ctx, ms(400))
	}
	granted()
	return nil
}

func TestMeasure(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := Options{Kills: 1, Workers: 3, Attempt: time.Minute, Dir: dir, Progress: t.Output()}
	r, err := Measure(t.Context(), still{program}, o)
	if err != nil || len(r.Kills) != 1 || len(r.Stops) != 0 || r.PerSecond <= 0 {
		t.Fatalf("got %+v, %v", r, err)
	}
	if r.Kills[0].Gap < ms(100) || r.Kills[0].All < ms(100) {
		t.Errorf("got %+v", r.Kills[0])
	}
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = io.Discard
	time.AfterFunc(ms(500), cancel)
	if _, err := Measure(ctx, still{program}, o); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if _, err := Measure(t.Context(), still{"/bin/false"}, o); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("nodes that end: %v", err)
	}
}

func TestLines(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := openLines(t.Context(), program, "lines")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	grants := 0
	once := func(lock string) error { return l.Once(t.Context(), lock, func() { grants++ }) }
	if err := once("good"); err != nil || grants != 1 {
		t.Errorf("%v, %d grants", err, grants)
	}
	if err := once("half"); err == nil || err.Error() != "lost the way" || grants != 2 {
		t.Errorf("%v, %d grants", err, grants)
	}
	if err := once("last"); !errors.Is(err, errClientEnded) {
		t.Errorf("the process has ended: %v", err)
	}
	if err := once("good"); !errors.Is(err, errClientEnded) {
		t.Errorf("the process has long ended: %v", err)
	}
	if _, err := openLines(t.Context(), "/bin/false"); !errors.Is(err, errClientEnded) {
		t.Errorf("a process that is never ready: %v", err)
	}
}

func TestEtcdStatus(t *testing.T) {
	const metrics = `# TYPE etcd_server_has_leader gauge
etcd_server_has_leader 1
etcd_server_is_leader 0
etcd_server_proposals_applied_total 1.234567e+06
etcd_server_proposals_pending 0
`
	if st, err := etcdStatus(strings.NewReader(metrics)); err != nil || st != (Status{Ready: true, Applied: 1234567}) {
		t.Errorf("got %+v, %v", st, err)
	}
	if _, err := etcdStatus(strings.NewReader("etcd_server_is_leader 1\n")); err == nil {
		t.Error("two are missing, and no error")
	}
}

func TestTable(t *testing.T) {
	out := func(gap, leader, all int) Outage { return Outage{Gap: ms(gap), Leader: ms(leader), All: ms(all)} }
	var text strings.Builder
	err := WriteTable(&text, []Result{
		{Service: "one", PerSecond: 1234, Kills: []Outage{out(1500, 1200, 1600), out(1300, 1100, 7000), out(1900, 1000, 2000)}},
		{Service: "two", PerSecond: 99, Kills: []Outage{out(1, 2, 3), out(3, 4, 5)}, Failed: map[string]int{"gone": 2}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `
  the leader's end      times  gap min  median   max  new leader   max  all served  max
  kill -9, one              3     1.3s    1.5s  1.9s        1.1s  1.2s          2s   7s
  kill -9, two              2      1ms     2ms   3ms         3ms   4ms         4ms  5ms

one: 1234 acquires a second before the first kill
two: 99 acquires a second before the first kill
  2 tries failed: gone
`
	if got := "\n" + text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
