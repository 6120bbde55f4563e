package core

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestReplay is invariant 8: replicas that get the same bytes of the log have
// the same hash at every index, also one that was started from a snapshot in
// between, and whoever scribbles on what Apply was given or gave.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{s: testState()}
		follower, restarted := testState(), testState()
		for range rapid.IntRange(1, 30).Draw(t, "entries") {
			w.clock += Clock(time.Second)
			var cmds []Command
			for range rapid.IntRange(0, 5).Draw(t, "commands") {
				cmds = append(cmds, w.command(t))
			}
			data, err := EncodeEntry(Header{Clock: w.clock}, cmds)
			if err != nil {
				t.Fatal(err)
			}
			mine := applyKept(t, w.s, bytes.Clone(data))
			theirs := applyBytes(t, follower, bytes.Clone(data))
			if a, b := fmt.Sprintf("%+v", mine.Events), fmt.Sprintf("%+v", theirs.Events); a != b {
				t.Fatalf("events differ:\n%s\n%s", a, b)
			}
			applyBytes(t, restarted, data)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				restarted = reload(t, restarted)
			}
			if h := w.s.Hash(); follower.Hash() != h || restarted.Hash() != h {
				t.Fatalf("invariant 8: hashes differ at index %d", w.s.Index())
			}
		}
		if err := w.s.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// applyKept applies an entry and leaves everything as it is.
func applyKept(t tester, s *State, data []byte) Applied {
	e, err := DecodeEntry(s.Index()+1, 1, data)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// applyBytes applies an entry and spoils everything that the state must not
// have kept.
func applyBytes(t tester, s *State, data []byte) Applied {
	e, err := DecodeEntry(s.Index()+1, 1, data)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 0xff
	}
	a, err := s.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range e.Commands {
		switch c := c.(type) {
		case Acquire:
			spoil(c.Value)
		case Put:
			spoil(c.Value)
		case Members:
			clear(c.Members)
		}
	}
	for _, r := range a.Results {
		if r.Refusal != nil {
			if r.Refusal.Holder != nil {
				*r.Refusal.Holder = Holder{}
			}
			*r.Refusal = Refusal{}
		}
	}
	return a
}

func spoil(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// TestCloneBesideApply is D5: while entries are applied, clones taken at some
// of them are encoded in other goroutines, and give the hash that the state
// had at their index. The race detector looks on.
func TestCloneBesideApply(t *testing.T) {
	s := testState()
	for i := range 200 {
		mustApply(t, s, 0, Open{ID: SessionID(i + 1), SecretHash: [32]byte{1, byte(i)}, TTL: MinTTL, Label: "l"})
	}
	type snapshot struct {
		state *State
		hash  [32]byte
	}
	work := make(chan snapshot, 8)
	var done sync.WaitGroup
	for range 2 {
		done.Go(func() {
			for c := range work {
				sum := sha256.New()
				var b bytes.Buffer
				if err := c.state.Encode(io.MultiWriter(&b, sum)); err != nil {
					t.Error(err)
				}
				if got := [32]byte(b.Bytes()[b.Len()-32:]); got != c.hash || c.state.Hash() != c.hash {
					t.Errorf("index %d: clone has another hash than the state had", c.state.Index())
				}
				if err := c.state.Check(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	n := uint64(0)
	for i := range 1500 {
		id := SessionID(i%200 + 1)
		n++
		name := fmt.Sprintf("lock/%d", i%37)
		a := mustApply(t, s, Clock(i), Acquire{Session: id, Request: Request{Lane: uint32(i / 200), N: n}, Lock: name, Shared: i%3 == 0, Value: []byte{byte(i)}})
		if a.Results[0].Status == Granted && i%2 == 0 {
			mustApply(t, s, Clock(i), Release{Session: id, Grant: a.Results[0].Grant.Number})
		}
		if i%50 == 0 {
			mustApply(t, s, Clock(i), End{ID: SessionID(i/50 + 1)})
			work <- snapshot{state: s.Clone(), hash: s.Hash()}
		}
	}
	close(work)
	done.Wait()
}

// TestCloneStaysAsItWas: neither side of a clone sees the other's changes.
func TestCloneStaysAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{s: testState()}
		advance := func(n int) {
			for range n {
				w.clock += Clock(time.Second)
				if _, err := w.s.Apply(Entry{Index: w.s.Index() + 1, Header: Header{Clock: w.clock}, Commands: []Command{w.command(t)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		advance(20)
		original, before := w.s, w.s.Hash()
		w.s = original.Clone()
		advance(20)
		after := w.s.Hash()
		if original.Hash() != before {
			t.Fatal("a change to the clone changed the original")
		}
		clone := w.s
		w.s = original
		advance(20)
		if clone.Hash() != after {
			t.Fatal("a change to the original changed the clone")
		}
		if err := clone.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
