package fence_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"holdfast/fence"

	"pgregory.net/rapid"
)

var guard = fence.Guard{Gate: "g", Lock: "invoices"}

// A token that is wrong in several ways gets the first verdict in E2's order.
func TestJudge(t *testing.T) {
	shared := func(t *fence.Token) { t.Mode = fence.Shared }
	revocation := func(t *fence.Token) { t.Mode = fence.Revocation }
	forked := func(t *fence.Token) { t.Incarnation++ }
	domain := func(t *fence.Token) { t.Domain = domainB }
	lock := func(t *fence.Token) { t.Lock = "other" }
	slot := func(t *fence.Token) { t.Slot = 1 }
	seen := token(5)
	for _, c := range []struct {
		name    string
		guard   fence.Guard
		active  fence.Domain
		seen    fence.Token
		offered fence.Token
		arm     string // the verdict or the kind of refusal
		write   string
	}{
		{"first", guard, fence.Domain{}, fence.Token{}, token(1), "raise", "raise"},
		{"first, configured", guard, domainA, fence.Token{}, token(1), "raise", "raise"},
		{"first, configured otherwise", guard, domainB, fence.Token{}, token(1), "domain", "domain"},
		{"equal", guard, domainA, seen, token(5), "accept", "accept"},
		{"higher", guard, domainA, seen, token(6), "raise", "raise"},
		{"higher, other incarnation", guard, domainA, seen, token(6, forked), "raise", "raise"},
		{"lower", guard, domainA, seen, token(4), "stale", "stale"},
		{"malformed first of all", guard, domainB, seen, token(0, lock, slot), "malformed", "malformed"},
		{"no token", guard, domainA, seen, fence.Token{}, "malformed", "malformed"},
		{"domain before lock", guard, domainA, fence.Token{}, token(4, domain, lock, slot, shared), "domain", "domain"},
		{"lock before slot", guard, domainA, fence.Token{}, token(4, lock, slot, shared), "lock", "lock"},
		{"slot before the number", guard, domainA, fence.Token{}, token(4, slot, shared), "slot", "slot"},
		{"stale before fork", guard, domainA, seen, token(4, forked, shared), "stale", "stale"},
		{"fork before shared", guard, domainA, seen, token(5, forked, shared), "fork", "fork"},
		{"fork of a revocation", guard, domainA, seen, token(5, forked, revocation), "fork", "fork"},
		{"shared, equal", guard, domainA, seen, token(5, shared), "shared", "shared"},
		{"shared, higher", guard, domainA, seen, token(6, shared), "shared", "shared"},
		{"shared, first", guard, fence.Domain{}, fence.Token{}, token(6, shared), "shared", "shared"},
		{"shared, allowed", fence.Guard{Gate: "g", Lock: "invoices", Shared: true}, domainA, seen, token(6, shared), "raise", "raise"},
		{"revocation, higher", guard, domainA, seen, token(6, revocation), "raise", "revocation"},
		{"revocation, equal", guard, domainA, token(5, revocation), token(5, revocation), "accept", "revocation"},
		{"revocation, lower", guard, domainA, seen, token(4, revocation), "stale", "stale"},
		{"above a revocation", guard, domainA, token(5, revocation), token(6), "raise", "raise"},
		{"below a revocation", guard, domainA, token(5, revocation), token(4), "stale", "stale"},
		{"one of many slots", fence.Guard{Gate: "g", Lock: "invoices", Slots: 2}, domainA, fence.Token{}, token(1, slot), "raise", "raise"},
		{"a float64 would not see it", guard, domainA, token(9007199254740993), token(9007199254740992), "stale", "stale"},
		{"the highest", guard, domainA, token(fence.MaxNumber), token(fence.MaxNumber), "accept", "accept"},
		{"a mark of another lock", guard, domainA, token(5, lock), token(6), "bad-record", "bad-record"},
		{"a mark of another slot", guard, domainA, token(5, slot), token(6), "bad-record", "bad-record"},
		{"a mark of another domain", guard, domainA, token(5, domain), token(6), "bad-record", "bad-record"},
		{"a malformed mark", guard, domainA, token(fence.MaxNumber + 1), token(6), "bad-record", "bad-record"},
	} {
		for use, want := range map[fence.Use]string{fence.ToArm: c.arm, fence.ToWrite: c.write} {
			v, err := fence.Judge(c.guard, c.active, c.seen, c.offered, use)
			got := v.String()
			if err != nil {
				got = string(fence.KindOf(err))
			}
			if got != want || (err == nil) != (v != fence.Refuse) {
				t.Errorf("%s, to %s: Judge gives %s, %v; want %s", c.name, use, v, err, want)
			}
		}
	}
	for _, use := range []fence.Use{0, fence.ToMove, 9} {
		if v, err := fence.Judge(guard, domainA, seen, token(6), use); v != fence.Refuse || err == nil {
			t.Errorf("Judge for %s gives %s, %v; want it refused", use, v, err)
		}
	}
}

// Whatever is offered in whatever order, the mark never falls, and what is let
// in never has a number below what was let in before.
func TestMarkNeverFalls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var active fence.Domain
		marks := map[uint32]fence.Token{}
		g := fence.Guard{Gate: "g", Lock: "a", Slots: 2, Shared: rapid.Bool().Draw(t, "shared")}
		for range rapid.IntRange(1, 40).Draw(t, "offers") {
			o := fence.Token{
				Domain:      rapid.SampledFrom([]fence.Domain{domainA, domainB, {}}).Draw(t, "domain"),
				Incarnation: fence.Incarnation(rapid.Uint64Range(1, 2).Draw(t, "incarnation")),
				Lock:        rapid.SampledFrom([]string{"a", "a", "b", ""}).Draw(t, "lock"),
				Slot:        rapid.Uint32Range(0, 2).Draw(t, "slot"),
				Mode:        fence.Mode(rapid.IntRange(0, 4).Draw(t, "mode")),
				Number:      rapid.Uint64Range(0, 6).Draw(t, "number"),
			}
			use := rapid.SampledFrom([]fence.Use{fence.ToArm, fence.ToWrite}).Draw(t, "use")
			seen := fence.Token{}
			if o.Domain == active {
				seen = marks[o.Slot]
			}
			v, err := fence.Judge(g, active, seen, o, use)
			if v == fence.Refuse {
				if err == nil || fence.KindOf(err) == fence.KindNone {
					t.Fatalf("%v is refused with %v", o, err)
				}
				continue
			}
			was := marks[o.Slot]
			lawful := o.Validate() == nil && o.Lock == g.Lock && o.Slot < g.Slots && (active == fence.Domain{} || active == o.Domain) &&
				o.Number >= was.Number && (o.Number > was.Number || o.Incarnation == was.Incarnation) &&
				(o.Mode != fence.Shared || g.Shared) && (o.Mode != fence.Revocation || use == fence.ToArm)
			if !lawful || (v == fence.Raise) != (o.Number > was.Number) {
				t.Fatalf("%v at mark %v to %s is let in: %s", o, was, use, v)
			}
			if v == fence.Raise {
				active, marks[o.Slot] = o.Domain, o
			}
		}
	})
}

func TestGuardValidate(t *testing.T) {
	for _, g := range []fence.Guard{{}, {Gate: "g"}, {Lock: "a"}, {Gate: strings.Repeat("g", 257), Lock: "a"}, {Gate: "g", Lock: "a\n"}} {
		if err := g.Validate(); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%+v: %v; want ErrMalformed", g, err)
		}
	}
	if err := guard.Validate(); err != nil {
		t.Error(err)
	}
}

func TestState(t *testing.T) {
	slot := func(n uint32) func(*fence.Token) { return func(t *fence.Token) { t.Slot = n } }
	inB := func(t *fence.Token) { t.Domain = domainB }
	s := fence.State{Guard: guard, Active: domainA, Marks: []fence.Mark{
		{Token: token(3, slot(4294967295))}, {Token: token(9, inB), RaisedAt: time.Unix(1, 0)}, {Token: token(5)},
	}}
	if got := s.Mark(domainB, 0); got != token(9, inB) {
		t.Errorf("Mark gives %v", got)
	}
	if got := s.Mark(domainB, 1); !got.IsZero() {
		t.Errorf("Mark of a slot without one gives %v", got)
	}
	if got := s.Tokens(domainA); len(got) != 2 || got[0] != token(5) || got[1] != token(3, slot(4294967295)) {
		t.Errorf("Tokens gives %v", got)
	}
}

func TestJudgeMove(t *testing.T) {
	inB := func(t *fence.Token) { t.Domain = domainB }
	s := fence.State{Guard: guard, Active: domainA, Marks: []fence.Mark{{Token: token(5)}, {Token: token(3, inB)}}}
	good := fence.Move{From: domainA, Expected: []fence.Token{token(5)}, To: domainB, Token: token(4, inB)}
	if err := fence.JudgeMove(s, good); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*fence.State, *fence.Move)
		kind   fence.Kind
		says   string
	}{
		"never armed":         {func(s *fence.State, _ *fence.Move) { s.Active = fence.Domain{} }, fence.KindMove, "arm it"},
		"same domain":         {func(_ *fence.State, m *fence.Move) { m.To, m.Token = domainA, token(9) }, fence.KindMove, "arm the gate"},
		"not active":          {func(s *fence.State, _ *fence.Move) { s.Active = domainB }, fence.KindMove, "active domain is ff"},
		"token of the old":    {func(_ *fence.State, m *fence.Move) { m.Token = token(9) }, fence.KindMove, "acquire one at the service"},
		"no token":            {func(_ *fence.State, m *fence.Move) { m.Token = fence.Token{} }, fence.KindMalformed, "no fencing token"},
		"mark rose":           {func(s *fence.State, _ *fence.Move) { s.Marks[0].Token = token(6) }, fence.KindMove, "still in use"},
		"mark of a fork":      {func(s *fence.State, _ *fence.Move) { s.Marks[0].Token.Incarnation++ }, fence.KindMove, "still in use"},
		"nothing expected":    {func(_ *fence.State, m *fence.Move) { m.Expected = nil }, fence.KindMove, "expected []"},
		"equal to the kept":   {func(_ *fence.State, m *fence.Move) { m.Token = token(3, inB) }, fence.KindMove, "not above the mark 3"},
		"below the kept":      {func(_ *fence.State, m *fence.Move) { m.Token = token(2, inB) }, fence.KindMove, "not above the mark 3"},
		"another lock":        {func(_ *fence.State, m *fence.Move) { m.Token.Lock = "other" }, fence.KindLock, "other"},
		"another slot":        {func(_ *fence.State, m *fence.Move) { m.Token.Slot = 1 }, fence.KindSlot, "slots 0 … 0"},
		"shared, not allowed": {func(_ *fence.State, m *fence.Move) { m.Token.Mode = fence.Shared }, fence.KindShared, "exclusive tokens only"},
	} {
		state, move := s, good
		state.Marks = append([]fence.Mark(nil), s.Marks...)
		c.change(&state, &move)
		err := fence.JudgeMove(state, move)
		if fence.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: JudgeMove gives %v; want kind %s and %q", name, err, c.kind, c.says)
		}
	}
}
