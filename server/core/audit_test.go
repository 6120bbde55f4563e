package core

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// auditCommands has the record of a call with every field set, and one that
// takes its outcome from the command before.
func auditCommands() []Command {
	return []Command{
		SetVersion{Version: auditVersion},
		Audit{AuditCall{
			Call: "transfer", By: "ann", Credential: "token ann", Peer: "127.0.0.1:5", On: "member b", Outcome: AuditRefused,
			Kind: "unavailable", Reason: TooNew, Count: 3, Told: "2026-01-02T03:04:05Z",
		}},
		End{ID: 77, Operator: true, By: "bob"},
		Audit{AuditCall{Call: "expel", By: "bob", Count: 1}},
	}
}

// auditedState is sampleState at the version that has records, with some.
func auditedState(t testing.TB) *State {
	s := sampleState(t)
	mustApply(t, s, Clock(4*time.Second), auditCommands()...)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAuditsAreBounded: the newest are kept, in the order of the log, also by
// clones that were made before.
func TestAuditsAreBounded(t *testing.T) {
	s := testState()
	do(t, s, "version 2")
	var old *State
	for i := range AuditsKept + 5 {
		quick(t, s, fmt.Sprintf("audit revoke by=n%d outcome=1", i))
		if i == 10 {
			old = s.Clone()
		}
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	all := s.Audits(2 * AuditsKept)
	if len(all) != AuditsKept || all[0].By != "n5" || all[AuditsKept-1].By != fmt.Sprint("n", AuditsKept+4) {
		t.Errorf("%d records, from %q to %q", len(all), all[0].By, all[len(all)-1].By)
	}
	if newest := s.Audits(2); len(newest) != 2 || newest[1].By != all[AuditsKept-1].By {
		t.Errorf("the newest two: %+v", newest)
	}
	if got := old.Audits(100); len(got) != 11 || got[0].By != "n0" {
		t.Errorf("a clone has %d records", len(got))
	}
	reload(t, s)
}

// TestAuditBelowItsVersion: a state at version 1 has no records, and is written
// as ever.
func TestAuditBelowItsVersion(t *testing.T) {
	s := testState()
	before := encoded(t, s)
	r := do(t, s, "audit revoke outcome=1")
	if r.Status != Refused || r.Refusal.Reason != TooNew {
		t.Error(formatResult(r))
	}
	if after := encoded(t, s); before[len(stateMagic)] != 1 || after[len(stateMagic)] != 1 {
		t.Errorf("formats %d and %d", before[len(stateMagic)], after[len(stateMagic)])
	}
	if VersionOf(Audit{}) != 2 {
		t.Error("VersionOf does not know it")
	}
	long := testState()
	do(t, long, "version 2")
	for _, c := range []AuditCall{
		{Call: "x", Count: 1, Outcome: AuditDone, By: strings.Repeat("x", MaxLabel+1)}, {Call: "x", Count: 1, Outcome: AuditDone, On: "a\nb"},
		{Count: 1, Outcome: AuditDone}, {Call: "x", Outcome: AuditDone}, {Call: "x", Count: 1, Outcome: AuditBegun + 1}, {Call: "x", Count: 1},
		{Call: "x", Count: 1, Outcome: AuditDone, Reason: TooNew + 1},
	} {
		if a := mustApply(t, long, 0, Audit{c}); a.Results[0].Status != Refused || len(a.Events) > 0 {
			t.Errorf("%+v: %s", c, formatResult(a.Results[0]))
		}
	}
}
