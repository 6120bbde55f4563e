package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// build sets the world up: servers that were founded together, clients without
// a session, resources that nobody wrote to.
func (w *world) build() {
	w.net = network{w: w, rng: stream(w.Seed, "network"), links: map[link]*line{}}
	plan := stream(w.Seed, "locks")
	for i := range w.Locks {
		w.locks = append(w.locks, w.drawLock(i, plan))
	}
	var voters []uint64
	w.incarnation = 1
	c := core.Config{Domain: domain, Incarnation: w.incarnation, Version: w.Release}
	for i := range w.Servers {
		id := uint64(i + 1)
		voters = append(voters, id)
		c.Members = append(c.Members, w.member(i, id))
	}
	first, err := replica.Bootstrap(core.New(c), voters)
	if err != nil {
		panic(fmt.Sprintf("sim: bootstrap: %v", err)) // a mistake of this package
	}
	clocks := stream(w.Seed, "clocks")
	for range w.Servers {
		s := w.makeServer(clocks)
		s.disk.snap, s.disk.hard, s.disk.soft = first, firstState(), firstState()
		w.servers = append(w.servers, s)
	}
	w.founded = w.servers
	for i := range w.Clients {
		c := &client{id: i, rng: stream(w.Seed, fmt.Sprint("client", i)), looks: stream(w.Seed, fmt.Sprint("looks", i))}
		c.process = process{w: w, name: fmt.Sprint("client ", i+1), counts: true}
		c.clock = clock{read: between(clocks, time.Second, time.Hour), skew: w.drawSkew(clocks.IntN)}
		w.clients = append(w.clients, c)
	}
	w.op = &operator{process: process{w: w, name: "operator", up: true}}
	for _, s := range w.servers {
		w.after(between(clocks, 0, 20*time.Millisecond), s.boot)
	}
	for _, c := range w.clients {
		w.after(between(clocks, 0, time.Second), c.boot)
	}
}

// makeServer makes a machine for a server, whose ID was never used before.
func (w *world) makeServer(r *rand.Rand) *server {
	w.lastID++
	s := &server{id: w.lastID, inc: w.incarnation, installed: w.Release, rng: stream(w.Seed, fmt.Sprint("server", w.lastID)), ids: stream(w.Seed, fmt.Sprint("sessions of server", w.lastID))}
	s.process = process{w: w, name: fmt.Sprint("server ", s.id)}
	s.clock = clock{read: between(r, time.Second, time.Hour), skew: w.drawSkew(r.IntN)}
	s.disk = &disk{s: s, rng: stream(w.Seed, fmt.Sprint("disk", s.id))}
	return s
}

// newServer makes a machine without data, which waits to be made a member. A
// new one has the release that the cluster needs.
func (w *world) newServer(r *rand.Rand) *server {
	s := w.makeServer(r)
	for _, o := range w.servers {
		s.installed = max(s.installed, o.installed)
	}
	s.joining = true
	w.servers = append(w.servers[:len(w.servers):len(w.servers)], s)
	s.say("waits to be made a member")
	w.after(0, s.askToJoin)
	return s
}

// joins makes a machine the member that the cluster says it is.
func (s *server) joins(inc uint64, members []core.Member) {
	if !s.joining || s.gone {
		return
	}
	s.joining, s.inc = false, inc
	s.disk = s.w.blank(s, inc, members)
	s.say("joins")
	s.w.judge.meet(MemberJoined)
	s.boot()
}

// blank is the disk of a member that has not received the state yet.
func (w *world) blank(s *server, inc uint64, members []core.Member) *disk {
	first, err := replica.Blank(core.Config{Incarnation: inc, Members: members})
	if err != nil {
		panic(fmt.Sprintf("sim: a new member: %v", err)) // a mistake of this package
	}
	none := &raftpb.HardState{Term: new(uint64(0)), Vote: new(uint64(0)), Commit: new(uint64(0))}
	return &disk{s: s, rng: s.disk.rng, snap: first, hard: none, soft: none}
}

// anyServer draws one of the machines; nil if there is none.
func (w *world) anyServer(r *rand.Rand) *server {
	if len(w.servers) == 0 {
		return nil
	}
	return w.servers[r.IntN(len(w.servers))]
}

func firstState() *raftpb.HardState {
	return &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1))}
}

// member is a server in the list of members.
func (w *world) member(i int, id uint64) core.Member {
	return core.Member{ID: id, Name: fmt.Sprint("n", id), ClientAddr: fmt.Sprintf("10.0.0.%d:1", i+1), PeerAddr: fmt.Sprintf("10.0.0.%d:2", i+1)}
}

// drawSkew draws by how much a clock runs fast.
func (w *world) drawSkew(intN func(int) int) int64 {
	if w.Skew == 0 {
		return 0
	}
	return int64(intN(2*w.Skew+1) - w.Skew)
}

// serverOf is the server with an ID; nil if there is none any more.
func (w *world) serverOf(id uint64) *server {
	i := slices.IndexFunc(w.servers, func(s *server) bool { return s.id == id })
	if i < 0 {
		return nil
	}
	return w.servers[i]
}

// restartLater starts a server that died again after a while.
func (w *world) restartLater(s *server) {
	w.after(between(w.rng, 50*time.Millisecond, 3*w.TTL), func() {
		if !s.up && !s.gone && !s.joining {
			s.boot()
		}
	})
}

// heal ends all faults: whoever is down starts, whoever stands still goes on,
// all links carry.
func (w *world) heal() {
	w.calm = true
	w.say("faults are over")
	w.stepStops, w.stepHolds, w.net.hurt = nil, nil, [exchanges]hurt{}
	for _, undo := range w.undo {
		undo()
	}
	w.undo = nil
	for _, s := range w.servers {
		if !s.up && !s.gone && !s.joining && !w.op.restart {
			s.boot()
		}
	}
	for _, c := range w.clients {
		if !c.up {
			c.boot()
		}
	}
}
