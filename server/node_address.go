package server

import (
	"cmp"
	"maps"
	"slices"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/replica"
)

// tellEvery is how many ticks pass between two tries of a member to have its
// addresses put right.
const tellEvery = 5

// addressing is what a node does so that the list of members has the addresses
// with which each was started.
type addressing struct {
	ticks int
	// declined says why what a member told was not put into the list.
	declined map[uint64]string
}

// startedAs is the entry of this node as it was started, from the one in the
// list of members; false if the start said nothing that could differ.
func (l *loop) startedAs(m core.Member) (core.Member, bool) {
	p := l.n.cfg.Peers
	if p.Listener == nil || p.Name == "" {
		return m, false
	}
	return core.Member{ID: l.id, Name: cmp.Or(m.Name, p.Name), ClientAddr: p.ClientAddr, PeerAddr: p.PeerAddr, Learner: m.Learner}, true
}

// readdress puts right what the list of members says of this node, if it was
// started with another address, or had no name yet: it changes the list if it
// leads, and else tells the others, of whom one does. It cannot know which: if
// its address for members is another one, nobody's words reach it until then.
func (l *loop) readdress() {
	m, ok := l.net.members[l.id]
	if !ok {
		return
	}
	want, ok := l.startedAs(m)
	if !ok || m == want {
		return
	}
	if l.leading {
		l.correct(want)
		return
	}
	if l.members.addresses.ticks++; l.members.addresses.ticks%tellEvery == 1 && l.net.port != nil {
		l.net.port.Tell(factsOf(want))
	}
}

// toldAddress looks at what a member says of itself. One that does not lead
// leaves it at that: the member says so until the list has it.
func (l *loop) toldAddress(f peer.Facts) {
	m, ok := l.net.members[f.ID]
	if !ok || !l.leading || l.health.stopping || f.ID == l.id {
		return
	}
	want := core.Member{ID: f.ID, Name: cmp.Or(m.Name, f.Name), ClientAddr: f.ClientAddr, PeerAddr: f.PeerAddr, Learner: m.Learner}
	if m != want {
		l.correct(want)
	}
}

// correct changes the addresses of a member in the list, unless another change
// is under way: then it is asked for again.
func (l *loop) correct(want core.Member) {
	if len(l.members.changes) > 0 {
		return
	}
	l.change(replica.Change{Kind: replica.Readdress, Member: want}, func(err error) {
		if err == nil {
			delete(l.members.addresses.declined, want.ID)
			l.log.Info("the addresses of a member are put right", "member", replica.Called(want), "clients", want.ClientAddr, "members", want.PeerAddr)
			return
		}
		if l.members.addresses.declined[want.ID] != err.Error() { // else it was said before
			if l.members.addresses.declined == nil {
				l.members.addresses.declined = map[uint64]string{}
			}
			l.members.addresses.declined[want.ID] = err.Error()
			l.log.Warn("the addresses of a member are not put right yet", "member", replica.Called(want), "clients", want.ClientAddr, "members", want.PeerAddr, "reason", err)
		}
	})
}

// takeAddresses looks at what members said of themselves.
func (l *loop) takeAddresses(told map[uint64]peer.Facts) {
	for _, id := range slices.Sorted(maps.Keys(told)) {
		l.toldAddress(told[id])
	}
}

// maxTold is of how many nodes the loop is told at a time. There are not that
// many members; whoever has no entry in the list may say so, too.
const maxTold = 64

func (b *peerBox) told(f peer.Facts) {
	b.mu.Lock()
	if b.mu.told == nil {
		b.mu.told = map[uint64]peer.Facts{}
	}
	if _, ok := b.mu.told[f.ID]; ok || len(b.mu.told) < maxTold {
		b.mu.told[f.ID] = f
	}
	b.mu.Unlock()
	b.wake()
}
