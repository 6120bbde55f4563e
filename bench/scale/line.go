package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// How much a line has under way: what one message holds, and how many frames
// may be without an answer.
const (
	framesPerMessage = 500
	maxUnanswered    = 1000
	idsPerFrame      = 10_000
)

// held is one session of a line.
type held struct {
	id     uint64
	secret wire.Secret
}

// line is one client process: one connection, one stream, many sessions.
type line struct {
	number int
	hosts  []string
	// interrupted is told why a stream ended before all was answered.
	interrupted func(why error)
	ttl         time.Duration
	instance    [16]byte
	sessions    []held
	attaches    uint64

	mu     sync.Mutex // one batch at a time
	stream *connect.BidiStreamForClient[holdfastv1.SessionRequest, holdfastv1.SessionResponse]
	client *http.Client
	hangUp context.CancelFunc
	lastID uint64
}

// newLine makes a line of n sessions, none of which is open.
func newLine(number, n int, ttl time.Duration, hosts []string, interrupted func(error)) *line {
	l := &line{number: number, ttl: ttl, hosts: hosts, interrupted: interrupted, sessions: make([]held, n)}
	_, _ = rand.Read(l.instance[:]) // never fails
	for i := range l.sessions {
		_, _ = rand.Read(l.sessions[i].secret[:])
	}
	return l
}

// connect finds the leader, opens a stream there, and speaks for all sessions
// on it.
func (l *line) connect(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reach(ctx)
}

func (l *line) reach(ctx context.Context) error {
	l.hangUpNow()
	for try := 0; ; try++ {
		err := l.dial(ctx, l.hosts[try%len(l.hosts)])
		if err == nil {
			err = l.attach(ctx)
		}
		var lost *errLost
		if err == nil || errors.As(err, &lost) {
			return err
		}
		l.hangUpNow()
		if ctx.Err() != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		if try%len(l.hosts) == len(l.hosts)-1 {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
}

// dial opens a stream to one node; a node that does not lead refuses it.
func (l *line) dial(ctx context.Context, host string) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	l.client = &http.Client{Transport: &http.Transport{Protocols: protocols}}
	rpc := holdfastv1connect.NewLockServiceClient(l.client, "http://"+host, connect.WithReadMaxBytes(wire.MaxFrame), connect.WithAcceptCompression("gzip", nil, nil))
	ask, cancel := context.WithTimeout(ctx, 2*time.Second)
	st, err := rpc.GetStatus(ask, connect.NewRequest(&holdfastv1.GetStatusRequest{}))
	cancel()
	if err != nil {
		return err
	}
	if st.Msg.GetRole() != "leader" || !st.Msg.GetReady() {
		return errors.New("it does not lead")
	}
	inner, hangUp := context.WithCancel(ctx)
	l.stream, l.hangUp = rpc.Session(inner), hangUp
	if err := l.stream.Send(nil); err != nil {
		l.hangUpNow()
		return err
	}
	return nil
}

func (l *line) disconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hangUpNow()
}

func (l *line) hangUpNow() {
	if l.hangUp != nil {
		l.hangUp()
		l.client.CloseIdleConnections()
		l.hangUp, l.stream = nil, nil
	}
}

// batch sends n frames, a few thousand at a time, and hands each answer to
// done. An error that is an answer is done's.
func (l *line) batch(ctx context.Context, n int, frame func(i int) *holdfastv1.ClientFrame, done func(i int, f *holdfastv1.ServerFrame) error) error {
	if l.stream == nil {
		return errors.New("no stream")
	}
	base, stream := l.lastID+1, l.stream
	l.lastID += uint64(n)
	room := make(chan struct{}, maxUnanswered)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sent := make(chan error, 1)
	go func() {
		for at := 0; at < n; {
			req := &holdfastv1.SessionRequest{}
			for at < n && len(req.Frames) < framesPerMessage {
				select {
				case room <- struct{}{}:
				case <-ctx.Done():
					sent <- ctx.Err()
					return
				}
				f := frame(at)
				f.Id = base + uint64(at)
				req.Frames = append(req.Frames, f)
				at++
			}
			if err := stream.Send(req); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for answered := 0; answered < n; {
		res, err := stream.Receive()
		if err != nil {
			return err
		}
		for _, f := range res.GetFrames() {
			i := int(f.GetId() - base)
			if f.GetId() < base || i >= n {
				return fmt.Errorf("an answer to frame %d that nobody waits for: %v", f.GetId(), f)
			}
			if err := done(i, f); err != nil {
				return err
			}
			answered++
			<-room
		}
	}
	return <-sent
}

func answerError(f *holdfastv1.ServerFrame) error {
	if e := wire.FromErrorInfo(f.GetError()); e != nil {
		return e
	}
	return nil
}

// persist repeats do on a new stream, and the one after, until the service has
// answered: every request has a name, and asking twice is asking once.
func (l *line) persist(ctx context.Context, do func() error) error {
	for {
		l.mu.Lock()
		used := l.stream
		l.mu.Unlock()
		err := do()
		var e *driver.Error
		if err == nil || ctx.Err() != nil || !errors.As(wire.FromError(err), &e) || e.Kind != driver.Unavailable && e.Kind != driver.Overloaded {
			return err
		}
		if err := l.renew(ctx, used, err); err != nil {
			return err
		}
	}
}

// renew connects again, unless somebody else has since the stream was used.
func (l *line) renew(ctx context.Context, used any, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil && l.stream != used {
		return nil
	}
	l.interrupted(why)
	return l.reach(ctx)
}

// open opens the sessions.
func (l *line) open(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batch(ctx, len(l.sessions), func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Open{Open: &holdfastv1.OpenSessionRequest{
			Secret: l.sessions[i].secret.String(), TtlMs: wire.Millis(l.ttl), Label: "scale", Host: fmt.Sprint("line-", l.number), Instance: l.instance[:],
		}}}
	}, func(i int, f *holdfastv1.ServerFrame) error {
		l.sessions[i].id = f.GetOpen().GetSessionId()
		return answerError(f)
	})
}

// acquire takes the given lock of each session, the n-th on its only lane.
func (l *line) acquire(ctx context.Context, n int, sessions int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batch(ctx, sessions, func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Acquire{Acquire: &holdfastv1.AcquireRequest{
			Session: &holdfastv1.SessionRef{Id: l.sessions[i].id}, Request: &holdfastv1.RequestID{N: uint64(n)},
			Lock: fmt.Sprintf("scale/%02d/%06d/%02d", l.number, i, n),
		}}}
	}, func(i int, f *holdfastv1.ServerFrame) error {
		if err := answerError(f); err != nil {
			return err
		}
		if f.GetAcquire().GetGrant().GetNumber() == 0 || f.GetAcquire().GetEnded() {
			return fmt.Errorf("a lock of its own was not granted: %v", f)
		}
		return nil
	})
}

// errLost counts sessions that the service has ended.
type errLost struct{ sessions int }

// Error implements error.
func (e *errLost) Error() string { return fmt.Sprintf("%d sessions are lost", e.sessions) }

// attach speaks for all sessions on a new stream. mu is held.
func (l *line) attach(ctx context.Context) error {
	l.attaches++
	lost, open := 0, len(l.sessions)
	for open > 0 && l.sessions[open-1].id == 0 {
		open-- // its open is repeated, and attaches
	}
	err := l.batch(ctx, open, func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Attach{Attach: &holdfastv1.AttachRequest{
			Session: &holdfastv1.SessionRef{Id: l.sessions[i].id, Secret: l.sessions[i].secret.String()}, Instance: l.instance[:], Number: l.attaches,
		}}}
	}, func(_ int, f *holdfastv1.ServerFrame) error {
		var e *driver.Error
		if err := answerError(f); errors.As(err, &e) && e.Kind == driver.SessionLost {
			lost++
			return nil
		} else {
			return err
		}
	})
	if err == nil && lost > 0 {
		return &errLost{lost}
	}
	return err
}

// keepAlive keeps all sessions alive, and returns when each has its answer.
func (l *line) keepAlive(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream == nil {
		return errors.New("no stream")
	}
	req := &holdfastv1.SessionRequest{}
	for chunk := range slices.Chunk(l.sessions, idsPerFrame) {
		ids := make([]uint64, len(chunk))
		for i, s := range chunk {
			ids[i] = s.id
		}
		l.lastID++
		req.Frames = append(req.Frames, &holdfastv1.ClientFrame{Id: l.lastID, Body: &holdfastv1.ClientFrame_KeepAlives{KeepAlives: &holdfastv1.KeepAlivesRequest{SessionIds: ids}}})
	}
	if err := l.stream.Send(req); err != nil {
		return err
	}
	lost := 0
	for answered := 0; answered < len(l.sessions); {
		res, err := l.stream.Receive()
		if err != nil {
			return err
		}
		for _, f := range res.GetFrames() {
			if err := answerError(f); err != nil {
				return err
			}
			for _, p := range f.GetKeepAlives().GetPulses() {
				answered++
				switch e := wire.FromErrorInfo(p.GetError()); {
				case e == nil:
				case e.Kind == driver.SessionLost:
					lost++
				default:
					return e
				}
			}
		}
	}
	if lost > 0 {
		return &errLost{lost}
	}
	return nil
}
