package cluster

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// slowFollower names a leader to every session, and takes its time with an
// operator's call.
type slowFollower struct {
	*fake
	begun  chan struct{}
	answer chan struct{}
	calls  atomic.Int64
}

func (f *slowFollower) ExpelSession(context.Context, *connect.Request[holdfastv1.ExpelSessionRequest]) (*connect.Response[holdfastv1.ExpelSessionResponse], error) {
	if f.calls.Add(1) == 1 {
		close(f.begun)
	}
	<-f.answer
	return connect.NewResponse(&holdfastv1.ExpelSessionResponse{}), nil
}

func newSlowFollower(t *testing.T, leader string) (f *slowFollower, addr string) {
	t.Helper()
	f = &slowFollower{fake: newFake(t), begun: make(chan struct{}), answer: make(chan struct{})}
	f.answers(func(int, *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame {
		return refuse(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "not the leader",
			Err: &wire.Remote{Info: &holdfastv1.ErrorInfo{LeaderAddress: leader}}})
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	mux := http.NewServeMux()
	mux.Handle(holdfastv1connect.NewLockServiceHandler(f))
	srv := &http.Server{Handler: mux, Protocols: p}
	var serving sync.WaitGroup
	serving.Go(func() { _ = srv.Serve(ln) })
	t.Cleanup(func() { _ = srv.Close(); serving.Wait() })
	return f, ln.Addr().String()
}

// A follower sends the client to the leader while a call on the same connection
// is under way. That call gets its answer: to break it would leave its outcome
// open, and an operator's call that may have been done is not repeated.
func TestCallOutlivesTheMoveToTheLeader(t *testing.T) {
	t.Parallel()
	leader := newFake(t)
	follower, addr := newSlowFollower(t, leader.addr)
	l := line(t, addr)
	ended := make(chan *driver.Error, 1)
	go func() {
		_, _, err := unary(t.Context(), l, ifNot, holdfastv1connect.LockServiceClient.ExpelSession, &holdfastv1.ExpelSessionRequest{SessionId: 7})
		ended <- err
	}()
	<-follower.begun
	openOne(t, l)
	st, err := l.stream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if st.conn.addr != leader.addr {
		t.Fatalf("the line leads to %s, the leader is %s", st.conn.addr, leader.addr)
	}
	close(follower.answer)
	if err := <-ended; err != nil {
		t.Errorf("the call under way: %v (outcome %v)", err, err.Outcome)
	}
	if n := follower.calls.Load(); n != 1 {
		t.Errorf("%d calls were made", n)
	}
}

// A connection that was left takes no further call, and is closed when the last
// one has ended, or the client.
func TestLeftConnectionIsClosed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(endCall func(), endClient context.CancelFunc){
		"by its last call": func(endCall func(), _ context.CancelFunc) { endCall() },
		"by the client":    func(_ func(), endClient context.CancelFunc) { endClient() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, endClient := context.WithCancel(t.Context())
			defer endClient()
			f := newFake(t)
			hungUp := make(chan struct{})
			var once sync.Once
			c, err := dialConn(ctx, f.addr, func(ctx context.Context, network, addr string) (net.Conn, error) {
				raw, err := new(net.Dialer).DialContext(ctx, network, addr)
				return closeTold{raw, func() { once.Do(func() { close(hungUp) }) }}, err
			}, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			endCall, ok := c.begin()
			if !ok {
				t.Fatal("a fresh connection takes no call")
			}
			c.leave(ctx)
			if _, ok := c.begin(); ok {
				t.Error("a call began on a connection that was left")
			}
			select {
			case <-hungUp:
				t.Error("closed under a call")
			default:
			}
			end(endCall, endClient)
			<-hungUp
		})
	}
}

// closeTold is a connection whose end is told.
type closeTold struct {
	net.Conn
	told func()
}

func (c closeTold) Close() error { c.told(); return c.Conn.Close() }
