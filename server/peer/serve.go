package peer

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"time"
)

// serve answers one connection that somebody opened to this port.
func (p *Port) serve(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(p.greeting()))
	if p.cfg.ListenTLS != nil {
		t := tls.Server(c, p.cfg.ListenTLS())
		if err := t.HandshakeContext(p.ctx); err != nil {
			p.refusedTLS(c, err)
			return
		}
		c = t
	}
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		k, body, err := readFrame(r, maxControl)
		if err == nil {
			switch k {
			case kindAsk:
				err = p.tell(c, body)
			case kindHello:
				p.greet(c, r, body)
				return
			default:
				err = fmt.Errorf("%w: it begins with kind %d", ErrFrame, k)
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
				p.notes.warn(p.log, "frame", "a connection to the peers' port does not speak their language", "from", c.RemoteAddr().String(), "error", err)
			}
			return
		}
	}
}

// tell answers a question.
func (p *Port) tell(c net.Conn, body []byte) error {
	var q Question
	if err := decode(body, &q); err != nil {
		return err
	}
	if p.cfg.Answer == nil {
		return fmt.Errorf("%w: questions are not answered here", ErrFrame)
	}
	a := p.cfg.Answer(q)
	a.Protocol = Protocol
	_ = c.SetDeadline(time.Now().Add(p.greeting()))
	_, err := c.Write(appendFrame(nil, kindTell, encode(a)))
	return err
}

// greet checks who begins a line, and serves it.
func (p *Port) greet(c net.Conn, r *bufio.Reader, body []byte) {
	var h Hello
	err := decode(body, &h)
	p.mu.Lock()
	self, events, joined, removed := p.mu.self, p.mu.events, p.mu.joined, p.mu.removed
	name, known := p.mu.names[h.From]
	p.mu.Unlock()
	var why *Refusal
	switch {
	case err != nil:
		why = refuse(ErrProtocol, "%v", err)
	case !joined:
		why = refuse(ErrNoMember, "it was not set up, or waits for the other founders")
	default:
		why = self.check(h, removed)
		if t, ok := c.(*tls.Conn); ok && why == nil && p.cfg.Verify != nil {
			// Of a member it must be the certificate of that very member, and
			// not of whoever it says it is called.
			if err := p.verify(t, cmp.Or(name, h.Name)); err != nil {
				why = refuse(ErrCertificate, "%v", err)
			}
		}
		if why == nil {
			why = p.refusesNow(h, known)
		}
	}
	if why != nil {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		p.notes.say(p.log, levelOf(why), fmt.Sprintf("refuse %x %s", h.From, why.Code), "a member's line is refused", "member", fmt.Sprintf("%016x", h.From), "name", h.Name, "from", host, "reason", why.Error())
		_, _ = c.Write(appendFrame(nil, kindRefusal, encode(why)))
		return
	}
	if _, err := c.Write(appendFrame(nil, kindWelcome, encode(Welcome{Version: self.version(), Supports: self.Supports}))); err != nil {
		return
	}
	p.learn(h.From, h.Supports)
	_ = c.SetDeadline(time.Time{})
	if h.Purpose == snapshot {
		p.take(c, r, h, self, events)
		return
	}
	if h.Purpose == relay {
		p.relayed(c, r, h.From)
		return
	}
	p.replace(lineKey{h.From, h.Purpose}, c)
	p.nudge(h.From)
	if err := p.receive(c, r, h, self, events); p.ctx.Err() == nil {
		p.log.Debug("a member's line ended", "member", fmt.Sprintf("%016x", h.From), "name", h.Name, "line", string(h.Purpose), "reason", err)
	}
}

// verify compares the certificate at the other end with the name that it must
// have.
func (p *Port) verify(t *tls.Conn, name string) error {
	if name == "" {
		return errors.New("the other side does not say which member it is")
	}
	return p.cfg.Verify(t.ConnectionState(), name)
}

// refusesNow says why a line is refused that would be right at another time, or
// of a member.
func (p *Port) refusesNow(h Hello, known bool) *Refusal {
	switch {
	case h.Purpose == relay && !known:
		return refuse(ErrNoMember, "%016x is no member, and passes nothing on", h.From)
	case h.Purpose == relay && p.relay.Load() == nil:
		return refuse(ErrBusy, "calls are not taken from members")
	case h.Purpose == snapshot && p.noRoom.Load():
		return refuse(ErrBusy, "its disk has no room for a snapshot")
	}
	return nil
}

// levelOf is how loud a refusal is: founders that are quicker than others are
// nothing to worry about.
func levelOf(err error) slog.Level {
	if errors.Is(err, ErrNoMember) {
		return slog.LevelDebug
	}
	return slog.LevelWarn
}

// replace notes the newest line of a member and ends the one before it: its
// other end has given that up, whether or not this end knows.
func (p *Port) replace(key lineKey, c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.mu.taken[key]; old != nil {
		_ = old.Close()
	}
	p.mu.taken[key] = raw(c)
}

// raw is the connection below TLS, by which open ones are known.
func raw(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// learn notes what a member's release can apply.
func (p *Port) learn(id uint64, supports uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.knows[id] = supports
}

// nudge makes the lines to a member try again at once: it is there.
func (p *Port) nudge(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.mu.links[id]; l != nil {
		l.prompt.nudge()
		l.bulk.nudge()
	}
}

// receive reads a line to its end, and says why it ended.
func (p *Port) receive(c net.Conn, r *bufio.Reader, h Hello, self Self, events Events) error {
	for {
		_ = c.SetReadDeadline(time.Now().Add(p.idle()))
		k, body, err := readFrame(r, MaxFrame)
		if err != nil {
			return err
		}
		switch k {
		case kindMessage:
			m, err := decodeMessage(body)
			if err != nil {
				return err
			}
			if m.Raft.GetFrom() != h.From || m.Raft.GetTo() != self.ID || m.Group != h.Group {
				return fmt.Errorf("%w: a message from %016x to %016x of group %d", ErrFrame, m.Raft.GetFrom(), m.Raft.GetTo(), m.Group)
			}
			events.Receive(m)
		case kindPing:
			if len(body) != pingLen {
				return fmt.Errorf("%w: a ping of %d bytes", ErrFrame, len(body))
			}
			p.setAway(h.From, body[0])
			_ = c.SetWriteDeadline(time.Now().Add(p.silence()))
			if _, err := c.Write(appendFrame(nil, kindPong, []byte{p.flags()}, body[1:])); err != nil {
				return err
			}
		case kindFacts:
			var f Facts
			if err := decode(body, &f); err != nil {
				return err
			}
			if f.ID != h.From {
				return fmt.Errorf("%w: %016x says that it is %016x", ErrFrame, h.From, f.ID)
			}
			events.Told(f)
		default: // a newer release may say more
		}
	}
}

// pingLen is the length of a ping's body: flags and a number.
const pingLen = 9

// flagUnfit in a ping or pong says that its sender should not lead.
const flagUnfit = 1

func (p *Port) flags() byte {
	if p.unfit.Load() {
		return flagUnfit
	}
	return 0
}

func (p *Port) setAway(id uint64, flags byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if flags&flagUnfit != 0 {
		p.mu.away[id] = true
	} else {
		delete(p.mu.away, id)
	}
}
