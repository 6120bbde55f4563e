package fencetest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
)

// modelBound is how long the model waits for its door.
const modelBound = 30 * time.Millisecond

// model is a resource in memory with a gate that is right, unless fault names
// a way in which it is wrong.
type model struct {
	fault string
	door  chan struct{}

	mu      sync.Mutex
	locks   map[string]*marks
	ledger  []fencetest.Entry
	holding fence.Token
}

type marks struct {
	active fence.Domain
	of     map[markKey]fence.Mark
}

type markKey struct {
	domain fence.Domain
	slot   uint32
}

func newModel(fault string) *model {
	return &model{fault: fault, door: make(chan struct{}, 1), locks: map[string]*marks{}}
}

func (m *model) is(fault string) bool { return m.fault == fault }

func (m *model) Ledger(fencetest.T) []fencetest.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]fencetest.Entry(nil), m.ledger...)
}

func (m *model) Open(_ fencetest.T, o fencetest.Options) (fencetest.Gate, error) {
	g := &modelGate{model: m, guard: fence.Guard{Gate: o.Name, Lock: o.Lock, Slots: o.Slots, Shared: o.AllowShared}, reporter: o.Reporter}
	if err := g.guard.Validate(); err != nil && !m.is("accepts any lock name") {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := o.Lock
	if m.is("folds lock names") {
		name = strings.ToLower(strings.TrimSpace(name))
	}
	if m.locks[name] == nil || m.is("forgets on reopen") {
		m.locks[name] = &marks{of: map[markKey]fence.Mark{}}
	}
	g.marks = m.locks[name]
	if o.Domain != (fence.Domain{}) && !m.is("ignores the configured domain") {
		if g.marks.active != (fence.Domain{}) && g.marks.active != o.Domain {
			return nil, errors.New("the resource serves another domain")
		}
		g.marks.active = o.Domain
	}
	return g, nil
}

type modelGate struct {
	*model
	guard    fence.Guard
	marks    *marks
	reporter fence.Reporter
}

func (g *modelGate) enter(ctx context.Context, t fence.Token) error {
	if err := ctx.Err(); err != nil && !g.is("ignores cancelled contexts") {
		return err
	}
	var late <-chan time.Time
	if !g.is("waits for ever") {
		timer := time.NewTimer(modelBound)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case g.door <- struct{}{}:
		g.mu.Lock()
		g.holding = t
		g.mu.Unlock()
		return nil
	case <-late:
		g.mu.Lock()
		defer g.mu.Unlock()
		by := fmt.Sprintf("the holder of token %d", g.holding.Number)
		if g.is("does not name who blocks") {
			by = "somebody"
		}
		return &fence.UndrainedError{Gate: g.guard.Gate, Offered: t, By: by}
	}
}

func (g *modelGate) leave() { <-g.door }

// judge is called with mu held.
func (g *modelGate) judge(t fence.Token, use fence.Use) (fence.Verdict, error) {
	guard, active, key := g.guard, g.marks.active, markKey{t.Domain, t.Slot}
	if g.is("one mark for all slots") {
		key.slot = 0
	}
	seen := g.marks.of[key].Token
	offered := t
	switch {
	case g.is("accepts no token") && t.IsZero():
		return fence.Accept, nil
	case g.is("refuses equal") && !seen.IsZero() && seen.Number == t.Number:
		return fence.Refuse, &fence.StaleError{Gate: guard.Gate, Offered: t, Seen: seen}
	case g.is("ignores domains"):
		active = t.Domain
	case g.is("orders all domains") && active != t.Domain:
		for k, mark := range g.marks.of {
			if k.domain == active && mark.Token.Number < t.Number && t.Validate() == nil {
				active = t.Domain
			}
		}
	case g.is("ignores incarnations"):
		seen.Incarnation = t.Incarnation
	case g.is("ignores locks"):
		guard.Lock = t.Lock
		seen.Lock = t.Lock
	case g.is("accepts shared"):
		guard.Shared = true
	case g.is("never accepts shared"):
		guard.Shared = false
	case g.is("revocation tokens write"):
		use = fence.ToArm
	case g.is("revocation tokens do not arm") && t.Mode == fence.Revocation:
		use = fence.ToWrite
	case g.is("ignores the limit of slots"):
		guard.Slots = t.Slot + 1
	case g.is("stale before shape") && !seen.IsZero() && t.Number < seen.Number:
		return fence.Refuse, &fence.StaleError{Gate: guard.Gate, Offered: t, Seen: seen}
	case g.is("shared before stale") && t.Mode == fence.Shared && t.Validate() == nil && t.Domain == active && t.Lock == guard.Lock && t.Slot == 0:
		return fence.Refuse, &fence.SharedError{Gate: guard.Gate, Offered: t}
	}
	if key.slot != t.Slot || g.is("ignores locks") {
		seen.Slot = t.Slot
	}
	if !seen.IsZero() && seen.Number > t.Number && g.lowerPasses(seen.Number, t.Number) {
		offered.Number = seen.Number
	}
	v, err := fence.Judge(guard, active, seen, offered, use)
	var stale *fence.StaleError
	if errors.As(err, &stale) && g.is("swaps the tokens") {
		stale.Offered, stale.Seen = stale.Seen, stale.Offered
	}
	if errors.As(err, &stale) && g.is("refusal lowers the mark") {
		g.raise(t)
	}
	return v, err
}

// lowerPasses are the wrong ways to compare two numbers.
func (g *modelGate) lowerPasses(seen, offered uint64) bool {
	switch g.fault {
	case "compares as float64":
		return float64(offered) >= float64(seen)
	case "compares as text":
		return strconv.FormatUint(offered, 10) >= strconv.FormatUint(seen, 10)
	case "compares 32 bits":
		return uint32(offered) >= uint32(seen)
	case "compares signed 32 bits":
		return int32(uint32(offered)) >= int32(uint32(seen))
	case "compares the counter only":
		return offered<<16 >= seen<<16
	case "lets the last but one pass":
		return offered+1 == seen
	}
	return false
}

// raise is called with mu held.
func (g *modelGate) raise(t fence.Token) {
	key := markKey{t.Domain, t.Slot}
	if g.is("one mark for all slots") {
		key.slot = 0
	}
	g.marks.active = t.Domain
	g.marks.of[key] = fence.Mark{Token: t, RaisedAt: time.Now()}
}

func (g *modelGate) Arm(ctx context.Context, t fence.Token) error {
	err := g.arm(ctx, t)
	g.tell(fence.ToArm, t, err)
	return err
}

func (g *modelGate) arm(ctx context.Context, t fence.Token) error {
	if !g.is("arms without draining") {
		if err := g.enter(ctx, t); err != nil {
			return err
		}
		defer g.leave()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v, err := g.judge(t, fence.ToArm)
	switch {
	case err != nil:
		return err
	case g.is("arms only with data"):
	case v == fence.Raise || g.is("equal changes when it rose"):
		g.raise(t)
	}
	return nil
}

func (g *modelGate) Write(ctx context.Context, w fencetest.Write) error {
	err := g.write(ctx, w)
	g.tell(fence.ToWrite, w.Token, err)
	return err
}

var errFailed = errors.New("the write was to fail")

func (g *modelGate) write(ctx context.Context, w fencetest.Write) error {
	if g.is("judges before the work only") {
		g.mu.Lock()
		_, err := g.judge(w.Token, fence.ToWrite)
		g.mu.Unlock()
		if err != nil {
			return err
		}
	}
	if w.Inside != nil && !g.is("runs the work inside the step") {
		w.Inside()
	}
	if err := g.enter(ctx, w.Token); err != nil {
		return err
	}
	defer g.leave()
	if w.Inside != nil && g.is("runs the work inside the step") {
		w.Inside()
	}
	if !g.is("judges before the work only") {
		if err := g.admit(w); err != nil {
			return err
		}
	}
	if w.Final != nil {
		if g.is("checks, then writes") {
			g.leave()
		}
		w.Final()
		if g.is("checks, then writes") {
			g.door <- struct{}{}
		}
	}
	return g.land(w)
}

// admit judges and raises.
func (g *modelGate) admit(w fencetest.Write) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	v, err := g.judge(w.Token, fence.ToWrite)
	switch {
	case err != nil:
		return err
	case v == fence.Raise && g.is("first use is not atomic") && len(g.marks.of) == 0:
		g.mu.Unlock()
		g.leave()
		for range 20 {
			runtime.Gosched()
		}
		g.door <- struct{}{}
		g.mu.Lock()
		g.raise(w.Token)
	case g.is("writes do not raise"):
	case g.is("writes do not pin") && g.marks.active == fence.Domain{}:
	case v == fence.Raise || g.is("equal changes when it rose"):
		g.raise(w.Token)
	}
	return nil
}

func (g *modelGate) land(w fencetest.Write) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.Fail {
		if g.is("rollback lowers the mark") {
			delete(g.marks.of, markKey{w.Token.Domain, w.Token.Slot})
		}
		return errFailed
	}
	g.ledger = append(g.ledger, fencetest.Entry{Token: w.Token, Value: w.Value})
	if g.is("writes twice") && len(g.ledger) == 3 {
		g.ledger = append(g.ledger, g.ledger[2])
	}
	return nil
}

func (g *modelGate) Move(ctx context.Context, m fence.Move) error {
	err := g.move(ctx, m)
	g.tell(fence.ToMove, m.Token, err)
	return err
}

func (g *modelGate) move(ctx context.Context, m fence.Move) error {
	if err := g.enter(ctx, m.Token); err != nil {
		return err
	}
	defer g.leave()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.state()
	asked := m
	switch {
	case g.is("move ignores the expected mark"):
		m.Expected = s.Tokens(m.From)
	case g.is("move ignores the active domain"):
		s.Active = m.From
		m.Expected = s.Tokens(m.From)
	case g.is("move forgets on return"):
		s.Marks = nil
		for _, t := range m.Expected {
			s.Marks = append(s.Marks, fence.Mark{Token: t})
		}
	case g.is("move takes any token"):
		m.Token.Number = fence.MaxNumber
	}
	if err := fence.JudgeMove(s, m); err != nil {
		return err
	}
	if g.is("move drops the old mark") {
		clear(g.marks.of)
	}
	g.raise(asked.Token)
	return nil
}

func (g *modelGate) Show(context.Context) (fence.State, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state(), nil
}

func (g *modelGate) state() fence.State {
	s := fence.State{Guard: g.guard, Active: g.marks.active}
	for _, mark := range g.marks.of {
		s.Marks = append(s.Marks, mark)
	}
	sortMarks(s.Marks)
	return s
}

func (g *modelGate) tell(use fence.Use, t fence.Token, err error) {
	if g.reporter == nil || g.is("does not report") {
		return
	}
	r, ok := fence.NewRefusal(g.guard, use, t, err)
	if g.is("reports what it accepts") && err == nil {
		r, ok = fence.Refusal{Gate: g.guard.Gate, Offered: t, Use: use}, true
	}
	if !ok {
		return
	}
	if g.is("reports the wrong use") {
		r.Use = fence.ToWrite
	}
	g.reporter.Report(context.Background(), r)
	if g.is("reports twice") {
		g.reporter.Report(context.Background(), r)
	}
}
