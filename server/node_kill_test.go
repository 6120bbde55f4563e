package server

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"holdfast/server/core"
	"holdfast/server/store"
)

// childDir makes this test binary run a node in a directory, under load, until
// it is killed.
const childDir = "HOLDFAST_TEST_NODE_DIR"

func init() {
	if dir := os.Getenv(childDir); dir != "" {
		fmt.Println("error:", runChild(dir))
		os.Exit(1)
	}
}

// runChild prints the last number at its start, and every grant once it was
// acknowledged.
func runChild(dir string) error {
	store.SetSegmentBytes(256 << 10)
	n, err := StartNode(context.Background(), NodeConfig{Dir: dir, Logger: quietLog, SnapshotEntries: 200})
	if err != nil {
		return err
	}
	fmt.Println("started", n.Status().LastNumber)
	failed := make(chan error, 8)
	var lanes sync.WaitGroup
	for i := range 4 {
		lanes.Go(func() { failed <- childLoad(n, i) })
	}
	return <-failed
}

func childLoad(n *Node, i int) error {
	ctx := context.Background()
	s, err := n.Do(ctx, core.Open{ID: n.NewSessionID(), SecretHash: [32]byte{byte(i + 1)}, TTL: time.Hour})
	if err != nil {
		return err
	}
	was, last, err := lane(n, s.Session)
	if err != nil {
		return err
	}
	if was.Status == core.Waiting { // killed twice before it was given up
		if _, err := n.Do(ctx, core.Cancel{Session: s.Session, Request: core.Request{N: last}}); err != nil {
			return err
		}
	}
	for k := last + 1; ; k++ {
		got := make(chan Answer, 2)
		n.Submit(core.Acquire{Session: s.Session, Request: core.Request{N: k}, Lock: fmt.Sprint("lock", i)}, func(a Answer) { got <- a })
		a := <-got
		switch {
		case a.Err != nil:
			return a.Err
		case a.Result.Status == core.Granted:
			fmt.Println("granted", a.Result.Grant.Number)
		case a.Result.Status == core.Waiting:
			// Its own grant of before the kill: given back below.
		default:
			return fmt.Errorf("acquire %d: %+v", k, a.Result.Refusal)
		}
		if err := childRelease(n, s.Session, k); err != nil {
			return err
		}
	}
}

// childRelease gives back all that the session holds, and settles lane 0.
func childRelease(n *Node, id core.SessionID, k uint64) error {
	ctx := context.Background()
	if _, err := n.Do(ctx, core.Cancel{Session: id, Request: core.Request{N: k}}); err != nil {
		return err
	}
	var held []core.Grant
	if err := n.View(ctx, false, func(r Reading) { v, _ := r.State.Session(id); held = v.Grants }); err != nil {
		return err
	}
	for _, g := range held {
		if _, err := n.Do(ctx, core.Release{Session: id, Grant: g.Number}); err != nil {
			return err
		}
	}
	return nil
}

func lane(n *Node, id core.SessionID) (r core.Result, last uint64, err error) {
	err = n.View(context.Background(), false, func(x Reading) {
		q, res, _ := x.State.Lane(id, 0)
		r, last = res, q.N
	})
	return r, last, err
}

// TestCasebookC07_KilledProcess kills a real process with SIGKILL at random
// moments under load: no acknowledged grant is missing at the next start, and
// no number is ever given twice.
func TestCasebookC07_KilledProcess(t *testing.T) {
	dir := t.TempDir()
	seen := map[uint64]bool{}
	var highest uint64
	for cycle := range 12 {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childDir+"="+dir)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		killAt := 1 + rand.IntN(400)
		lines := bufio.NewScanner(out)
		for i := 0; lines.Scan(); i++ {
			var number uint64
			switch n, _ := fmt.Sscanf(lines.Text(), "started %d", &number); {
			case n == 1 && number < highest:
				t.Fatalf("cycle %d: grant %d was acknowledged, and the log ends with %d", cycle, highest, number)
			case n == 1:
			default:
				if _, err := fmt.Sscanf(lines.Text(), "granted %d", &number); err != nil {
					t.Fatalf("cycle %d: the child says %q", cycle, lines.Text())
				}
				if seen[number] {
					t.Fatalf("cycle %d: grant %d was given twice", cycle, number)
				}
				seen[number] = true
				highest = max(highest, number)
			}
			if i == killAt {
				child.Process.Kill()
			}
		}
		child.Wait() // killed, on purpose
	}
	if len(seen) < 200 {
		t.Errorf("only %d grants in all", len(seen))
	}
}
