package memgate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/fence"
)

// A Memory is what a guarded resource remembers: the marks of its gates. Gates
// on one Memory are like gates of several processes on one database: they see
// the same marks, and at most one is in its guarded step. Make one with
// [NewMemory].
type Memory struct {
	// step holds one value while a gate is in its guarded step. It is a
	// channel, so that waiting for it can be given up, and so that waiters
	// are served in turn and a crowd cannot starve a raise.
	step chan struct{}
	// gates is read and written by whoever is in the step.
	gates map[string]*record

	mu struct {
		sync.Mutex
		inside fence.Token // who is in the step, for UndrainedError
		use    fence.Use
	}
}

// record is what a Memory keeps for one lock.
type record struct {
	active fence.Domain
	marks  map[markKey]fence.Mark
}

type markKey struct {
	domain fence.Domain
	slot   uint32
}

// NewMemory returns a Memory that has never seen a token.
func NewMemory() *Memory {
	return &Memory{step: make(chan struct{}, 1), gates: make(map[string]*record)}
}

// enter waits for the step until bound has passed or ctx ends.
func (m *Memory) enter(ctx context.Context, bound time.Duration, g fence.Guard, t fence.Token, use fence.Use) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.step <- struct{}{}:
	default:
		timer := time.NewTimer(bound)
		defer timer.Stop()
		select {
		case m.step <- struct{}{}:
		case <-ctx.Done():
			return m.undrained(g, t, context.Cause(ctx))
		case <-timer.C:
			return m.undrained(g, t, nil)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.inside, m.mu.use = t, use
	return nil
}

func (m *Memory) leave() {
	m.mu.Lock()
	m.mu.inside, m.mu.use = fence.Token{}, 0
	m.mu.Unlock()
	<-m.step
}

func (m *Memory) undrained(g fence.Guard, t fence.Token, cause error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	by := "another step on the same memory"
	if !m.mu.inside.IsZero() {
		by = fmt.Sprintf("the holder of token %d of lock %q, which has not left its step (%s)", m.mu.inside.Number, m.mu.inside.Lock, m.mu.use)
	}
	return &fence.UndrainedError{Gate: g.Gate, Offered: t, By: by, Err: cause}
}

// record returns what is kept for a lock; the caller is in the step.
func (m *Memory) record(lock string) *record {
	r := m.gates[lock]
	if r == nil {
		r = &record{marks: make(map[markKey]fence.Mark)}
		m.gates[lock] = r
	}
	return r
}

func (r *record) raise(t fence.Token, now time.Time) {
	r.active = t.Domain
	r.marks[markKey{t.Domain, t.Slot}] = fence.Mark{Token: t, RaisedAt: now}
}

func (r *record) state(g fence.Guard) fence.State {
	s := fence.State{Guard: g, Active: r.active}
	for _, m := range r.marks {
		s.Marks = append(s.Marks, m)
	}
	slices.SortFunc(s.Marks, func(a, b fence.Mark) int {
		return cmp.Or(slices.Compare(a.Token.Domain[:], b.Token.Domain[:]), cmp.Compare(a.Token.Slot, b.Token.Slot))
	})
	return s
}
