package driver

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestKindNamesRoundTrip(t *testing.T) {
	seen := map[string]bool{}
	for k := Internal; k <= Stale; k++ {
		name := k.String()
		if name == "" || seen[name] || ParseKind(name) != k {
			t.Errorf("kind %d is called %q, which parses as %v", k, name, ParseKind(name))
		}
		seen[name] = true
	}
	if k := ParseKind("kind of a later version"); k != Internal {
		t.Errorf("an unknown kind is %v, want internal", k)
	}
}

// TestUnclassifiedErrorsClaimNothing: what nobody classified may have happened.
func TestUnclassifiedErrorsClaimNothing(t *testing.T) {
	plain := errors.New("boom")
	if KindOf(plain) != Internal || OutcomeOf(plain) != Unknown || OutcomeOf(&Error{}) != Unknown {
		t.Errorf("%v, %v", KindOf(plain), OutcomeOf(plain))
	}
	err := fmt.Errorf("wrapped: %w", &Error{Kind: Busy, Outcome: No, Err: plain})
	if KindOf(err) != Busy || OutcomeOf(err) != No || !errors.Is(err, plain) {
		t.Errorf("%v, %v", KindOf(err), OutcomeOf(err))
	}
}

func TestErrorNamesTheHolder(t *testing.T) {
	for _, c := range []struct {
		h    Holder
		want string
	}{
		{Holder{Label: "billing", Host: "db7"}, `held by "billing" on db7 for 1.5s (grant 33), 4 waiting`},
		{Holder{Label: "billing"}, `held by "billing" for`},
		{Holder{Host: "db7"}, "held by a client on db7 for"},
		{Holder{Session: "81"}, "held by session 81 for"},
	} {
		c.h.GrantNumber, c.h.Held = 33, 1500*time.Millisecond
		e := &Error{Kind: Busy, Msg: "the lock is held", Holder: &c.h, Waiters: 4}
		if text := e.Error(); !strings.HasPrefix(text, "the lock is held; ") || !strings.Contains(text, c.want) {
			t.Errorf("%q does not say %q", text, c.want)
		}
	}
	if text := (&Error{Kind: Busy}).Error(); text != "busy" {
		t.Errorf("an error without a text says %q", text)
	}
}
