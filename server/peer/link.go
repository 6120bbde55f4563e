package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// The bounds of the outboxes. What exceeds them is dropped: raft sends what
// matters again.
const (
	maxPrompt      = 4096
	maxPromptBytes = 16 << 20
	maxBulk        = 256
	maxBulkBytes   = 32 << 20
	writeChunk     = 256 << 10
)

// errSilent ends a line whose other end does not answer.
var errSilent = errors.New("the other end does not answer")

// link is what goes to one other member.
type link struct {
	p       *Port
	member  Member
	ctx     context.Context
	cancel  context.CancelFunc
	prompt  *lane
	bulk    *lane
	sending sync.Mutex // a snapshot is being sent
}

// startLink starts the lines to a member. Port.mu is held.
func (p *Port) startLink(m Member) *link {
	l := &link{p: p, member: m}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	l.prompt = newLane(l, prompt, maxPrompt, maxPromptBytes)
	l.bulk = newLane(l, bulk, maxBulk, maxBulkBytes)
	events, self := p.mu.events, p.mu.self
	p.running.Go(func() { l.prompt.run(self, events) })
	p.running.Go(func() { l.bulk.run(self, events) })
	return l
}

func (l *link) send(m Message) bool {
	if large(m.Raft) {
		return l.bulk.put(m)
	}
	return l.prompt.put(m)
}

// lane is one line to a member, and what waits for it.
type lane struct {
	l              *link
	purpose        purpose
	most, mostSize int
	wake           chan struct{} // there is something to send
	nudged         chan struct{} // dial now

	mu struct {
		sync.Mutex
		up    bool
		queue []Message
		size  int
		facts *Facts // to be told
	}
}

func newLane(l *link, p purpose, most, mostSize int) *lane {
	return &lane{l: l, purpose: p, most: most, mostSize: mostSize, wake: make(chan struct{}, 1), nudged: make(chan struct{}, 1)}
}

// put queues a message; false if the line is down or too much waits.
func (n *lane) put(m Message) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := weight(m.Raft)
	if !n.mu.up || len(n.mu.queue) >= n.most || n.mu.size+size > n.mostSize {
		return false
	}
	n.mu.queue = append(n.mu.queue, m)
	n.mu.size += size
	signal(n.wake)
	return true
}

// tell lets the other end know who this one is; nothing if the line is down.
func (n *lane) tell(f Facts) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.up {
		n.mu.facts = &f
		signal(n.wake)
	}
}

// take empties the queue.
func (n *lane) take() ([]Message, *Facts) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q, f := n.mu.queue, n.mu.facts
	n.mu.queue, n.mu.size, n.mu.facts = nil, 0, nil
	return q, f
}

func (n *lane) isUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.up
}

// setUp says whether messages are taken, and returns how many were dropped.
func (n *lane) setUp(up bool) (dropped int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	dropped = len(n.mu.queue)
	n.mu.up, n.mu.queue, n.mu.size, n.mu.facts = up, nil, 0, nil
	return dropped
}

func (n *lane) nudge() { signal(n.nudged) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run keeps the line until the link ends.
func (n *lane) run(self Self, events Events) {
	key := fmt.Sprintf("%s to %016x", n.purpose, n.l.member.ID)
	tries := 0
	for n.l.ctx.Err() == nil {
		began := time.Now()
		stood, err := n.session(self, events)
		dropped := n.setUp(false)
		n.l.p.dropped.Add(uint64(dropped))
		if n.l.ctx.Err() != nil {
			return
		}
		events.Unreachable(n.l.member.ID)
		var why *Refusal
		if errors.As(err, &why) {
			events.Refused(n.l.member.ID, why)
		}
		if n.purpose == prompt {
			n.l.p.notes.say(n.l.p.log, levelOf(err), key, "no line to a member", "member", fmt.Sprintf("%016x", n.l.member.ID), "name", n.l.member.Name, "address", n.l.member.Addr, "reason", bare(err))
		}
		if stood && time.Since(began) > n.l.p.cfg.Election {
			tries = 0
		}
		n.pause(tries)
		tries++
	}
}

// pause waits before the next try: a twentieth of an election timeout, then
// longer, at most a whole one, and at most a second.
func (n *lane) pause(tries int) {
	most := min(n.l.p.cfg.Election, time.Second)
	d := min(max(n.l.p.cfg.Election/20, 5*time.Millisecond)<<min(tries, 10), most)
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.nudged:
	case <-n.l.ctx.Done():
	}
}

// session dials, shakes hands and writes until something fails; stood reports
// whether the line was used.
func (n *lane) session(self Self, events Events) (stood bool, err error) {
	c, r, err := n.l.dial(self, n.purpose)
	if err != nil {
		return false, err
	}
	defer n.l.p.let(raw(c))
	ctx, cancel := context.WithCancelCause(n.l.ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	n.setUp(true)
	key := fmt.Sprintf("%s to %016x", n.purpose, n.l.member.ID)
	n.l.p.notes.forget(key)
	if n.purpose == prompt {
		n.l.p.log.Info("line to a member", "member", fmt.Sprintf("%016x", n.l.member.ID), "name", n.l.member.Name, "address", n.l.member.Addr)
	}
	w := &writer{n: n, c: c}
	n.l.p.running.Go(func() { cancel(w.pongs(r)) })
	err = w.run(ctx, events)
	if cause := context.Cause(ctx); cause != nil && n.l.ctx.Err() == nil && !errors.Is(err, errSilent) {
		err = cause
	}
	if n.purpose == prompt {
		n.l.bulk.reset()
	}
	return true, err
}

// reset makes the line be dialled anew: the prompt one found that nothing
// comes through. A bulk line alone would notice late.
func (n *lane) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.up {
		n.mu.up = false
		signal(n.wake)
	}
}

// dial opens a line to the member.
func (l *link) dial(self Self, why purpose) (net.Conn, *bufio.Reader, error) {
	return l.dialWithin(l.ctx, self, why)
}

func (l *link) dialWithin(ctx context.Context, self Self, why purpose) (net.Conn, *bufio.Reader, error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.greeting())
	defer cancel()
	c, err := l.p.connect(ctx, l.member.Addr, l.member.Name)
	if err != nil {
		return nil, nil, err
	}
	r := bufio.NewReaderSize(c, 4<<10)
	if err := l.hello(ctx, c, r, self.hello(why, l.member.ID)); err != nil {
		l.p.let(raw(c))
		return nil, nil, err
	}
	return c, r, nil
}

func (l *link) hello(ctx context.Context, c net.Conn, r *bufio.Reader, h Hello) error {
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	if _, err := c.Write(appendFrame(nil, kindHello, encode(h))); err != nil {
		return err
	}
	k, body, err := readFrame(r, maxControl)
	if err != nil {
		return fmt.Errorf("no answer to the handshake: %w", err)
	}
	switch k {
	case kindWelcome:
		var w Welcome
		if err := decode(body, &w); err != nil {
			return err
		}
		l.p.learn(l.member.ID, w.Supports)
		return nil
	case kindRefusal:
		why := &Refusal{}
		if err := decode(body, why); err != nil {
			return err
		}
		return fmt.Errorf("refused by %s: %w", l.member.Addr, why)
	}
	return fmt.Errorf("%w: the handshake is answered with kind %d", ErrFrame, k)
}

// connect opens a connection, with TLS if it is configured.
func (p *Port) connect(ctx context.Context, addr, name string) (net.Conn, error) {
	c, err := p.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	if !p.keep(c) {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	secured, err := secure(ctx, c, p.cfg, addr, name)
	if err != nil {
		p.let(c)
		return nil, err
	}
	return secured, nil
}

// secure puts TLS on a connection that was dialled, if it is configured.
func secure(ctx context.Context, c net.Conn, cfg Config, addr, name string) (net.Conn, error) {
	if cfg.DialTLS == nil {
		return c, nil
	}
	conf := cfg.DialTLS().Clone()
	if conf.ServerName == "" {
		conf.ServerName, _, _ = net.SplitHostPort(addr)
	}
	t := tls.Client(c, conf)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	if cfg.Verify != nil {
		if err := cfg.Verify(t.ConnectionState(), name); err != nil {
			return nil, refuse(ErrCertificate, "at %s: %v", addr, err)
		}
	}
	return t, nil
}

// writer writes one line while it stands.
type writer struct {
	n *lane
	c net.Conn

	mu struct {
		sync.Mutex
		number uint64
		asked  time.Time // when the ping without an answer left; zero: none
	}
}

// run writes what is queued, and pings.
func (w *writer) run(ctx context.Context, events Events) error {
	n := w.n
	beat := time.NewTicker(max(n.l.p.cfg.Election/4, 5*time.Millisecond))
	defer beat.Stop()
	var buf []byte
	for {
		select {
		case <-n.wake:
		case <-beat.C:
			ping, err := w.ping()
			if err != nil {
				return err
			}
			buf = append(buf, ping...)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !n.isUp() {
			return errSilent
		}
		messages, facts := n.take()
		if facts != nil {
			buf = appendFrame(buf, kindFacts, encode(*facts))
		}
		for _, m := range messages {
			var err error
			if buf, err = appendMessage(buf, m); err != nil {
				n.l.p.dropped.Add(1)
				n.l.p.log.Error("a message cannot be sent", "member", fmt.Sprintf("%016x", n.l.member.ID), "error", err)
				events.Unreachable(n.l.member.ID)
				continue
			}
			if len(buf) >= writeChunk {
				if err := w.write(buf); err != nil {
					return err
				}
				buf = buf[:0]
			}
		}
		if len(buf) > 0 {
			if err := w.write(buf); err != nil {
				return err
			}
			if buf = buf[:0]; cap(buf) > 4*writeChunk {
				buf = nil
			}
		}
	}
}

func (w *writer) write(b []byte) error {
	_ = w.c.SetWriteDeadline(time.Now().Add(w.patience()))
	_, err := w.c.Write(b)
	return err
}

// patience is how long the other end may take to answer. On the bulk line a
// ping may stand behind megabytes.
func (w *writer) patience() time.Duration {
	if w.n.purpose == bulk {
		return w.n.l.p.idle()
	}
	return w.n.l.p.silence()
}

// ping is the next ping's frame, none while one waits for its answer, and an
// error if that waits too long.
func (w *writer) ping() ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.mu.asked.IsZero() {
		if time.Since(w.mu.asked) > w.patience() {
			return nil, errSilent
		}
		return nil, nil
	}
	w.mu.number++
	w.mu.asked = time.Now()
	return appendFrame(nil, kindPing, binary.BigEndian.AppendUint64([]byte{w.n.l.p.flags()}, w.mu.number)), nil
}

// pongs reads the answers to pings until the line ends.
func (w *writer) pongs(r *bufio.Reader) error {
	for {
		k, body, err := readFrame(r, maxControl)
		if err != nil {
			return err
		}
		if k != kindPong || len(body) != pingLen {
			continue
		}
		w.n.l.p.setAway(w.n.l.member.ID, body[0])
		w.mu.Lock()
		if binary.BigEndian.Uint64(body[1:]) == w.mu.number {
			w.mu.asked = time.Time{}
		}
		w.mu.Unlock()
	}
}
