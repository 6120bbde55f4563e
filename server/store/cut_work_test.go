package store

import (
	"fmt"
	"strings"

	"go.etcd.io/raft/v3/raftpb"
)

// work makes one call of the store, as a replica might.
func (c *cutter) work() {
	b := &c.book
	switch n := c.rng.IntN(100); {
	case n < 12:
		c.votes()
	case n < 17:
		c.call("probe", c.s.Probe)
		c.disk.keepMark(readImage(c.t, c.dir))
	case b.snap == 0 || n < 24 || (b.ghost > 0 && n < 50):
		c.receives()
	case n < 40 && b.commit > b.snap:
		c.saves()
	case n < 46 && b.last > b.commit && b.ghost == 0:
		c.overwrites()
	case n < 60 && b.last > b.commit:
		b.flying.hs = hardState(max(b.term, b.lastTerm), b.vote, b.commit+1+uint64(c.rng.Int64N(int64(b.last-b.commit))))
		if b.flying.hs.GetTerm() > b.term {
			b.flying.hs.Vote = new(uint64(0))
		}
		c.append("commit")
	default:
		c.appends()
	}
}

// call makes a call, with what it may leave in flight, and takes it for done
// when it returns.
func (c *cutter) call(op string, call func() error) {
	c.t.Helper()
	c.op = op
	err := call()
	c.must(err)
	now := readImage(c.t, c.dir)
	if op == "snapshot" {
		c.disk.keepLog(now)
	}
	c.book.landed()
	c.disk.saw(now)
	c.cut(op+", after it", now)
}

func (c *cutter) append(op string) {
	f := c.book.flying
	c.call(op, func() error { return c.s.Append(f.hs, f.entries, f.received) })
}

// votes: a new term, and in most a vote.
func (c *cutter) votes() {
	c.book.flying.hs = hardState(c.book.term+1, uint64(c.rng.IntN(4)), c.book.commit)
	c.append("vote")
}

func (c *cutter) entries(from uint64, n int, term uint64) (out []*raftpb.Entry) {
	for i := range uint64(n) {
		c.count++
		t := term
		if from+i <= c.book.ghost {
			t = c.book.ghostTerm // the entries that its snapshot is of
		}
		size := c.rng.IntN(600)
		if c.rng.IntN(10) == 0 {
			size = c.rng.IntN(5000)
		}
		out = append(out, entry(from+i, t, fmt.Sprint(c.count, strings.Repeat("x", size))))
	}
	return out
}

// appends: entries, with a new commit index, a new term, or nothing.
func (c *cutter) appends() {
	b := &c.book
	term := b.term
	switch c.rng.IntN(4) {
	case 0:
		b.flying.hs = hardState(term, b.vote, b.commit+uint64(c.rng.Int64N(int64(b.last-b.commit)+1)))
	case 1: // from a new leader
		term++
		b.flying.hs = hardState(term, 0, b.commit)
	}
	b.flying.entries = c.entries(b.last+1, 1+c.rng.IntN(4), term)
	c.append("append")
}

// overwrites: a new leader replaces entries that were not committed.
func (c *cutter) overwrites() {
	b := &c.book
	from := b.commit + 1 + uint64(c.rng.Int64N(int64(b.last-b.commit)))
	b.flying.hs = hardState(b.term+1, 0, b.commit)
	b.flying.entries = c.entries(from, 1+c.rng.IntN(3), b.term+1)
	c.append("append")
}

// saves: a snapshot of its own, in most cases staged; once in a while a large
// one.
func (c *cutter) saves() {
	b := &c.book
	size := c.rng.IntN(3000)
	if c.rng.IntN(40) == 0 {
		size = pieceBytes + c.rng.IntN(pieceBytes/2)
	}
	sn := snapshotAt(b.commit, b.termOf(b.commit), stateOf(b.commit, size))
	if c.rng.IntN(3) > 0 {
		c.call("stage", func() error { return c.s.StageSnapshot(sn) })
		if c.rng.IntN(2) == 0 {
			c.appends()
		}
	}
	if c.rng.IntN(8) == 0 {
		return // it is overtaken
	}
	b.flying.own = sn
	c.call("snapshot", func() error { return c.s.SaveSnapshot(sn) })
}

// receives: a snapshot from the leader jumps over entries.
func (c *cutter) receives() {
	b := &c.book
	index, term := b.last+1+uint64(c.rng.IntN(20)), max(1, b.term)
	if b.ghost > 0 {
		index, term = b.ghost, b.ghostTerm // it is sent again
	}
	if index <= b.last {
		return
	}
	b.flying.received = snapshotAt(index, term, stateOf(index, 5+int(index%2000)))
	vote := b.vote
	if term > b.term {
		vote = 0
	}
	b.flying.hs = hardState(max(term, b.term), vote, index)
	if n := c.rng.IntN(3); n > 0 {
		b.flying.entries = c.entries(index+1, n, max(term, b.term))
	}
	c.append("received")
}
