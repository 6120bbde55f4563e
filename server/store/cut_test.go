package store

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// cutsWanted is how many crashes are played.
func cutsWanted() int {
	if os.Getenv("HOLDFAST_SOAK") != "" {
		return 10000
	}
	return 500
}

// TestCutAfterSync plays power failures at every step of the store's work,
// over many lives of it: what was not synced may be missing from any byte on,
// zero by sectors or changed, names may be missing, back or doubled. No entry,
// vote or snapshot that was acknowledged is lost, what is damaged is refused by
// name, and nothing is served that was not written. HOLDFAST_CUT_SEED plays the
// worlds of a seed again.
func TestCutAfterSync(t *testing.T) {
	seed := rand.Uint64()
	if text := os.Getenv("HOLDFAST_CUT_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d", seed)
	tally := &tally{steps: map[string]int{}}
	for n := uint64(0); tally.cuts < cutsWanted() && !t.Failed(); n++ {
		c := &cutter{t: t, tally: tally, base: t.TempDir(), rng: rand.New(rand.NewPCG(seed, n)), seed: seed, n: n}
		c.world()
		if err := os.RemoveAll(c.base); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cuts: %v; %v; %d refused by name, %d of them rotten; %d lives", tally.cuts, tally.hows, tally.steps, tally.refused, tally.rotten, tally.lives)
	if tally.refused < tally.cuts/15 || len(tally.steps) < 20 {
		t.Errorf("the cuts miss their aim: %+v", tally)
	}
}

type tally struct {
	cuts, refused, rotten, lives int
	hows                         [damages]int
	steps                        map[string]int
}

// cutter is a store at work, on a disk that forgets.
type cutter struct {
	t     *testing.T
	tally *tally
	rng   *rand.Rand
	seed  uint64
	n     uint64
	base  string

	dir  string
	s    *Store
	disk *disk
	book ledger
	op   string
	// next is a crash that the next life begins with, and who knew it.
	next     image
	nextBook ledger
	count    int
}

func (c *cutter) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("seed %d, world %d, in %s: %v", c.seed, c.n, c.op, err)
	}
}

// world is one directory over some lives.
func (c *cutter) world() {
	c.dir = filepath.Join(c.base, "life")
	c.book = ledger{log: map[uint64]kept{}, ghosts: map[uint64]bool{}}
	c.disk = &disk{rng: c.rng, durable: image{}, loose: image{}}
	c.begin()
	for life := range 5 {
		c.tally.lives++
		for range 3 + c.rng.IntN(14) {
			c.work()
		}
		if c.next == nil && life%2 == 0 {
			c.op = "close"
			c.must(c.s.Close())
			now := readImage(c.t, c.dir)
			c.disk.keepLog(now)
			c.disk.keepMark(now)
		} else {
			c.s.closeFiles() // it died; its log is not closed
			_ = c.s.wal.Close()
			if c.next != nil {
				c.book = c.nextBook
				c.next.write(c.t, c.dir)
			}
			c.next = nil
		}
		c.restart()
	}
	_ = c.s.Close()
}

// begin sets the store up, by a first snapshot or to join.
func (c *cutter) begin() {
	c.op = "set up"
	s, err := Open(Options{Dir: c.dir, Logger: quiet, Fault: c.at})
	c.must(err)
	c.s = s
	if c.n%3 == 2 {
		c.must(s.Join(77))
	} else {
		sn := snapshotAt(1, 1, stateOf(1, 5))
		c.must(s.Bootstrap(77, sn))
		c.book.last, c.book.lastTerm, c.book.snap, c.book.snapTerm, c.book.term, c.book.commit = 1, 1, 1, 1, 1, 1
	}
	c.opened()
}

// opened: a start leaves all synced but the names of what it removed.
func (c *cutter) opened() {
	now := readImage(c.t, c.dir)
	back := image{}
	for _, name := range c.disk.durable.in(snapIn, "") {
		back[name] = c.disk.durable[name]
	}
	c.disk.durable, c.disk.loose = maps.Clone(now), image{}
	maps.Copy(c.disk.durable, back)
	c.disk.keepMark(now)
}

// restart opens the store and sees that all is there; also when it is cut short.
func (c *cutter) restart() {
	c.op = "start"
	before := readImage(c.t, c.dir)
	c.disk.durable = maps.Clone(before)
	s, err := Open(Options{Dir: c.dir, Logger: quiet, Fault: c.at})
	c.must(err)
	c.s = s
	o, err := c.book.agrees(s.Recovered(), killed)
	c.must(err)
	after := readImage(c.t, c.dir)
	for range 2 {
		c.try("start", lost, c.disk.crashInStart(before, after))
	}
	c.book.adopt(s.Recovered(), o)
	c.opened()
}

// at is called before each step of the store.
func (c *cutter) at(step string) error {
	if c.op == "start" {
		return nil
	}
	now := readImage(c.t, c.dir)
	if c.op == "set up" {
		c.atSetUp(step, now)
		return nil
	}
	c.disk.saw(now)
	c.cut(c.op+", before "+step, now)
	switch {
	case step == "snapshot record":
		c.disk.keepSnapshots(now)
	case step == "purge", step == "mark" && c.op != "probe", step == "append" && c.op == "received":
		c.disk.keepLog(now)
	}
	return nil
}

// cut plays crashes at this moment.
func (c *cutter) cut(where string, now image) {
	if c.rng.IntN(5) > 1 {
		return
	}
	for range 1 + c.rng.IntN(2) {
		how := damage(c.rng.IntN(int(damages)))
		m := c.disk.crash(now, how)
		if c.try(where, how, m) && !how.mayRefuse() && c.rng.IntN(6) == 0 {
			c.next, c.nextBook = m, c.book
			c.nextBook.log = maps.Clone(c.book.log)
		}
	}
}

// try opens what a crash left, and reports whether it was not refused.
func (c *cutter) try(where string, how damage, m image) bool {
	c.t.Helper()
	c.tally.cuts++
	c.tally.hows[how]++
	c.tally.steps[where]++
	dir := filepath.Join(c.base, "cut")
	m.write(c.t, dir)
	fail := func(what string, err error) {
		c.t.Helper()
		c.t.Fatalf("seed %d, world %d: cut in %s, %v: %s: %v", c.seed, c.n, where, how, what, err)
	}
	s, err := Open(Options{Dir: dir, Logger: quiet})
	if err != nil {
		named := (errors.Is(err, ErrCorrupt) || errors.Is(err, ErrNewerFormat)) && strings.Contains(err.Error(), dir+"/")
		if !how.mayRefuse() || !named {
			fail("the start says", err)
		}
		c.tally.refused++
		if how == rotten {
			c.tally.rotten++
		}
		return false
	}
	found := s.Recovered()
	if _, err := c.book.agrees(found, how); err != nil {
		fail("what is found is wrong", err)
	}
	if c.rng.IntN(3) > 0 || found.Snapshot == nil {
		if err := s.Close(); err != nil {
			fail("closing", err)
		}
		return true
	}
	// It goes on as if nothing had been.
	next := s.last.index + 1
	term := found.HardState.GetTerm() + 1
	e := entry(next, term, "goes on")
	if c.book.ghost >= next || c.book.flying.received != nil {
		term, e = found.HardState.GetTerm(), nil
	}
	if e != nil {
		err = s.Append(hardState(term, 1, s.commit), []*raftpb.Entry{e}, nil)
	}
	if cerr := s.Close(); err != nil || cerr != nil {
		fail("going on", errors.Join(err, cerr))
	}
	again, err := Open(Options{Dir: dir, Logger: quiet})
	if err != nil {
		fail("the second start says", err)
	}
	if e != nil && again.last.index != next {
		fail("after it went on", fmt.Errorf("the log ends with %d: want %d", again.last.index, next))
	}
	if err := again.Close(); err != nil {
		fail("closing", err)
	}
	return true
}

// atSetUp plays crashes in the first start: until META says that the directory
// is a member's, all else in it may be missing or torn.
func (c *cutter) atSetUp(step string, now image) {
	m := maps.Clone(now)
	for name := range now {
		if step != "renew" && strings.HasPrefix(name, group1) && c.rng.IntN(2) == 0 {
			m[name] = nil
		}
	}
	if step == "meta" {
		m[metaFile+newSuffix] = []byte("Holdf")
	}
	c.tally.cuts++
	c.tally.steps["set up, before "+step]++
	dir := filepath.Join(c.base, "cut")
	m.write(c.t, dir)
	s, err := Open(Options{Dir: dir, Logger: quiet})
	c.must(err)
	if s.Meta().Member != (step == "renew") || s.Meta().NodeID != c.s.Meta().NodeID {
		c.t.Errorf("after a crash before %s: %+v", step, s.Meta())
	}
	c.must(s.Close())
}
