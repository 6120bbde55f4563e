package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/peer"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
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

// startServers starts a cluster of n servers and returns them, the leader
// first.
func startServers(t *testing.T, n int, change ...func(*Config)) []*world {
	t.Helper()
	var list []peer.Founder
	for i := range n {
		list = append(list, peer.Founder{Name: rigName(i), Addr: freeAddress(t)})
	}
	worlds := make([]*world, n)
	failed := make(chan error, n)
	for i := range n {
		log := &logBuffer{}
		cfg := Config{
			Listen: "127.0.0.1:0", Dir: t.TempDir(), Tick: clusterTick,
			Logger:  slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
			Cluster: ClusterConfig{Name: rigName(i), PeerListen: list[i].Addr, Founders: list},
		}
		for _, c := range change {
			c(&cfg)
		}
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			s, err := Start(ctx, cfg)
			if err == nil {
				worlds[i] = &world{Server: s, t: t, log: log}
			}
			failed <- err
		}()
	}
	var err error
	for range n {
		if e := <-failed; e != nil {
			err = e
		}
	}
	t.Cleanup(func() {
		for _, w := range worlds {
			if w != nil {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_ = w.Stop(ctx)
				cancel()
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range worlds {
		w.rpc = holdfastv1connect.NewLockServiceClient(h2c(t), "http://"+w.Addr(), wire.Limits())
		w.until("ready", func() bool { ok, _ := w.node.Ready(); return ok })
	}
	slices.SortStableFunc(worlds, func(a, b *world) int {
		if a.node.Status().Role == "leader" {
			return -1
		}
		return 1
	})
	return worlds
}

// A call that reaches a follower is passed on once, by every protocol; what is
// to be decided is decided by the leader.
func TestCallsAreRelayed(t *testing.T) {
	worlds := startServers(t, 3)
	lead, follower := worlds[0], worlds[1]
	for name, call := range follower.callers() {
		t.Run(name, func(t *testing.T) {
			c := &client{w: follower, secret: drawSecret()}
			var opened holdfastv1.OpenSessionResponse
			if e := call(t.Context(), "OpenSession", &holdfastv1.OpenSessionRequest{Secret: c.secret.String(), TtlMs: 60_000}, &opened); e != nil {
				t.Fatal(e)
			}
			ref := &holdfastv1.SessionRef{Id: opened.GetSessionId(), Secret: c.secret.String()}
			var got holdfastv1.AcquireResponse
			if e := call(t.Context(), "Acquire", &holdfastv1.AcquireRequest{Session: ref, Request: &holdfastv1.RequestID{N: 1}, Lock: name}, &got); e != nil || got.GetGrant().GetNumber() == 0 {
				t.Fatalf("%v, %v", &got, e)
			}
			var alive holdfastv1.KeepAliveResponse
			if e := call(t.Context(), "KeepAlive", &holdfastv1.KeepAliveRequest{Session: ref}, &alive); e != nil || alive.GetTtlMs() != 60_000 {
				t.Errorf("%v, %v", &alive, e)
			}
			var lock holdfastv1.GetLockResponse
			if e := call(t.Context(), "GetLock", &holdfastv1.GetLockRequest{Lock: name}, &lock); e != nil || lock.GetLock().GetHolders()[0].GetGrant() != got.GetGrant().GetNumber() || lock.GetRead().GetStale() {
				t.Errorf("%v, %v", &lock, e)
			}
			// An error of the leader's comes as it is.
			again := &holdfastv1.AcquireRequest{Session: ref, Request: &holdfastv1.RequestID{N: 2}, Lock: name}
			if e := call(t.Context(), "Acquire", again, &got); e == nil || e.Kind != driver.HeldByYou || e.Outcome != driver.No || e.Holder == nil {
				t.Errorf("a second acquire: %+v", e)
			}
			wrong := drawSecret()
			if e := call(t.Context(), "KeepAlive", &holdfastv1.KeepAliveRequest{Session: &holdfastv1.SessionRef{Id: ref.GetId(), Secret: wrong.String()}}, &alive); e == nil || e.Kind != driver.Denied {
				t.Errorf("a wrong secret: %+v", e)
			}
		})
	}
	// A call that was passed on before is not passed on again, and says who leads.
	req := connect.NewRequest(&holdfastv1.ListLocksRequest{})
	req.Header().Set(relayedHeader, "follower")
	_, err := follower.rpc.ListLocks(t.Context(), req)
	e := wire.FromError(err)
	if r := wire.RemoteOf(e); e == nil || e.Kind != driver.Unavailable || e.Outcome != driver.No || r == nil || r.Info.GetLeaderAddress() != lead.Addr() || r.Info.GetTerm() == 0 {
		t.Errorf("a relayed call at a follower: %+v", e)
	}
	// An operator's call is not passed on.
	_, err = follower.rpc.RevokeGrant(t.Context(), connect.NewRequest(&holdfastv1.RevokeGrantRequest{Lock: "x", Grant: 1}))
	if e := wire.FromError(err); e == nil || e.Outcome != driver.No || e.Kind == driver.NotHeld {
		t.Errorf("an operator's call at a follower: %+v", e)
	}
	// What a follower may answer itself it does.
	stale, err := follower.rpc.ListLocks(t.Context(), connect.NewRequest(&holdfastv1.ListLocksRequest{AllowStale: true}))
	if err != nil || !stale.Msg.GetRead().GetStale() {
		t.Errorf("a stale list: %v, %v", stale, err)
	}
	if _, page := follower.get("/metrics"); !strings.Contains(page, "holdfast_api_calls_relayed_total") || strings.Contains(page, "holdfast_api_calls_relayed_total 0") {
		t.Error("relayed calls are not counted")
	}
}

// A stream is not served by a follower: it is told who leads. When leadership
// moves, the streams of the old leader end with the new one's address.
func TestStreamsGoToTheLeader(t *testing.T) {
	worlds := startServers(t, 3)
	lead, follower := worlds[0], worlds[1]
	address := func(err error) string {
		if r := wire.RemoteOf(wire.FromError(err)); r != nil {
			return r.Info.GetLeaderAddress()
		}
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st := follower.rpc.Session(ctx)
	_ = st.Send(nil)
	if _, err := st.Receive(); address(err) != lead.Addr() {
		t.Errorf("a stream at a follower: %v, want the address %s", err, lead.Addr())
	}
	st = lead.rpc.Session(ctx)
	if err := st.Send(&holdfastv1.SessionRequest{}); err != nil {
		t.Fatal(err)
	}
	lead.until("the stream is open", func() bool { return len(lead.service.streams.list()) == 1 })
	if err := lead.node.ask(ctx, true, func(l *loop, done func(error)) {
		l.handOver("a test")
		done(nil)
	}); err != nil {
		t.Fatal(err)
	}
	_, err := st.Receive()
	to := address(err)
	if to == "" || to == lead.Addr() || !slices.ContainsFunc(worlds, func(w *world) bool { return w.Addr() == to }) {
		t.Errorf("the stream of a leader that handed over ended with %v", err)
	}
}

// The port says why it is not ready while founders are missing.
func TestNotReadyUntilFounded(t *testing.T) {
	list := []peer.Founder{{Name: "a", Addr: freeAddress(t)}, {Name: "b", Addr: freeAddress(t)}, {Name: "c", Addr: freeAddress(t)}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := freeAddress(t)
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Config{Listen: addr, Dir: t.TempDir(), Tick: clusterTick, Logger: quietLog, Cluster: ClusterConfig{Name: "a", PeerListen: list[0].Addr, Founders: list}})
		ended <- err
	}()
	(&world{t: t}).waits(addr, "b does not answer")
	cancel()
	if err := <-ended; err == nil {
		t.Error("it started")
	}
}

// waits waits until a node that is not ready says why, and checks that it is
// not taken for a dead one.
func (w *world) waits(addr, why string) {
	w.t.Helper()
	hc := &http.Client{Timeout: time.Second}
	get := func(path string) (status int, text string, err error) {
		res, err := hc.Get("http://" + addr + path)
		if err != nil {
			return 0, "", err
		}
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		return res.StatusCode, string(b), err
	}
	w.until("it says what it waits for", func() bool {
		status, text, err := get("/readyz")
		return err == nil && status == http.StatusServiceUnavailable && strings.Contains(text, why)
	})
	if status, _, err := get("/healthz"); err != nil || status != http.StatusOK {
		w.t.Errorf("/healthz of a node that waits: %d, %v", status, err)
	}
}

// A node that waits to be added says so, and not that its cluster is to be
// founded.
func TestNotReadyUntilAdded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := freeAddress(t)
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, Config{Listen: addr, Dir: t.TempDir(), Tick: clusterTick, Logger: quietLog, Cluster: ClusterConfig{Name: "d", PeerListen: freeAddress(t), Join: []string{freeAddress(t)}}})
		ended <- err
	}()
	(&world{t: t}).waits(addr, "not ready: this node waits to be added to a cluster: ")
	cancel()
	if err := <-ended; err == nil {
		t.Error("it started")
	}
}

func TestClusterSettings(t *testing.T) {
	for text, want := range map[string]string{
		"a=h:1":                   "",
		"a=h:1,b=h:2,c=[::1]:3":   "",
		" a=h:1, b=h:2 ,c=h:3":    "",
		"a=h:1,b=h:2":             "odd number",
		"a=h:1,b=h:2,c=h:3,d=h:4": "odd number",
		"a=h:1,b=h:2,c=h:3,d=h:4,e=h:5,f=h:6,g=h:7,h=h:8,i=h:9": "at most 7",
		"h:1":               "name=host:port",
		"":                  "name=host:port",
		"a=h:1,a=h:2,c=h:3": "must differ",
		"a=h:1,b=h:1,c=h:3": "must differ",
		"A=h:1":             "want 1–64",
		"a=h":               "host:port",
		"a=:1":              "wildcard",
		"a=0.0.0.0:1":       "wildcard",
		"a=h:0":             "1 to 65535",
		"a=h:x":             "1 to 65535",
	} {
		list, err := ParseFounders(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && list[0] != (peer.Founder{Name: "a", Addr: "h:1"}) {
			t.Errorf("%q: %v, %v; want %q", text, list, err, want)
		}
	}
	three, err := ParseFounders("a=h:1,b=h:2,c=h:3")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		listen   string
		insecure bool
		cfg      ClusterConfig
		want     string
	}{
		{"127.0.0.1:1", false, ClusterConfig{}, ""},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", Founders: three}, ""},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", PeerListen: "127.0.0.1:5"}, ""},
		{"127.0.0.1:1", false, ClusterConfig{Founders: three}, "needs a name"},
		{"127.0.0.1:1", false, ClusterConfig{Name: "d", Founders: three}, "a, b, c, and not d"},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", Founders: three, PeerAdvertise: "h:2"}, "must be the same"},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", PeerListen: "10.0.0.1:5"}, "loopback"},
		{"127.0.0.1:1", true, ClusterConfig{Name: "a", PeerListen: "10.0.0.1:5"}, ""},
		{"127.0.0.1:1", true, ClusterConfig{Name: "a", PeerListen: "0.0.0.0:5"}, "peer-advertise"},
		{"127.0.0.1:1", true, ClusterConfig{Name: "a", PeerListen: "0.0.0.0:5", PeerAdvertise: "h:5"}, ""},
		{"0.0.0.0:1", true, ClusterConfig{Name: "a", PeerListen: "127.0.0.1:5"}, "advertise must say"},
		{"0.0.0.0:1", true, ClusterConfig{Name: "a", PeerListen: "127.0.0.1:5", Advertise: "h:1"}, ""},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", PeerListen: "127.0.0.1:5", Advertise: ":1"}, "wildcard"},
		{"127.0.0.1:1", false, ClusterConfig{PeerAdvertise: "h:5"}, "peer-listen"},
		{"127.0.0.1:1", false, ClusterConfig{Name: "Å"}, "want 1–64"},
		{"127.0.0.1:1", false, ClusterConfig{Name: "a", PeerListen: "x"}, "host:port"},
	} {
		if err := c.cfg.Check(c.listen, c.insecure, false); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v on %s: %v; want %q", c.cfg, c.listen, err, c.want)
		}
	}
}
