package fencetest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/fence"
	"holdfast/fence/fencetest"
)

func harness(fault string) fencetest.Harness {
	return fencetest.Harness{
		New:      func(fencetest.T) fencetest.Resource { return newModel(fault) },
		ArmBound: time.Second,
	}
}

func sortMarks(ms []fence.Mark) {
	slices.SortFunc(ms, func(a, b fence.Mark) int {
		return strings.Compare(fmt.Sprint(a.Token.Domain, a.Token.Slot), fmt.Sprint(b.Token.Domain, b.Token.Slot))
	})
}

// A gate that is right passes.
func TestRightGatePasses(t *testing.T) {
	fencetest.Run(t, harness(""))
}

// Each way to be wrong is caught by the check that is there for it.
func TestBrokenGatesAreCaught(t *testing.T) {
	for fault, check := range map[string]string{
		"checks, then writes":            "StopInFinalStep",
		"arms without draining":          "StopInFinalStep",
		"waits for ever":                 "StopInFinalStep",
		"does not name who blocks":       "StopInFinalStep",
		"runs the work inside the step":  "StopInside",
		"judges before the work only":    "StopInside",
		"refuses equal":                  "EqualIsAccepted",
		"reports what it accepts":        "EqualIsAccepted",
		"writes twice":                   "EqualIsAccepted",
		"rollback lowers the mark":       "FailedWritesKeepTheMark",
		"refusal lowers the mark":        "OrderOfVerdicts",
		"swaps the tokens":               "OrderOfVerdicts",
		"stale before shape":             "OrderOfVerdicts",
		"shared before stale":            "OrderOfVerdicts",
		"ignores locks":                  "OrderOfVerdicts",
		"does not report":                "OrderOfVerdicts",
		"reports twice":                  "OrderOfVerdicts",
		"reports the wrong use":          "OrderOfVerdicts",
		"lets the last but one pass":     "OrderOfVerdicts",
		"ignores domains":                "DomainIsPinned",
		"orders all domains":             "DomainIsPinned",
		"ignores incarnations":           "CasebookC45_EqualNumberOfAnotherIncarnation",
		"forgets on reopen":              "MarkSurvivesReopen",
		"compares as float64":            "LargeNumbers",
		"compares as text":               "LargeNumbers",
		"compares 32 bits":               "LargeNumbers",
		"compares signed 32 bits":        "LargeNumbers",
		"compares the counter only":      "LargeNumbers",
		"arms only with data":            "CasebookC46_ArmWithoutData",
		"accepts shared":                 "SharedRefused",
		"never accepts shared":           "SharedAllowed",
		"revocation tokens write":        "Revocation",
		"revocation tokens do not arm":   "Revocation",
		"one mark for all slots":         "Slots",
		"ignores the limit of slots":     "Slots",
		"accepts no token":               "MalformedIsRefused",
		"accepts any lock name":          "LockNames",
		"folds lock names":               "LockNames",
		"ignores the configured domain":  "DomainConfigured",
		"move ignores the expected mark": "MoveRefused",
		"move ignores the active domain": "MoveRace",
		"move takes any token":           "Move",
		"move forgets on return":         "Move",
		"move drops the old mark":        "Move",
		"ignores cancelled contexts":     "CancelledContext",
		"first use is not atomic":        "CasebookC48_FirstUseRace",
		"writes do not raise":            "FirstWritePins",
		"writes do not pin":              "FirstWritePins",
		"equal changes when it rose":     "RaisedAt",
	} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			if said := fencetest.Try(t, harness(fault), check); said == "" {
				t.Fatalf("%s passes a gate that %s", check, fault)
			} else {
				t.Log(said)
			}
		})
	}
}

// Faults that only a storm or a crowd would show are caught by these too.
func TestStormSeesBrokenGates(t *testing.T) {
	for _, fault := range []string{"lets the last but one pass", "writes do not raise", "writes twice"} {
		if said := fencetest.Try(t, harness(fault), "Storm"); said == "" {
			t.Errorf("the storm passes a gate that %s", fault)
		}
	}
	if said := fencetest.Try(t, harness("refuses equal"), "CrowdDoesNotStarveARaise"); said == "" {
		t.Error("the crowd passes a gate that refuses equal tokens")
	}
	for _, check := range []string{"ArmBeforeRead", "CasebookC01_PausedHolderWritesAfterExpiry"} {
		if said := fencetest.Try(t, harness("lets the last but one pass"), check); said == "" {
			t.Errorf("%s passes a gate that lets the last token but one pass", check)
		}
	}
}

func TestHarnessIsChecked(t *testing.T) {
	if said := fencetest.Try(t, fencetest.Harness{}, "Storm"); !strings.Contains(said, "ArmBound") {
		t.Errorf("a harness without ArmBound got %q", said)
	}
}
