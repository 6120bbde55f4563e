package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Config says how a [Port] is to run. Only Listener has no default.
type Config struct {
	// Listener is the member's port. The Port closes it.
	Listener net.Listener
	// Dir is where snapshots are put while they are received. It is created
	// when it is needed, and belongs to the Port alone.
	Dir string
	// Election is the election timeout of the members; default 1 s. The
	// Port's time limits follow from it.
	Election time.Duration
	// Logger gets what an operator should know; default slog.Default().
	Logger *slog.Logger
	// Answer answers whoever asks who listens here; nil refuses. It may be
	// called by many goroutines.
	Answer func(Question) Answer
	// Dial opens a connection to another member; default TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// ListenTLS and DialTLS give the configuration for the next connection;
	// nil means that it is plain.
	ListenTLS, DialTLS func() *tls.Config
	// Verify compares the certificate at the other end of a connection with
	// the name of the member that should be there ("" if that is not known);
	// nil accepts what TLS accepted. Plain connections are not verified.
	Verify func(state tls.ConnectionState, name string) error
}

// Events is what a [Port] tells. The functions are called by many goroutines
// and must not block; none may be nil.
type Events struct {
	// Receive hands over a message of the member that it says it is from.
	Receive func(Message)
	// Unreachable tells that messages to a member were dropped.
	Unreachable func(id uint64)
	// SnapshotSent ends the transfer of a snapshot that was given to Send.
	SnapshotSent func(id uint64, ok bool)
	// Refused tells that a member refuses this one, and why.
	Refused func(id uint64, why *Refusal)
	// Told tells what a member says of itself.
	Told func(Facts)
}

// A Member is another member of the cluster.
type Member struct {
	ID   uint64
	Name string // may be empty
	Addr string // of its port, host:port
}

// Port is a member's own port and its lines to the others. Its methods may be
// called from any goroutine, and do not block.
type Port struct {
	cfg     Config
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	unfit   atomic.Bool
	noRoom  atomic.Bool
	relay   atomic.Pointer[func(net.Conn)]
	notes   notes
	taking  sync.Mutex // a snapshot is being received

	dropped, snapshotsSent, snapshotsFailed, snapshotsTaken atomic.Uint64

	mu struct {
		sync.Mutex
		joined  bool
		closed  bool
		self    Self
		events  Events
		removed []uint64
		links   map[uint64]*link
		conns   map[net.Conn]struct{}
		taken   map[lineKey]net.Conn // lines that others dialled
		relays  map[net.Conn]uint64  // likewise, for calls: who did
		names   map[uint64]string    // of the other members, as far as they have one
		away    map[uint64]bool      // members that say that they should not lead
		knows   map[uint64]uint32    // the newest cluster version that a member can apply
	}
}

// lineKey names a line that another member dialled.
type lineKey struct {
	from    uint64
	purpose purpose
}

// maxConns bounds the connections that are accepted at a time.
const maxConns = 512

// New starts to listen. Until [Port.Join] only questions are answered.
func New(cfg Config) *Port {
	if cfg.Election == 0 {
		cfg.Election = time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	p := &Port{cfg: cfg, log: cfg.Logger}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.mu.links = map[uint64]*link{}
	p.mu.conns = map[net.Conn]struct{}{}
	p.mu.taken = map[lineKey]net.Conn{}
	p.mu.away = map[uint64]bool{}
	p.mu.knows = map[uint64]uint32{}
	p.running.Go(p.accept)
	return p
}

// Addr is the address that the port listens on.
func (p *Port) Addr() net.Addr { return p.cfg.Listener.Addr() }

// Join says who this member is; from now on lines are accepted and dialled.
func (p *Port) Join(self Self, events Events) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.self, p.mu.events, p.mu.joined = self, events, true
}

// SetMembers says who the other members are (the own ID may be among them),
// and which IDs were removed. Lines follow.
func (p *Port) SetMembers(members []Member, removed []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || !p.mu.joined {
		return
	}
	p.mu.removed = slices.Clone(removed)
	p.mu.names = map[uint64]string{}
	for _, m := range members {
		if m.ID != p.mu.self.ID {
			p.mu.names[m.ID] = m.Name
		}
	}
	wanted := map[uint64]Member{}
	for _, m := range members {
		if m.ID != p.mu.self.ID && m.Addr != "" {
			wanted[m.ID] = m
		}
	}
	for id, l := range p.mu.links {
		if m, ok := wanted[id]; !ok || m != l.member {
			l.cancel()
			delete(p.mu.links, id)
		}
	}
	for id, m := range wanted {
		if p.mu.links[id] == nil {
			p.mu.links[id] = p.startLink(m)
		}
	}
	for key, c := range p.mu.taken {
		if slices.Contains(removed, key.from) {
			_ = c.Close()
		}
	}
	for c, from := range p.mu.relays {
		if slices.Contains(removed, from) {
			_ = c.Close()
		}
	}
}

// Send sends a message to the member that it is for, or drops it. A snapshot's
// transfer ends in Events.SnapshotSent.
func (p *Port) Send(m Message) {
	p.mu.Lock()
	l, events := p.mu.links[m.Raft.GetTo()], p.mu.events
	p.mu.Unlock()
	switch {
	case m.Raft.GetSnapshot() != nil && m.Raft.GetSnapshot().GetMetadata().GetIndex() > 0:
		if l == nil || !l.sendSnapshot(m) {
			p.snapshotsFailed.Add(1)
			events.SnapshotSent(m.Raft.GetTo(), false)
		}
	case l == nil || !l.send(m):
		p.dropped.Add(1)
		events.Unreachable(m.Raft.GetTo())
	}
}

// Tell tells all members to which a line stands who this one says it is. Older
// releases do not listen to it.
func (p *Port) Tell(f Facts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.mu.links {
		l.prompt.tell(f)
	}
}

// SetUnfit says whether this member should not lead now; the others learn it.
func (p *Port) SetUnfit(unfit bool) { p.unfit.Store(unfit) }

// SetNoRoom says whether there is no room here for a snapshot: none is taken.
func (p *Port) SetNoRoom(noRoom bool) { p.noRoom.Store(noRoom) }

// Fit reports whether a member is reached, and does not say that it should
// not lead.
func (p *Port) Fit(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.links[id]
	return l != nil && l.prompt.isUp() && !p.mu.away[id]
}

// Reached reports whether the prompt line to a member stands.
func (p *Port) Reached(id uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.mu.links[id]
	return l != nil && l.prompt.isUp()
}

// Supports is the newest cluster version that a member said it can apply, on
// its latest line to or from here; false if there was none.
func (p *Port) Supports(id uint64) (uint32, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v, ok := p.mu.knows[id]
	return v, ok
}

// Stats counts what a port did.
type Stats struct {
	Reached         int    // members to which a line stands
	Dropped         uint64 // messages
	SnapshotsSent   uint64
	SnapshotsFailed uint64 // to be sent
	SnapshotsTaken  uint64
}

// Stats returns what the port did so far.
func (p *Port) Stats() Stats {
	s := Stats{Dropped: p.dropped.Load(), SnapshotsSent: p.snapshotsSent.Load(), SnapshotsFailed: p.snapshotsFailed.Load(), SnapshotsTaken: p.snapshotsTaken.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.mu.links {
		if l.prompt.isUp() {
			s.Reached++
		}
	}
	return s
}

// Close ends all lines and the listening, and waits for what uses them.
func (p *Port) Close() {
	p.mu.Lock()
	p.mu.closed = true
	for c := range p.mu.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.cancel()
	_ = p.cfg.Listener.Close()
	p.running.Wait()
}

// accept takes connections until the port is closed.
func (p *Port) accept() {
	pause := time.NewTimer(time.Hour)
	defer pause.Stop()
	for {
		c, err := p.cfg.Listener.Accept()
		if p.ctx.Err() != nil {
			if err == nil {
				_ = c.Close()
			}
			return
		}
		if err != nil {
			// Too many open files, for example: others may come again.
			p.notes.warn(p.log, "accept", "no connection of a peer can be accepted", "error", err)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			pause.Reset(50 * time.Millisecond)
			select {
			case <-pause.C:
			case <-p.ctx.Done():
			}
			continue
		}
		if !p.keep(c) {
			_ = c.Close()
			continue
		}
		p.running.Go(func() {
			defer p.let(c)
			p.serve(c)
		})
	}
}

// keep notes an open connection, so that Close ends it; false if there are
// enough or the port is closed.
func (p *Port) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.conns) >= maxConns {
		return false
	}
	p.mu.conns[c] = struct{}{}
	return true
}

func (p *Port) let(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.conns, c)
	delete(p.mu.relays, c)
	for key, t := range p.mu.taken {
		if t == c {
			delete(p.mu.taken, key)
		}
	}
}

// The time limits.
func (p *Port) greeting() time.Duration { return max(5*p.cfg.Election, 5*time.Second) }
func (p *Port) silence() time.Duration  { return max(2*p.cfg.Election, time.Second) }
func (p *Port) idle() time.Duration     { return max(20*p.cfg.Election, 20*time.Second) }
