package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/server"
	"holdfast/server/peer"
)

// freeAddress is an address on which nobody listens, outside of the ports that
// the kernel gives to connections.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no free port")
	return ""
}

// startCluster starts a cluster of three in this process, and returns the
// addresses of its members.
func startCluster(t *testing.T) string {
	t.Helper()
	var list []peer.Founder
	for i := range 3 {
		list = append(list, peer.Founder{Name: fmt.Sprint("n", i), Addr: freeAddress(t)})
	}
	servers := make(chan *server.Server, 3)
	for _, f := range list {
		cfg := server.Config{
			Listen: "127.0.0.1:0", Dir: memoryDir(t), Logger: slog.New(slog.DiscardHandler), Tick: 50 * time.Millisecond,
			Cluster: server.ClusterConfig{Name: f.Name, PeerListen: f.Addr, Founders: list},
		}
		go func() {
			s, err := server.Start(context.Background(), cfg)
			if err != nil {
				t.Error(err)
			}
			servers <- s
		}()
	}
	var addrs []string
	for range 3 {
		s := <-servers
		if s == nil {
			t.FailNow()
		}
		addrs = append(addrs, s.Addr())
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			_ = s.Stop(ctx)
		})
	}
	return strings.Join(addrs, ",")
}

// deafDialer opens lines on which a request that holds a mark goes out and
// nothing comes back any more, a number of times.
type deafDialer struct {
	mark  []byte
	times atomic.Int64
}

func (d *deafDialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &deafConn{Conn: c, d: d, closed: make(chan struct{})}, nil
}

type deafConn struct {
	net.Conn
	d      *deafDialer
	deaf   atomic.Bool
	once   atomic.Bool
	closed chan struct{}
}

func (c *deafConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.d.mark) && c.d.times.Add(-1) >= 0 {
		c.deaf.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *deafConn) Close() error {
	if c.once.CompareAndSwap(false, true) {
		close(c.closed)
	}
	return c.Conn.Close()
}

// TestTransferWhoseAnswerIsLost: leadership is handed over, and the answer is
// lost, once or twice. The caller is told who leads, and that is true.
func TestTransferWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	addrs := startCluster(t)
	look := dial(t, addrs, nil)
	const by = "whose answer is lost"
	for _, named := range []bool{false, true} {
		before := must[*ClusterStatus](t)(look.leaderStatus(t.Context()))
		if len(before.successors()) != 2 {
			t.Fatalf("%+v", before)
		}
		d := &deafDialer{mark: []byte(by)}
		d.times.Store(1)
		if !named {
			d.times.Store(2)
		}
		c := dial(t, addrs, &Options{Dialer: d.dial})
		name, want := "", uint64(0)
		if named {
			name, want = before.successors()[1].Name, before.successors()[1].ID
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		leads, err := c.TransferLeadership(ctx, name, 0, by)
		if err != nil || d.times.Load() >= 0 {
			t.Fatalf("named %v: %+v, %v; %d answers would still be lost", named, leads, err, d.times.Load())
		}
		after := must[*ClusterStatus](t)(look.leaderStatus(t.Context()))
		if leads.ID != after.LeaderID || leads.ID == before.LeaderID || want != 0 && leads.ID != want || leads.Name == "" {
			t.Errorf("named %v: %016x led, told that %+v leads, and %016x does", named, before.LeaderID, leads, after.LeaderID)
		}
	}
}

// A transfer of which nobody tells what became says so, within its time.
func TestTransferThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	addrs := startCluster(t)
	const by = "whom nobody answers"
	d := &deafDialer{mark: []byte(by)}
	d.times.Store(1 << 30)
	c := dial(t, addrs, &Options{Dialer: d.dial})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	before := must[*ClusterStatus](t)(c.leaderStatus(ctx))
	leads, err := c.TransferLeadership(ctx, "", 0, by)
	if err != nil { // the look at the end saw no leader yet
		if driver.OutcomeOf(err) != driver.Unknown || !strings.Contains(err.Error(), "holdfast cluster status") {
			t.Errorf("%v", err)
		}
		return
	}
	if leads.ID == before.LeaderID {
		t.Errorf("%+v leads as before", leads)
	}
}
