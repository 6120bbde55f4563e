package wire

import (
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"holdfast/fence"
	"holdfast/wire/holdfastv1"
)

func token(number uint64, mode fence.Mode) fence.Token {
	return fence.Token{Domain: fence.Domain{1, 2}, Incarnation: 7, Lock: "a b/é", Slot: 2, Mode: mode, Number: number}
}

func TestGrantRoundTrip(t *testing.T) {
	for _, c := range []struct {
		number uint64
		token  fence.Token
	}{{33, token(33, fence.Exclusive)}, {35, token(33, fence.Shared)}, {fence.MaxNumber, token(fence.MaxNumber, fence.Exclusive)}} {
		g, err := FromGrant(Grant(c.number, c.token, 0))
		if err != nil || g.Token != c.token || g.ID != FormatID(c.number) {
			t.Errorf("%d: got %+v, %v", c.number, g, err)
		}
	}
}

func TestGrantThatDisagreesWithItsTokenIsRefused(t *testing.T) {
	good := Grant(33, token(33, fence.Exclusive), time.Second)
	if good.GetMaxHoldLeftMs() != 1000 {
		t.Errorf("max hold left %d ms", good.GetMaxHoldLeftMs())
	}
	for name, spoil := range map[string]func(*holdfastv1.Grant){
		"no number":      func(g *holdfastv1.Grant) { g.Number = 0 },
		"another number": func(g *holdfastv1.Grant) { g.Number = 34 },
		"lower number":   func(g *holdfastv1.Grant) { g.Number = 32; g.Shared = true },
		"token number":   func(g *holdfastv1.Grant) { g.TokenNumber = 34 },
		"lock":           func(g *holdfastv1.Grant) { g.Lock = "b" },
		"slot":           func(g *holdfastv1.Grant) { g.Slot = 1 },
		"mode":           func(g *holdfastv1.Grant) { g.Shared = true },
		"bare token":     func(g *holdfastv1.Grant) { g.Token = "33" },
		"no token":       func(g *holdfastv1.Grant) { g.Token = "" },
		"revocation":     func(g *holdfastv1.Grant) { g.Token = token(33, fence.Revocation).String() },
	} {
		g := proto.CloneOf(good)
		spoil(g)
		if got, err := FromGrant(g); err == nil {
			t.Errorf("%s: accepted as %+v", name, got)
		}
	}
	if _, err := FromGrant(nil); err == nil {
		t.Error("no grant: accepted")
	}
}

func TestSecret(t *testing.T) {
	good := strings.Repeat("0a", 32)
	s, err := ParseSecret(good)
	if err != nil || s.String() != good {
		t.Fatalf("got %v, %v", s, err)
	}
	for _, bad := range []string{"", "0a", strings.Repeat("0A", 32), strings.Repeat("0g", 32), good + "00", strings.Repeat("00", 32), strings.Repeat("é", 32)} {
		_, err := ParseSecret(bad)
		if err == nil {
			t.Errorf("%q: accepted", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats the secret: %v", err)
		}
	}
}

func TestMillisecondsNeverWrap(t *testing.T) {
	if Millis(-time.Second) != 0 || MillisUp(-1) != 0 || MillisUp(1) != 1 || Millis(time.Millisecond-1) != 0 || MillisUp(time.Millisecond) != 1 {
		t.Error("rounding")
	}
	if FromMillis(math.MaxUint64) != math.MaxInt64 || FromMillis(1500) != 1500*time.Millisecond {
		t.Error("saturation")
	}
	if _, ok := ParseID("007"); ok {
		t.Error("007 is no canonical ID")
	}
}

func TestJSONIsStrict(t *testing.T) {
	var m holdfastv1.AcquireRequest
	for _, bad := range []string{``, ` `, `[]`, `null x`, `{"nme":"x"}`, `{"lock":"a","lock":"b"}`, `{"wait_ms":"5","waitMs":"6"}`, `{"wait_ms":-1}`, `{"wait_ms":1.5}`, `{"wait_ms":"18446744073709551616"}`, `{"limit":4294967296}`, `{"shared":"yes"}`, `{"lock":"a"} {"lock":"b"}`, `{"lock":"\ud800"}`} {
		if err := UnmarshalJSON([]byte(bad), &m); err == nil {
			t.Errorf("%s: accepted as %v", bad, &m)
		}
	}
	if err := UnmarshalJSON([]byte(`{"lock":"a","wait_ms":"5","oncePerMs":6}`), &m); err != nil || m.GetWaitMs() != 5 || m.GetOncePerMs() != 6 {
		t.Errorf("got %v, %v", &m, err)
	}
	out, err := MarshalJSON(&holdfastv1.PutResponse{Revision: math.MaxUint64})
	if err != nil || string(out) != `{"revision":"18446744073709551615"}` {
		t.Errorf("got %s, %v", out, err)
	}
}

func FuzzRequestJSON(f *testing.F) {
	f.Add([]byte(`{"session":{"id":"1","secret":"00"},"request":{"lane":0,"n":"1"},"lock":"a","waitMs":"5"}`))
	f.Add([]byte(`{"frames":[{"id":"1","keepAlives":{"sessionIds":["1"]}},{"id":"2","acquire":{"lock":"é"}}]}`))
	f.Add([]byte(`{"value":"AAA=","if_revision":"0"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range []proto.Message{&holdfastv1.AcquireRequest{}, &holdfastv1.PutRequest{}, &holdfastv1.SessionRequest{}} {
			if UnmarshalJSON(data, m) != nil {
				continue
			}
			out, err := MarshalJSON(m)
			if err != nil {
				t.Fatalf("read but not written: %v", err)
			}
			again := m.ProtoReflect().New().Interface()
			if err := UnmarshalJSON(out, again); err != nil || !proto.Equal(m, again) {
				t.Fatalf("%s became %v (%v)", data, again, err)
			}
		}
	})
}
