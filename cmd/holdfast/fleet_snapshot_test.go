package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/engine/cluster"
)

// A valve is a line to a port that lets so many bytes of each connection
// through, and no more before it is opened further. What stands still is not
// broken: nobody is told.
type valve struct {
	addr string
	mu   sync.Mutex
	cond sync.Cond
	most int64 // bytes of each connection; negative: all
	held int   // connections that stand still
}

func newValve(t *testing.T, to string) *valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{addr: l.Addr().String(), most: -1}
	v.cond.L = &v.mu
	var running sync.WaitGroup
	open := map[net.Conn]bool{}
	t.Cleanup(func() {
		l.Close()
		v.set(-1)
		v.mu.Lock()
		for c := range open {
			c.Close()
		}
		v.mu.Unlock()
		running.Wait()
	})
	running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			v.mu.Lock()
			open[near], open[far] = true, true
			v.mu.Unlock()
			running.Go(func() { v.carry(far, near, true) })
			running.Go(func() { v.carry(near, far, false) })
		}
	})
	return v
}

// carry copies until either end is gone, and then ends both.
func (v *valve) carry(to, from net.Conn, counted bool) {
	defer to.Close()
	defer from.Close()
	buf, passed := make([]byte, 16<<10), int64(0)
	for {
		n, err := from.Read(buf)
		if passed += int64(n); counted {
			v.wait(passed)
		}
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

func (v *valve) wait(passed int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.most >= 0 && passed > v.most {
		v.held++
		v.cond.Wait()
		v.held--
	}
}

// set says how much of each connection may pass.
func (v *valve) set(most int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.most = most
	v.cond.Broadcast()
}

func (v *valve) standing() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held
}

// newValvedFleet founds a cluster of three nodes, of which the others reach the
// third through a valve.
func newValvedFleet(t *testing.T, flags ...string) (*fleet, *valve) {
	t.Helper()
	p := &fleet{t: t}
	listen := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	v := newValve(t, listen[2])
	seen := []string{listen[0], listen[1], v.addr}
	list := fmt.Sprintf("n1=%s,n2=%s,n3=%s", seen[0], seen[1], seen[2])
	for i := range listen {
		addr := freeAddress(t)
		p.nodes = append(p.nodes, &fleetNode{addr: addr, args: append([]string{
			"serve", "--name", fmt.Sprint("n", i+1), "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr,
			"--peer-listen", listen[i], "--peer-advertise", seen[i], "--initial-cluster", list,
		}, flags...)})
	}
	p.start(p.nodes...)
	return p, v
}

// begin starts a node and does not wait for it.
func (n *fleetNode) begin(t *testing.T) {
	t.Helper()
	n.program = newProgram(t, nil, n.args...)
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	n.program.start()
}

// applied is the last entry that a node has applied.
func (n *fleetNode) applied() (index uint64) {
	if st, ok := n.status(false); ok {
		index, _ = strconv.ParseUint(st.AppliedIndex, 10, 64)
	}
	return index
}

// incoming are the files of a snapshot that a node is receiving, and how much
// there is of it.
func (n *fleetNode) incoming(suffix string) (files int, bytes int64) {
	names, _ := filepath.Glob(filepath.Join(n.args[4], "incoming", "*"+suffix))
	for _, name := range names {
		if info, err := os.Stat(name); err == nil {
			files, bytes = files+1, bytes+info.Size()
		}
	}
	return files, bytes
}

// bulk is how many values make a snapshot that is sent in some ten chunks.
const bulk = 2000

// fill puts them.
func (h *held) fill(round int) {
	t := h.p.t
	t.Helper()
	value := make([]byte, 4096)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	client, err := cluster.Dial(t.Context(), h.p.addresses(), &cluster.Options{Label: "filler"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close(context.Background()) // and with it, the session
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := w; i < bulk && t.Context().Err() == nil; i += 8 {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				_, err := client.Put(ctx, fmt.Sprint("bulk/", i), append([]byte(fmt.Sprintf("%d/%d/", round, i)), value[:4000]...), cluster.PutOptions{})
				cancel()
				if err != nil {
					t.Errorf("put %d: %v", i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// filled checks that all of them are there, as written last.
func (h *held) filled(round int) {
	t := h.p.t
	t.Helper()
	for i := 0; i < bulk; i += 97 {
		l, err := h.load.client.Get(t.Context(), fmt.Sprint("bulk/", i), cluster.GetOptions{})
		if want := fmt.Sprintf("%d/%d/", round, i); err != nil || !strings.HasPrefix(string(l.Value), want) {
			t.Errorf("bulk/%d: %v, want the value %s…", i, err, want)
		}
	}
}

// snapshotEvery is after how many entries nodes of these tests write a snapshot,
// and outOfReach how far they must come to keep no entry from the start on: a
// thousand below a snapshot are kept.
const (
	snapshotEvery = 500
	outOfReach    = 1000 + 2*snapshotEvery
)

// outrun kills a node and lets the others write past the log that they keep.
func (h *held) outrun(n *fleetNode, round int) {
	t := h.p.t
	t.Helper()
	from := n.applied()
	h.p.kill(n)
	h.fill(round)
	lead := h.p.leader()
	within(t, 4*patience, "a log beyond its reach", func() bool { return len(h.load.fails) > 0 || lead.applied() > from+outOfReach })
}

// A follower that was away for longer than the others keep their log is sent a
// snapshot. It is killed at many moments while it receives it, and the leader
// while it sends it; afterwards everything is as before, on all nodes.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestFollowerKilledWhileItTakesASnapshot(t *testing.T) {
	p, v := newValvedFleet(t, "--log-level", "info", "--snapshot-every", strconv.Itoa(snapshotEvery))
	defer p.hangUp()
	env := []string{serverVariable + "=" + p.addresses()}
	h := p.hold(env)
	f := p.nodes[2]
	rounds := 1
	if os.Getenv(soakVariable) != "" {
		rounds = 12
	}
	for round := range rounds {
		if p.leader() == f {
			run(t, 0, env, "cluster", "transfer", "n1")
		}
		h.outrun(f, round)
		for _, most := range []int64{40_000, 1<<20 + 100_000, 4<<20 + 100_000, 7<<20 + rand.Int64N(1<<20)} {
			v.set(most)
			f.begin(t)
			eventually(t, "a transfer that stands still", func() bool { return v.standing() > 0 })
			eventually(t, "a part of the snapshot", func() bool { files, n := f.incoming(".part"); return files > 0 && n >= (most-50_000)>>20<<20 })
			if files, _ := f.incoming(".snap"); files > 0 {
				t.Errorf("%d bytes let through, and there is a whole snapshot", most)
			}
			p.kill(f)
			v.set(-1)
			eventually(t, "no line to the dead", func() bool { return v.standing() == 0 })
		}
		// The leader dies while it sends; the other one leads, and can commit
		// nothing before the follower has the state.
		v.set(3<<20 + rand.Int64N(1<<20))
		f.begin(t)
		eventually(t, "a transfer that stands still", func() bool { return v.standing() > 0 })
		dead := p.leader()
		p.kill(dead)
		v.set(-1)
		if p.leader() == f {
			t.Error("a node without the log leads")
		}
		// The follower dies once more when all bytes are there.
		eventually(t, "the whole snapshot", func() bool {
			files, _ := f.incoming(".snap")
			return files > 0 || strings.Contains(f.stderr.String(), "a snapshot was received")
		})
		<-time.After(rand.N(30 * time.Millisecond))
		p.kill(f)
		p.start(f)
		p.start(dead)
		h.check(fmt.Sprintf("round %d", round))
		h.filled(round)
		if files, _ := f.incoming(""); files > 0 {
			t.Errorf("%d files of received snapshots are left", files)
		}
	}
	h.release()
}
