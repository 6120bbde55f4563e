package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A scene is a history in which everything is right: a holds, writes twice and
// releases; b, who waited, follows. Tests put one thing wrong in it.
type scene struct {
	records []record
	ledger  []entry
	events  []grantEvent
}

func ms(n int64) int64 { return n * int64(time.Millisecond) }

func goodScene() *scene {
	return &scene{
		records: []record{
			{At: ms(1), Kind: kindAcquire, Op: "a1", Task: "a", Lock: "l"},
			{At: ms(2), Kind: kindAcquire, Op: "b1", Task: "b", Lock: "l"},
			{At: ms(3), Kind: kindGranted, Op: "a1", Number: 5, Until: ms(1000)},
			{At: ms(4), Kind: kindWrite, Op: "a1", Write: "a1/0", Version: 1, Number: 5, Until: ms(1000)},
			{At: ms(5), Kind: kindWrote, Op: "a1", Write: "a1/0", Result: resultDone},
			{At: ms(6), Kind: kindWrite, Op: "a1", Write: "a1/1", Version: 2, Number: 5, Until: ms(1500)},
			{At: ms(7), Kind: kindWrote, Op: "a1", Write: "a1/1", Result: resultDone},
			{At: ms(8), Kind: kindGet, Op: "g1", Task: "c", Lock: "l"},
			{At: ms(9), Kind: kindGot, Op: "g1", Number: 5, Result: resultDone},
			{At: ms(10), Kind: kindRelease, Op: "a1", Until: ms(1500)},
			{At: ms(12), Kind: kindReleased, Op: "a1", Result: resultDone},
			{At: ms(11), Kind: kindGranted, Op: "b1", Number: 6, Until: ms(1800)},
			{At: ms(13), Kind: kindWrite, Op: "b1", Write: "b1/0", Version: 3, Number: 6, Until: ms(1800)},
			{At: ms(14), Kind: kindWrote, Op: "b1", Write: "b1/0", Result: resultDone},
			{At: ms(3000), Kind: kindAcquire, Op: "c1", Task: "c", Lock: "l"},
			{At: ms(3001), Kind: kindGranted, Op: "c1", Number: 9, Until: ms(4000)},
		},
		ledger: []entry{{1, 5, "a1/0"}, {2, 5, "a1/1"}, {3, 6, "b1/0"}},
		events: []grantEvent{{"granted", "", "l", 5}, {"granted", "", "l", 6}, {"granted", "", "l", 9}},
	}
}

// judge runs all checks.
func (s *scene) judge(t *testing.T) []violation {
	t.Helper()
	h := newHistory()
	for _, r := range s.records {
		if err := h.add(r); err != nil {
			t.Fatal(err)
		}
	}
	var j judge
	(&evidence{history: h, ledgers: map[string][]entry{"l": s.ledger}, events: s.events}).judgeAll(&j)
	if decided := h.linearizable(&j, time.Minute); decided != 1 {
		t.Errorf("undecided: %v", j.undecided)
	}
	return j.violations
}

// at is the record of a kind and an operation.
func (s *scene) at(kind, op string) *record {
	i := slices.IndexFunc(s.records, func(r record) bool { return r.Kind == kind && (r.Op == op || r.Write == op) })
	return &s.records[i]
}

func TestNothingIsWrongWithAGoodHistory(t *testing.T) {
	if v := goodScene().judge(t); len(v) > 0 {
		t.Errorf("%v", v)
	}
}

// Each check sees what it is there for.
func TestWhatIsWrongIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		check string
		spoil func(*scene)
	}{
		"a number twice":             {"tokens rise", func(s *scene) { s.at(kindGranted, "b1").Number = 5 }},
		"a lower number":             {"tokens rise", func(s *scene) { s.at(kindGranted, "c1").Number = 4 }},
		"two believers":              {"one believer", func(s *scene) { s.at(kindRelease, "a1").At = ms(20) }},
		"two believers, by deadline": {"one believer", func(s *scene) { s.at(kindGranted, "b1").Until = ms(3002) }},
		"not linearizable":           {"linearizable", func(s *scene) { s.at(kindGot, "g1").Number = 0 }},
		"another's number read":      {"linearizable", func(s *scene) { s.at(kindGot, "g1").Number = 6 }},
		"a number read of no try":    {"linearizable", func(s *scene) { s.at(kindGot, "g1").Number = 4 }},
		"a number read too late": {"linearizable", func(s *scene) {
			s.records = append(s.records,
				record{At: ms(1), Kind: kindAcquire, Op: "d1", Task: "d", Lock: "l"},
				record{At: ms(3500), Kind: kindGet, Op: "g2", Task: "e", Lock: "l"},
				record{At: ms(3501), Kind: kindGot, Op: "g2", Number: 7, Result: resultDone})
		}},
		"granted before it was free": {"linearizable", func(s *scene) { s.at(kindGranted, "b1").At = ms(9) }},
		"a stale write":              {"stale write accepted", func(s *scene) { s.ledger[1], s.ledger[2] = s.ledger[2], s.ledger[1] }},
		"a version twice":            {"lost update", func(s *scene) { s.ledger[2].version = 2; s.at(kindWrite, "b1/0").Version = 2 }},
		"an acknowledged write gone": {"lost update", func(s *scene) { s.ledger = s.ledger[:2] }},
		"a refused write there":      {"ledger", func(s *scene) { s.at(kindWrote, "b1/0").Result = resultRefused }},
		"a write of nobody":          {"ledger", func(s *scene) { s.ledger = append(s.ledger, entry{4, 9, "x"}) }},
		"a write twice":              {"ledger", func(s *scene) { s.ledger = append(s.ledger, s.ledger[2]) }},
		"a grant of another lock":    {"grants", func(s *scene) { s.events[1].lock = "m" }},
		"an unknown grant":           {"grants", func(s *scene) { s.events = s.events[1:] }},
	} {
		s := goodScene()
		c.spoil(s)
		if v := s.judge(t); !slices.ContainsFunc(v, func(v violation) bool { return v.check == c.check }) {
			t.Errorf("%s: want a violation of %q, got %v", name, c.check, v)
		}
	}
}

// A long history of a contended lock, with many grants that expired, is decided
// soon.
func TestALongHistoryIsDecided(t *testing.T) {
	h := newHistory()
	for i := range int64(20_000) {
		op := fmt.Sprint("a", i)
		records := []record{
			{At: ms(10*i + 1), Kind: kindAcquire, Op: op, Task: op, Lock: "l"},
			{At: ms(10*i + 75), Kind: kindGranted, Op: op, Number: uint64(i + 1), Until: ms(10*i + 80)},
			{At: ms(10*i + 78), Kind: kindRelease, Op: op},
			{At: ms(10*i + 82), Kind: kindReleased, Op: op, Result: resultDone},
		}
		for _, r := range records[:4-2*(i%2)] { // each second one is killed
			if err := h.add(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	var j judge
	if h.linearizable(&j, time.Minute) != 1 || len(j.violations) > 0 {
		t.Errorf("%v, undecided: %v", j.violations, j.undecided)
	}
}

// What a killed client did not note may have happened or not.
func TestUnknownOutcomesAreUnknown(t *testing.T) {
	for name, spoil := range map[string]func(*scene){
		"killed before its release": func(s *scene) {
			s.records = slices.DeleteFunc(s.records, func(r record) bool { return r.Op == "b1" && r.At > ms(13) })
		},
		"killed before it was told of its grant": func(s *scene) {
			s.records = slices.DeleteFunc(s.records, func(r record) bool { return r.Op == "b1" && r.Kind != kindAcquire })
			s.ledger = s.ledger[:2]
		},
		"a grant that nobody was told of, and that was read": func(s *scene) {
			s.records = append(s.records,
				record{At: ms(2000), Kind: kindAcquire, Op: "d1", Task: "d", Lock: "l"},
				record{At: ms(2001), Kind: kindGet, Op: "g2", Task: "e", Lock: "l"},
				record{At: ms(2002), Kind: kindGot, Op: "g2", Number: 7, Result: resultDone},
				record{At: ms(2003), Kind: kindFailed, Op: "d1"})
		},
		"many tries that failed": func(s *scene) {
			for i := range 1000 {
				op := fmt.Sprint("x", i)
				s.records = append(s.records,
					record{At: ms(2), Kind: kindAcquire, Op: op, Task: op, Lock: "l"}, record{At: ms(2), Kind: kindFailed, Op: op})
			}
		},
		"a release that was not confirmed": func(s *scene) { s.at(kindReleased, "a1").Result = resultUnknown },
		"a write that was not confirmed": func(s *scene) {
			s.at(kindWrote, "b1/0").Result = resultUnknown
			s.ledger = s.ledger[:2]
		},
	} {
		s := goodScene()
		spoil(s)
		if v := s.judge(t); len(v) > 0 {
			t.Errorf("%s: %v", name, v)
		}
	}
}

func TestFileViewSeesAnOverwrittenWrite(t *testing.T) {
	v := fileView{seen: map[string]map[int64]entry{}}
	v.add("chaos/file/a", []entry{{1, 5, "x"}, {2, 5, "y"}})
	v.add("chaos/file/a", []entry{{2, 5, "y"}, {3, 6, "z"}})
	if len(v.wrong) != 0 {
		t.Errorf("%v", v.wrong)
	}
	v.add("chaos/file/a", []entry{{1, 5, "x"}, {2, 5, "late"}})
	if len(v.wrong) != 1 || !strings.Contains(v.wrong[0], "lost update") {
		t.Errorf("%v", v.wrong)
	}
	ledgers := map[string][]entry{}
	v.ledgers(ledgers)
	if got := printLedger(ledgers["chaos/file/a"]); got != "1 5 x\n2 5 late\n3 6 z\n" {
		t.Errorf("%q", got)
	}
	if all, err := parseLedger("1 5 x\n2 5 late\n"); err != nil || len(all) != 2 || all[1] != (entry{2, 5, "late"}) {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := parseLedger("1 5\n"); err == nil {
		t.Error("half a line is accepted")
	}
}
