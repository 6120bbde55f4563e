package core

import (
	"fmt"
	"io"
	"testing"
)

// benchState has a few thousand sessions and locks beside what is measured.
func benchState(b *testing.B) *State {
	s := testState()
	for i := range 2000 {
		id := SessionID(i + 1)
		mustApply(b, s, 0, Open{ID: id, SecretHash: [32]byte{1, byte(i), byte(i >> 8)}, TTL: MinTTL},
			Acquire{Session: id, Request: Request{0, 1}, Lock: fmt.Sprint("held/", i)})
	}
	return s
}

func apply(b *testing.B, s *State, c Command) Applied {
	a, err := s.Apply(Entry{Index: s.Index() + 1, Commands: []Command{c}})
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// BenchmarkAcquireRelease is the uncontended pair.
func BenchmarkAcquireRelease(b *testing.B) {
	s := benchState(b)
	b.ReportAllocs()
	for n := uint64(1); b.Loop(); n++ {
		g := apply(b, s, Acquire{Session: 7, Request: Request{1, n}, Lock: "free"}).Results[0].Grant
		apply(b, s, Release{Session: 7, Grant: g.Number})
	}
}

// BenchmarkHandOff is one release with the grant to the next waiter, and the
// releaser queueing again, among many waiters.
func BenchmarkHandOff(b *testing.B) {
	for _, waiters := range []int{16, 128, 2000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			s := benchState(b)
			n := make([]uint64, waiters+1)
			var holder Grant
			for i := 1; i <= waiters; i++ {
				n[i]++
				if r := apply(b, s, Acquire{Session: SessionID(i), Request: Request{1, 1}, Lock: "hot"}).Results[0]; r.Grant != nil {
					holder = *r.Grant
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				id := holder.Session
				holder = *apply(b, s, Release{Session: id, Grant: holder.Number}).Notices[0].Result.Grant
				n[id]++
				apply(b, s, Acquire{Session: id, Request: Request{1, n[id]}, Lock: "hot"})
			}
		})
	}
}

// BenchmarkEntry is the codec's part of an acquire.
func BenchmarkEntry(b *testing.B) {
	c := []Command{Acquire{Session: 7, Request: Request{1, 99}, Lock: "invoices/2026"}}
	b.ReportAllocs()
	for b.Loop() {
		data, err := EncodeEntry(Header{Clock: 1 << 40}, c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := DecodeEntry(1, 1, data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkClone is what a snapshot costs the loop.
func BenchmarkClone(b *testing.B) {
	s := benchState(b)
	b.ReportAllocs()
	for b.Loop() {
		s.Clone()
	}
}

// BenchmarkEncode is what a snapshot costs beside the loop.
func BenchmarkEncode(b *testing.B) {
	s := benchState(b)
	for b.Loop() {
		if err := s.Encode(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
