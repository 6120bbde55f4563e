package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/goleak"

	"holdfast/driver/drivertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 20 * time.Second

// node is a port with what it was told.
type node struct {
	*Port
	t    *testing.T
	self Self
	log  *safeBuffer
	dir  string

	mu          sync.Mutex
	got         []Message
	unreachable map[uint64]int
	sent        map[uint64][]bool
	refused     []*Refusal
	told        []Facts
}

type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func newNode(t *testing.T, id uint64, change ...func(*Config, *Self)) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, log: &safeBuffer{}, dir: filepath.Join(t.TempDir(), "incoming"), unreachable: map[uint64]int{}, sent: map[uint64][]bool{}}
	n.self = Self{Incarnation: 7, ID: id, Group: 1, Name: fmt.Sprint("n", id), Supports: 1}
	cfg := Config{Listener: l, Dir: n.dir, Election: 100 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	for _, c := range change {
		c(&cfg, &n.self)
	}
	n.Port = New(cfg)
	n.Join(n.self, Events{
		Receive:      func(m Message) { n.note(func() { n.got = append(n.got, m) }) },
		Unreachable:  func(id uint64) { n.note(func() { n.unreachable[id]++ }) },
		SnapshotSent: func(id uint64, ok bool) { n.note(func() { n.sent[id] = append(n.sent[id], ok) }) },
		Refused:      func(_ uint64, why *Refusal) { n.note(func() { n.refused = append(n.refused, why) }) },
		Told:         func(f Facts) { n.note(func() { n.told = append(n.told, f) }) },
	})
	t.Cleanup(n.Close)
	return n
}

func (n *node) note(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

func (n *node) messages() []Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]Message(nil), n.got...)
}

func (n *node) addr() string { return n.Addr().String() }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// knows makes n dial others at given addresses.
func (n *node) knows(others map[uint64]string) {
	var list []Member
	for id, addr := range others {
		list = append(list, Member{ID: id, Name: fmt.Sprint("n", id), Addr: addr})
	}
	n.SetMembers(list, nil)
}

func (n *node) reaches(id uint64) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("lines from %d to %d", n.self.ID, id), func() bool {
		n.Port.mu.Lock()
		defer n.Port.mu.Unlock()
		l := n.links()[id]
		return l != nil && l.prompt.isUp() && l.bulk.isUp()
	})
}

func (n *node) links() map[uint64]*link { return n.Port.mu.links }

func message(from, to uint64, t raftpb.MessageType, index uint64, data ...[]byte) Message {
	m := &raftpb.Message{Type: &t, From: &from, To: &to, Index: &index}
	for _, d := range data {
		m.Entries = append(m.Entries, &raftpb.Entry{Data: d, Index: new(uint64(1)), Term: new(uint64(1))})
	}
	return Message{Group: 1, Raft: m}
}

func TestMessagesArriveInOrder(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	a.knows(map[uint64]string{2: b.addr()})
	a.reaches(2)
	const count = 500
	for i := range uint64(count) {
		a.Send(message(1, 2, raftpb.MsgHeartbeat, i))
		if i%10 == 0 {
			a.Send(message(1, 2, raftpb.MsgApp, i, bytes.Repeat([]byte{byte(i)}, 3000)))
		}
	}
	eventually(t, "all messages", func() bool { return len(b.messages()) == count+count/10 })
	next := map[raftpb.MessageType]uint64{}
	for _, m := range b.messages() {
		kind := m.Raft.GetType()
		if m.Raft.GetIndex() != next[kind] || m.Raft.GetFrom() != 1 || m.Group != 1 {
			t.Fatalf("%v %d in place of %d", kind, m.Raft.GetIndex(), next[kind])
		}
		next[kind]++
		if kind == raftpb.MsgApp {
			next[kind] += 9
			if e := m.Raft.GetEntries()[0].GetData(); len(e) != 3000 || e[0] != byte(m.Raft.GetIndex()) {
				t.Fatalf("entry %d is damaged", m.Raft.GetIndex())
			}
		}
	}
}

// A heartbeat passes while the bulk line is full and stands still.
func TestHeartbeatsDoNotWaitForEntries(t *testing.T) {
	b := newNode(t, 2)
	var dials int
	var mu sync.Mutex
	slow := drivertest.NewProxy(t, b.addr())
	a := newNode(t, 1, func(c *Config, _ *Self) {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			dials++
			if n := dials; n == 1 {
				mu.Unlock()
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, "tcp", slow.Addr())
		}
	})
	// The first dial must be the prompt line's.
	p := a.Port
	p.mu.Lock()
	l := &link{p: p, member: Member{ID: 2, Addr: b.addr()}}
	l.ctx, l.cancel = context.WithCancel(p.ctx)
	l.prompt, l.bulk = newLane(l, prompt, maxPrompt, maxPromptBytes), newLane(l, bulk, maxBulk, maxBulkBytes)
	p.mu.links[2] = l
	self, events := p.mu.self, p.mu.events
	p.mu.Unlock()
	p.running.Go(func() { l.prompt.run(self, events) })
	eventually(t, "the prompt line", l.prompt.isUp)
	p.running.Go(func() { l.bulk.run(self, events) })
	eventually(t, "the bulk line", l.bulk.isUp)
	slow.Cut()
	big := bytes.Repeat([]byte("x"), 1<<20)
	dropped := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return a.unreachable[2]
	}
	for i := uint64(0); dropped() == 0; i++ {
		a.Send(message(1, 2, raftpb.MsgApp, i, big)) // until the outbox is full: that never blocks
	}
	a.Send(message(1, 2, raftpb.MsgHeartbeat, 77))
	eventually(t, "the heartbeat", func() bool {
		for _, m := range b.messages() {
			if m.Raft.GetType() == raftpb.MsgHeartbeat {
				return true
			}
		}
		return false
	})
	if !l.bulk.isUp() {
		t.Error("the bulk line was given up meanwhile: the test shows nothing")
	}
}

// Each mismatch has its name, on both sides.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config, *Self)
		remove []uint64
		want   error
	}{
		{"incarnation", func(_ *Config, s *Self) { s.Incarnation = 8 }, nil, ErrIncarnation},
		{"receiver", func(_ *Config, s *Self) { s.ID = 9 }, nil, ErrReceiver},
		{"group", func(_ *Config, s *Self) { s.Group = 2 }, nil, ErrGroup},
		{"removed", func(*Config, *Self) {}, []uint64{1}, ErrRemoved},
		{"older sender", func(_ *Config, s *Self) { s.Supports, s.Version = 5, func() uint32 { return 5 } }, nil, ErrVersion},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newNode(t, 1), newNode(t, 2, c.change)
			b.SetMembers(nil, c.remove)
			a.knows(map[uint64]string{2: b.addr()})
			eventually(t, "a refusal", func() bool {
				a.mu.Lock()
				defer a.mu.Unlock()
				return len(a.refused) > 0
			})
			a.mu.Lock()
			got := a.refused[0]
			a.mu.Unlock()
			if !errors.Is(got, c.want) {
				t.Errorf("refused with %v, want %v", got, c.want)
			}
			for side, log := range map[string]*safeBuffer{"dialling": a.log, "dialled": b.log} {
				eventually(t, "a line in the log of the "+side+" side", func() bool { return strings.Contains(log.String(), c.want.Error()) })
			}
			if a.Reached(2) {
				t.Error("the line stands")
			}
		})
	}
	t.Run("no member yet", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		p := New(Config{Listener: l, Logger: slog.New(slog.DiscardHandler)})
		defer p.Close()
		a := newNode(t, 1)
		a.knows(map[uint64]string{2: p.Addr().String()})
		eventually(t, "a refusal", func() bool {
			a.mu.Lock()
			defer a.mu.Unlock()
			return len(a.refused) > 0 && errors.Is(a.refused[0], ErrNoMember)
		})
	})
	t.Run("protocol and own ID", func(t *testing.T) {
		s := Self{Incarnation: 7, ID: 1, Group: 1, Supports: 1}
		h := s.hello(prompt, 1)
		if why := s.check(h, nil); !errors.Is(why, ErrReceiver) {
			t.Errorf("its own ID: %v", why)
		}
		h.From, h.Protocol = 2, Protocol+1
		if why := s.check(h, nil); !errors.Is(why, ErrProtocol) {
			t.Errorf("another protocol: %v", why)
		}
	})
}

// A line that swallows everything is noticed, and comes back.
func TestSilentLine(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	line := drivertest.NewProxy(t, b.addr())
	a.knows(map[uint64]string{2: line.Addr()})
	a.reaches(2)
	line.Cut()
	eventually(t, "the silence is noticed", func() bool { return !a.Reached(2) })
	if a.Fit(2) {
		t.Error("a member that is not reached is fit to lead")
	}
	a.Send(message(1, 2, raftpb.MsgHeartbeat, 1))
	a.mu.Lock()
	told := a.unreachable[2]
	a.mu.Unlock()
	if told == 0 {
		t.Error("nobody was told that the member is not reached")
	}
	line.Restore()
	line.Reset()
	a.reaches(2)
	before := len(b.messages())
	a.Send(message(1, 2, raftpb.MsgHeartbeat, 2))
	eventually(t, "a message after the cut", func() bool { return len(b.messages()) > before })
}

// A member that comes back is dialled at once, and members learn who should
// not lead.
func TestMemberComesBackAndIsUnfit(t *testing.T) {
	a := newNode(t, 1)
	b := newNode(t, 2)
	addr := b.addr()
	a.knows(map[uint64]string{2: addr})
	b.knows(map[uint64]string{1: a.addr()})
	a.reaches(2)
	b.reaches(1)
	b.SetUnfit(true)
	eventually(t, "it is known to be unfit", func() bool { return !a.Fit(2) && a.Reached(2) })
	b.SetUnfit(false)
	eventually(t, "it is known to be fit", func() bool { return a.Fit(2) })
	b.Close()
	eventually(t, "it is gone", func() bool { return !a.Reached(2) })
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	again := newNode(t, 2, func(c *Config, _ *Self) {
		c.Listener.Close()
		c.Listener = l
	})
	a.reaches(2)
	if v, ok := again.Supports(1); !ok || v != 1 {
		t.Errorf("a's release applies %d, %v", v, ok)
	}
}

func snap(from, to, index uint64, data []byte) Message {
	m := message(from, to, raftpb.MsgSnap, 0)
	m.Raft.Snapshot = &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{1, 2}}}}
	return m
}

func (n *node) ended(id uint64) []bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]bool(nil), n.sent[id]...)
}

func TestSnapshot(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	a.knows(map[uint64]string{2: b.addr()})
	a.reaches(2)
	for i, size := range []int{0, 1, maxChunk - 1, maxChunk, 3*maxChunk + 17} {
		data := bytes.Repeat([]byte{byte(i), 1, 2, 3, 5}, size/5+1)[:size]
		m := snap(1, 2, uint64(10+i), data)
		a.Send(m)
		eventually(t, "the end of the transfer", func() bool { return len(a.ended(2)) == i+1 })
		got := b.messages()
		if len(got) != i+1 || !a.ended(2)[i] {
			t.Fatalf("%d bytes: %d messages, ended with %v; %s", size, len(got), a.ended(2), b.log)
		}
		s := got[i].Raft.GetSnapshot()
		if !bytes.Equal(s.GetData(), data) || s.GetMetadata().GetIndex() != uint64(10+i) || len(s.GetMetadata().GetConfState().GetVoters()) != 2 {
			t.Errorf("%d bytes came as %d, %v", size, len(s.GetData()), s.GetMetadata())
		}
		if !bytes.Equal(m.Raft.GetSnapshot().GetData(), data) {
			t.Error("the message that was sent has changed")
		}
	}
	left, err := os.ReadDir(b.dir)
	if err != nil || len(left) != 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	if s := b.Stats(); s.SnapshotsTaken != 5 {
		t.Errorf("stats are %+v", s)
	}
}

// A transfer that breaks ends in a report, nothing is handed over, and the
// next one works.
func TestSnapshotBreaks(t *testing.T) {
	a, b := newNode(t, 1), newNode(t, 2)
	line := drivertest.NewProxy(t, b.addr())
	a.knows(map[uint64]string{2: line.Addr()})
	a.reaches(2)
	data := bytes.Repeat([]byte("snapshot"), 4<<20)
	line.Delay(drivertest.ToServer, 10*time.Millisecond) // so that it lasts
	a.Send(snap(1, 2, 10, data))
	eventually(t, "the transfer is under way", func() bool {
		left, _ := os.ReadDir(b.dir)
		return len(left) > 0
	})
	line.Reset()
	line.Restore()
	eventually(t, "the end of the transfer", func() bool { return len(a.ended(2)) == 1 })
	if a.ended(2)[0] {
		t.Error("a broken transfer counts as done")
	}
	eventually(t, "room for the next one", func() bool {
		if b.taking.TryLock() {
			b.taking.Unlock()
			return true
		}
		return false
	})
	whole := len(b.messages())
	a.reaches(2)
	a.Send(snap(1, 2, 11, data))
	eventually(t, "the end of the next transfer", func() bool { return len(a.ended(2)) == 2 })
	got := b.messages()
	if !a.ended(2)[1] || len(got) == whole || !bytes.Equal(got[len(got)-1].Raft.GetSnapshot().GetData(), data) {
		t.Errorf("ended with %v, %d messages", a.ended(2), len(got))
	}
}

// To nobody: what cannot be sent is reported, and nothing blocks.
func TestSendToNobody(t *testing.T) {
	a := newNode(t, 1)
	a.Send(message(1, 2, raftpb.MsgHeartbeat, 1))
	a.Send(snap(1, 2, 5, []byte("x")))
	if a.unreachable[2] != 1 || len(a.sent[2]) != 1 || a.sent[2][0] {
		t.Errorf("unreachable %v, snapshots %v", a.unreachable, a.sent)
	}
}

func TestAsk(t *testing.T) {
	b := newNode(t, 2, func(c *Config, _ *Self) {
		c.Answer = func(q Question) Answer {
			a := Answer{State: IsNew, Facts: Facts{ID: 2, Name: "b"}, List: []Founder{{"a", "x:1"}, {"b", "y:2"}}}
			if q.Plan != nil {
				a.Agreed = q.Plan.Incarnation == 1<<63
			}
			return a
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := Ask(ctx, Config{}, b.addr(), Question{})
	if err != nil || a.State != IsNew || a.ID != 2 || a.Name != "b" || len(a.List) != 2 || a.List[1] != (Founder{"b", "y:2"}) || a.Agreed {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err = Ask(ctx, Config{}, b.addr(), Question{Plan: &Plan{Incarnation: 1 << 63}}); err != nil || !a.Agreed {
		t.Errorf("%+v, %v", a, err)
	}
	if _, err := Ask(ctx, Config{}, newNode(t, 3).addr(), Question{}); err == nil {
		t.Error("a port without answers has one")
	}
}
