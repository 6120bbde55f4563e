package cluster

import (
	"context"

	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// fake is the least that can stand behind a stream: it records messages and
// answers frames as its test says, by default with yes. It knows no locks.
type fake struct {
	holdfastv1connect.UnimplementedLockServiceHandler
	t    *testing.T
	addr string
	srv  *http.Server
	// answer says what a frame is answered with; nil leaves it to yes.
	// Returning none (an empty slice) leaves the frame unanswered.
	answer func(n int, f *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame
	// read is what a look at a lock is refused with.
	read error
	// watch plays one watch stream; nil refuses.
	watch func(after uint64, send func(*holdfastv1.WatchResponse) error) error

	mu struct {
		sync.Mutex
		streams  int
		messages []message
		number   uint64
		sessions map[string]uint64 // by secret
		changed  chan struct{}
	}
}

// message is one SessionRequest, and the number of the stream it came on.
type message struct {
	stream int
	frames []*holdfastv1.ClientFrame
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{t: t}
	f.mu.sessions = make(map[string]uint64)
	f.mu.changed = make(chan struct{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = ln.Addr().String()
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	p.SetHTTP1(true)
	f.srv = &http.Server{Handler: f.handler(), Protocols: p}
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.srv.Serve(ln) })
	t.Cleanup(func() { _ = f.srv.Close(); wg.Wait() })
	return f
}

func (f *fake) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(holdfastv1connect.NewLockServiceHandler(f))
	return mux
}

func (f *fake) GetStatus(context.Context, *connect.Request[holdfastv1.GetStatusRequest]) (*connect.Response[holdfastv1.GetStatusResponse], error) {
	return connect.NewResponse(&holdfastv1.GetStatusResponse{Ready: true}), nil
}

func (f *fake) GetLock(context.Context, *connect.Request[holdfastv1.GetLockRequest]) (*connect.Response[holdfastv1.GetLockResponse], error) {
	return nil, f.read
}

func (f *fake) Watch(_ context.Context, req *connect.Request[holdfastv1.WatchRequest], s *connect.ServerStream[holdfastv1.WatchResponse]) error {
	return f.watch(req.Msg.GetAfterRevision(), s.Send)
}

func (f *fake) Session(_ context.Context, s *connect.BidiStream[holdfastv1.SessionRequest, holdfastv1.SessionResponse]) error {
	f.mu.Lock()
	f.mu.streams++
	n := f.mu.streams
	f.mu.Unlock()
	for {
		req, err := s.Receive()
		if err != nil {
			return nil
		}
		f.mu.Lock()
		f.mu.messages = append(f.mu.messages, message{n, req.GetFrames()})
		close(f.mu.changed)
		f.mu.changed = make(chan struct{})
		f.mu.Unlock()
		res := &holdfastv1.SessionResponse{}
		for _, fr := range req.GetFrames() {
			var out []*holdfastv1.ServerFrame
			f.mu.Lock()
			answer := f.answer
			f.mu.Unlock()
			if answer != nil {
				out = answer(n, fr)
			}
			if out == nil {
				out = []*holdfastv1.ServerFrame{f.yes(fr)}
			}
			for _, o := range out {
				if o.Id == 0 && o.GetDetached() == nil {
					o.Id = fr.GetId()
				}
				res.Frames = append(res.Frames, o)
			}
		}
		if len(res.Frames) > 0 {
			if err := s.Send(res); err != nil {
				return nil
			}
		}
	}
}

// yes answers a frame with success.
func (f *fake) yes(fr *holdfastv1.ClientFrame) *holdfastv1.ServerFrame {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &holdfastv1.ServerFrame{Id: fr.GetId()}
	switch b := fr.GetBody().(type) {
	case *holdfastv1.ClientFrame_Open:
		id, ok := f.mu.sessions[b.Open.GetSecret()]
		if !ok {
			id = uint64(len(f.mu.sessions) + 1)
			f.mu.sessions[b.Open.GetSecret()] = id
		}
		out.Body = &holdfastv1.ServerFrame_Open{Open: &holdfastv1.OpenSessionResponse{SessionId: id, TtlMs: b.Open.GetTtlMs()}}
	case *holdfastv1.ClientFrame_Attach:
		out.Body = &holdfastv1.ServerFrame_Attach{Attach: &holdfastv1.AttachResponse{}}
	case *holdfastv1.ClientFrame_KeepAlives:
		r := &holdfastv1.KeepAlivesResponse{}
		for _, id := range b.KeepAlives.GetSessionIds() {
			r.Pulses = append(r.Pulses, &holdfastv1.SessionPulse{SessionId: id, Alive: &holdfastv1.KeepAliveResponse{}})
		}
		out.Body = &holdfastv1.ServerFrame_KeepAlives{KeepAlives: r}
	case *holdfastv1.ClientFrame_Acquire:
		f.mu.number++
		g := wire.Grant(f.mu.number, fence.Token{Domain: fence.Domain{1}, Lock: b.Acquire.GetLock(), Mode: fence.Exclusive, Number: f.mu.number}, 0)
		out.Body = &holdfastv1.ServerFrame_Acquire{Acquire: &holdfastv1.AcquireResponse{Grant: g}}
	case *holdfastv1.ClientFrame_Cancel:
		out.Body = &holdfastv1.ServerFrame_Cancel{Cancel: &holdfastv1.CancelResponse{}}
	case *holdfastv1.ClientFrame_Release:
		out.Body = &holdfastv1.ServerFrame_Release{Release: &holdfastv1.ReleaseResponse{}}
	case *holdfastv1.ClientFrame_End:
		out.Body = &holdfastv1.ServerFrame_End{End: &holdfastv1.EndSessionResponse{}}
	default:
		f.t.Errorf("unknown frame %v", fr)
	}
	return out
}

// answers changes how frames are answered from now on.
func (f *fake) answers(how func(n int, f *holdfastv1.ClientFrame) []*holdfastv1.ServerFrame) {
	f.mu.Lock()
	f.answer = how
	f.mu.Unlock()
}

// refuse is an answer with an error.
func refuse(e *driver.Error) []*holdfastv1.ServerFrame {
	return []*holdfastv1.ServerFrame{{Body: &holdfastv1.ServerFrame_Error{Error: wire.ErrorInfo(e)}}}
}

var silent = []*holdfastv1.ServerFrame{}

// until waits until cond holds for what was received so far.
func (f *fake) until(what string, cond func([]message) bool) []message {
	f.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		f.mu.Lock()
		got, changed := append([]message(nil), f.mu.messages...), f.mu.changed
		f.mu.Unlock()
		if cond(got) {
			return got
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("%s: not seen; got %v", what, got)
		}
	}
}

// count is how many frames of the messages are as said.
func count(ms []message, is func(stream int, f *holdfastv1.ClientFrame) bool) (n int) {
	for _, m := range ms {
		for _, f := range m.frames {
			if is(m.stream, f) {
				n++
			}
		}
	}
	return n
}

// line makes a link to the endpoints, and ends it with the test.
func line(t *testing.T, endpoints ...string) *link {
	t.Helper()
	l := newLink(endpoints, new(net.Dialer).DialContext, nil, (&Options{}).logger())
	go l.connectLoop()
	t.Cleanup(l.close)
	return l
}

func openOne(t *testing.T, l *link) *session {
	t.Helper()
	s, err := l.open(t.Context(), driver.OpenRequest{TTL: 15 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func request(lock string, lane uint32, n uint64) driver.AcquireRequest {
	return driver.AcquireRequest{ID: driver.RequestID{Lane: lane, N: n}, Lock: lock}
}
