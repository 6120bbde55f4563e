package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// tongue is one stream as a test speaks on it.
type tongue struct {
	t       *testing.T
	send    func(*holdfastv1.SessionRequest) error
	hangUp  func()
	last    uint64
	frames  chan *holdfastv1.ServerFrame
	batches int // messages received, once frames is closed
	end     error
	ended   chan struct{}
	kept    []*holdfastv1.ServerFrame
}

// hear reads what the server says until the stream ends.
func (s *tongue) hear(receive func() (*holdfastv1.SessionResponse, error)) {
	defer close(s.ended)
	for {
		m, err := receive()
		if err != nil {
			s.end = err
			return
		}
		s.batches++
		for _, f := range m.GetFrames() {
			s.frames <- f
		}
	}
}

func newTongue(t *testing.T) *tongue {
	return &tongue{t: t, frames: make(chan *holdfastv1.ServerFrame, 100_000), ended: make(chan struct{})}
}

// overConnect opens a stream with connect, overGRPC with grpc-go.
func (w *world) overConnect() *tongue {
	w.t.Helper()
	s := newTongue(w.t)
	// A connection of its own, which can be cut.
	var mu sync.Mutex
	var lines []net.Conn
	hc := h2c(w.t)
	hc.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			lines = append(lines, c)
		}
		return c, err
	}
	c := holdfastv1connect.NewLockServiceClient(hc, w.url(""), wire.Limits()).Session(w.t.Context())
	s.send = c.Send
	s.hangUp = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, l := range lines {
			l.Close()
		}
	}
	if err := c.Send(nil); err != nil { // the headers, so that there is something to hear
		w.t.Fatal(err)
	}
	go s.hear(c.Receive)
	w.t.Cleanup(func() { s.hangUp(); <-s.ended })
	return s
}

func (w *world) overGRPC() *tongue {
	w.t.Helper()
	s, receive := w.grpcStream()
	go s.hear(receive)
	return s
}

// deaf opens a stream whose client reads nothing.
func (w *world) deaf() *tongue {
	w.t.Helper()
	s, _ := w.grpcStream()
	close(s.ended)
	return s
}

func (w *world) grpcStream() (*tongue, func() (*holdfastv1.SessionResponse, error)) {
	w.t.Helper()
	s := newTongue(w.t)
	cc, err := grpc.NewClient(w.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	c, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, holdfastv1connect.LockServiceSessionProcedure)
	if err != nil {
		w.t.Fatal(err)
	}
	s.send, s.hangUp = func(m *holdfastv1.SessionRequest) error { return c.SendMsg(m) }, cancel
	w.t.Cleanup(func() { cancel(); <-s.ended; cc.Close() })
	return s, func() (*holdfastv1.SessionResponse, error) {
		m := &holdfastv1.SessionResponse{}
		return m, c.RecvMsg(m)
	}
}

// say sends frames in one message and returns the ID of the first.
func (s *tongue) say(frames ...*holdfastv1.ClientFrame) uint64 {
	s.t.Helper()
	first := s.last + 1
	for _, f := range frames {
		s.last++
		f.Id = s.last
	}
	if err := s.send(&holdfastv1.SessionRequest{Frames: frames}); err != nil {
		s.t.Fatalf("send: %v", err)
	}
	return first
}

// answer waits for the next frame with an ID, and keeps others for later.
func (s *tongue) answer(id uint64) *holdfastv1.ServerFrame {
	s.t.Helper()
	for i, f := range s.kept {
		if f.GetId() == id {
			s.kept = append(s.kept[:i:i], s.kept[i+1:]...)
			return f
		}
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case f := <-s.frames:
			if f.GetId() == id {
				return f
			}
			s.kept = append(s.kept, f)
		case <-late.C:
			s.t.Fatalf("no answer to frame %d; kept %v", id, s.kept)
		case <-s.ended:
			if len(s.frames) == 0 {
				s.t.Fatalf("the stream ended (%v) without an answer to frame %d; kept %v", s.end, id, s.kept)
			}
		}
	}
}

// failure is the error in the answer to a frame.
func (s *tongue) failure(id uint64, kind driver.Kind) *driver.Error {
	s.t.Helper()
	f := s.answer(id)
	e := wire.FromErrorInfo(f.GetError())
	if e == nil || e.Kind != kind {
		s.t.Fatalf("answer %v, want an error of kind %v", f, kind)
	}
	return e
}

// over waits for the stream's end and returns its error.
func (s *tongue) over() *driver.Error {
	s.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.t.Fatal("the stream does not end")
	}
	if errors.Is(s.end, io.EOF) {
		return nil
	}
	if _, ok := errors.AsType[*connect.Error](s.end); ok {
		return wire.FromError(s.end)
	}
	return grpcError(s.end)
}

func frameOpen(m *holdfastv1.OpenSessionRequest) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Open{Open: m}}
}

func frameAttach(ref *holdfastv1.SessionRef, process string, number uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Attach{Attach: &holdfastv1.AttachRequest{Session: ref, Instance: instance(process), Number: number}}}
}

func frameKeepAlive(ids ...uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_KeepAlives{KeepAlives: &holdfastv1.KeepAlivesRequest{SessionIds: ids}}}
}

func frameAcquire(id uint64, lane uint32, n uint64, lock string, wait bool) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Acquire{Acquire: &holdfastv1.AcquireRequest{
		Session: &holdfastv1.SessionRef{Id: id}, Request: &holdfastv1.RequestID{Lane: lane, N: n}, Lock: lock, WaitForever: wait,
	}}}
}

func frameCancel(id uint64, lane uint32, n uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Cancel{Cancel: &holdfastv1.CancelRequest{
		Session: &holdfastv1.SessionRef{Id: id}, Request: &holdfastv1.RequestID{Lane: lane, N: n},
	}}}
}

func frameRelease(id, grant uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Release{Release: &holdfastv1.ReleaseRequest{Session: &holdfastv1.SessionRef{Id: id}, Grant: grant}}}
}

func frameEnd(id uint64) *holdfastv1.ClientFrame {
	return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_End{End: &holdfastv1.EndSessionRequest{Session: &holdfastv1.SessionRef{Id: id}}}}
}

// opened opens a session on a stream.
func (s *tongue) opened(process, label string, secret wire.Secret) uint64 {
	s.t.Helper()
	f := s.answer(s.say(frameOpen(&holdfastv1.OpenSessionRequest{Secret: secret.String(), TtlMs: 60_000, Label: label, Instance: instance(process)})))
	if f.GetOpen().GetSessionId() == 0 || f.GetOpen().GetTtlMs() != 60_000 {
		s.t.Fatalf("open: %v", f)
	}
	return f.GetOpen().GetSessionId()
}

// tongues runs a test over both transports that can carry a stream.
func tongues(t *testing.T, test func(t *testing.T, w *world, open func(*world) *tongue)) {
	w := start(t)
	for name, open := range map[string]func(*world) *tongue{"connect": (*world).overConnect, "grpc-go": (*world).overGRPC} {
		t.Run(name, func(t *testing.T) {
			in := *w
			in.t = t
			test(t, &in, open)
		})
	}
}

func TestLifeOfASessionOnAStream(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		lock := "stream/" + t.Name()
		s := open(w)
		a, b := s.opened("p1", "a", drawSecret()), s.opened("p1", "b", drawSecret())
		g := s.answer(s.say(frameAcquire(a, 0, 1, lock, true))).GetAcquire().GetGrant()
		if g.GetNumber() == 0 || g.GetLock() != lock {
			t.Fatalf("grant %v", g)
		}
		busy := s.failure(s.say(frameAcquire(b, 0, 1, lock, false)), driver.Busy)
		if busy.Outcome != driver.No || busy.Holder == nil || busy.Holder.Label != "a" || busy.Holder.GrantNumber != g.GetNumber() {
			t.Errorf("busy: %+v", busy)
		}
		waiting := s.say(frameAcquire(b, 0, 2, lock, true))
		if f := s.answer(waiting); f.GetQueued().GetPlace() != 1 {
			t.Fatalf("queued: %v", f)
		}
		// Other answers pass a request that waits.
		pulse := s.answer(s.say(frameKeepAlive(a))).GetKeepAlives().GetPulses()[0]
		if pulse.GetSessionId() != a || pulse.GetAlive().GetTtlMs() != 60_000 || len(pulse.GetAlive().GetContended()) != 1 || pulse.GetAlive().GetContended()[0] != g.GetNumber() {
			t.Errorf("pulse %v", pulse)
		}
		released := s.say(frameRelease(a, g.GetNumber()))
		if f := s.answer(released); f.GetRelease() == nil {
			t.Errorf("release: %v", f)
		}
		next := s.answer(waiting).GetAcquire().GetGrant()
		if next.GetNumber() != g.GetNumber()+1 {
			t.Errorf("the waiter got %v", next)
		}
		if f := s.answer(s.say(frameRelease(a, g.GetNumber()))); f.GetRelease() == nil {
			t.Errorf("second release: %v", f)
		}
		waiting = s.say(frameAcquire(a, 1, 1, lock, true))
		if f := s.answer(waiting); f.GetQueued() == nil {
			t.Errorf("queued: %v", f)
		}
		if f := s.answer(s.say(frameCancel(a, 1, 1))); f.GetCancel() == nil {
			t.Errorf("cancel: %v", f)
		}
		s.failure(waiting, driver.Cancelled)
		info := w.sessions()
		if !info[a].GetAttached() || info[a].GetLabel() != "a" || info[b].GetHoldsCount() != 1 || info[b].GetHolds()[0] != lock {
			t.Errorf("sessions: %v", info)
		}
		if f := s.answer(s.say(frameEnd(b))); f.GetEnd() == nil {
			t.Errorf("end: %v", f)
		}
		if w.lock(lock) != nil {
			t.Error("the ended session still holds")
		}
		// What was sent before the client knew of the end is answered rightly.
		s.failure(s.say(frameAcquire(b, 0, 9, lock, true)), driver.SessionLost)
		if f := s.answer(s.say(frameEnd(b))); f.GetEnd() == nil {
			t.Errorf("second end: %v", f)
		}
		lost := s.answer(s.say(frameKeepAlive(b))).GetKeepAlives().GetPulses()[0]
		if wire.FromErrorInfo(lost.GetError()).Kind != driver.SessionLost {
			t.Errorf("pulse of an ended session: %v", lost)
		}
		// The end of the stream ends no session.
		s.hangUp()
		w.until("the session is detached, and lives", func() bool {
			i := w.sessions()[a]
			return i != nil && !i.GetAttached()
		})
	})
}

// sessions are all sessions by ID.
func (w *world) sessions() map[uint64]*holdfastv1.SessionInfo {
	w.t.Helper()
	res, err := w.rpc.ListSessions(w.t.Context(), connect.NewRequest(&holdfastv1.ListSessionsRequest{PageSize: 1000}))
	must(w, res, err)
	all := map[uint64]*holdfastv1.SessionInfo{}
	for _, s := range res.Msg.GetSessions() {
		all[s.GetId()] = s
	}
	return all
}

func TestBadFramesAreAnsweredAndBreakNothing(t *testing.T) {
	tongues(t, func(t *testing.T, w *world, open func(*world) *tongue) {
		s := open(w)
		a := s.opened("p1", "a", drawSecret())
		other := w.open("other", time.Minute)
		for name, c := range map[string]struct {
			frame *holdfastv1.ClientFrame
			kind  driver.Kind
		}{
			"nothing asked":        {&holdfastv1.ClientFrame{}, driver.Unsupported},
			"open, no instance":    {frameOpen(&holdfastv1.OpenSessionRequest{}), driver.Invalid},
			"open, bad TTL":        {frameOpen(&holdfastv1.OpenSessionRequest{Instance: instance("p"), TtlMs: 5}), driver.Invalid},
			"not attached":         {frameAcquire(other.ref.GetId(), 0, 1, "x", true), driver.Denied},
			"not attached, end":    {frameEnd(other.ref.GetId()), driver.Denied},
			"no session":           {frameAcquire(0, 0, 1, "x", true), driver.Invalid},
			"no lock":              {frameAcquire(a, 0, 1, "", true), driver.Invalid},
			"n is 0":               {frameAcquire(a, 0, 0, "x", true), driver.Invalid},
			"cancel without n":     {frameCancel(a, 0, 0), driver.Invalid},
			"release without one":  {frameRelease(a, 0), driver.Invalid},
			"release of the never": {frameRelease(a, 1<<40), driver.Invalid},
			"attach, wrong secret": {frameAttach(&holdfastv1.SessionRef{Id: other.ref.GetId(), Secret: drawSecret().String()}, "p1", 1), driver.Denied},
			"attach, no number":    {frameAttach(other.ref, "p1", 0), driver.Invalid},
			"attach, lost session": {frameAttach(&holdfastv1.SessionRef{Id: 1 << 61, Secret: drawSecret().String()}, "p1", 1), driver.SessionLost},
		} {
			if e := s.failure(s.say(c.frame), c.kind); e.Outcome != driver.No || e.Error() == "" {
				t.Errorf("%s: %v, outcome %v", name, e, e.Outcome)
			}
		}
		p := s.answer(s.say(frameKeepAlive(other.ref.GetId()))).GetKeepAlives().GetPulses()[0]
		if wire.FromErrorInfo(p.GetError()).Kind != driver.Denied {
			t.Errorf("keepalive of another's session: %v", p)
		}
		if f := s.answer(s.say(frameKeepAlive())); f.GetKeepAlives() == nil {
			t.Errorf("keepalive of none: %v", f)
		}
		if s.answer(s.say(frameAcquire(a, 0, 1, "bad/"+t.Name(), true))).GetAcquire() == nil {
			t.Error("after all that the stream is of no use")
		}
		// A frame without an ID cannot be answered: that ends the stream.
		if err := s.send(&holdfastv1.SessionRequest{Frames: []*holdfastv1.ClientFrame{frameEnd(a)}}); err != nil {
			t.Fatal(err)
		}
		if e := s.over(); e == nil || e.Kind != driver.Invalid || !strings.Contains(e.Error(), "id 0") {
			t.Errorf("the stream ended with %v", e)
		}
		if w.sessions()[a] == nil {
			t.Error("a frame of a refused message was executed")
		}
	})
}

func TestMalformedAndOverlongMessagesEndTheStream(t *testing.T) {
	w := start(t)
	s := w.overGRPC()
	s.opened("p1", "a", drawSecret())
	big := frameOpen(&holdfastv1.OpenSessionRequest{Label: strings.Repeat("a", 5<<20), Instance: instance("p")})
	s.say(big)
	if e := s.over(); e == nil || e.Kind != driver.Limit || e.Outcome != driver.No {
		t.Errorf("5 MiB: %v", e)
	}
	s = w.overConnect()
	many := make([]*holdfastv1.ClientFrame, wire.MaxFramesPerRequest+1)
	for i := range many {
		many[i] = &holdfastv1.ClientFrame{}
	}
	s.say(many...)
	if e := s.over(); e == nil || e.Kind != driver.Invalid || !strings.Contains(e.Error(), "20000") {
		t.Errorf("too many frames: %v", e)
	}
	// Bytes that are no message, and an envelope that lies about its length.
	for name, body := range map[string]string{
		"garbage":          "\x00\x00\x00\x00\x03\xff\xff\xff",
		"lying envelope":   "\x00\xff\xff\xff\xff\x01",
		"cut in the midst": "\x00\x00\x00\x00\x10\x0a",
		"not gzip":         "\x01\x00\x00\x00\x03abc",
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url(holdfastv1connect.LockServiceSessionProcedure), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/connect+proto")
		res, err := h2c(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		out, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !strings.Contains(string(out), `"error"`) {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	if ok, why := w.node.Ready(); !ok {
		t.Errorf("not ready any more: %s", why)
	}
}

func TestUnknownFieldsOfAJSONStreamAreRefused(t *testing.T) {
	w := start(t)
	body := `{"frames":[{"id":1,"opne":{}}]}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url(holdfastv1connect.LockServiceSessionProcedure),
		strings.NewReader(fmt.Sprintf("\x00\x00\x00\x00%c%s", len(body), body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/connect+json")
	res, err := h2c(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if out, err := io.ReadAll(res.Body); err != nil || !strings.Contains(string(out), "opne") {
		t.Errorf("%q, %v", out, err)
	}
}

// Answers that are there together leave together: one write for a batch.
func TestABatchIsAnsweredInFewMessages(t *testing.T) {
	w := start(t)
	s := w.overConnect()
	a := s.opened("p1", "a", drawSecret())
	const count = 2000
	frames := make([]*holdfastv1.ClientFrame, count)
	for i := range frames {
		frames[i] = frameAcquire(a, uint32(i), 1, fmt.Sprintf("batch/%d", i), true)
	}
	first := s.say(frames...)
	seen := map[uint64]bool{}
	for i := range uint64(count) {
		g := s.answer(first + i).GetAcquire().GetGrant()
		if g == nil || seen[g.GetNumber()] {
			t.Fatalf("frame %d: grant %v", i, g)
		}
		seen[g.GetNumber()] = true
	}
	s.hangUp()
	<-s.ended
	if s.batches > count/10 {
		t.Errorf("%d answers came in %d messages", count, s.batches)
	}
}
