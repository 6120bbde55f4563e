package server

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// Bad input is refused with a text that says what is allowed, and nothing else
// changes: not the revision, not the counter, not the sessions.
func TestBadInputSaysWhatIsAllowed(t *testing.T) {
	w := start(t)
	a := w.open("a", time.Minute)
	g := a.acquire("held")
	token, _ := fence.ParseToken(g.GetToken())
	foreign, burnt, other := token, token, token
	foreign.Domain[3]++
	burnt.Mode = fence.Revocation
	other.Lock = "other"
	me := fmt.Sprintf(`"session":{"id":"%d","secret":"%s"}`, a.ref.GetId(), a.ref.GetSecret())
	lane := `"request":{"lane":5,"n":"1"}`
	before, sessions := w.node.Status(), len(w.sessions())
	for _, c := range badInput(me, lane, a.ref.GetSecret(), g.GetToken(), foreign.String(), burnt.String(), other.String()) {
		status, body := w.json(c.method, c.body)
		if status != 400 || !strings.Contains(body, `"invalid_argument"`) || !strings.Contains(body, c.says) {
			t.Errorf("%s %.120s: %d %.300s, want a text with %q", c.method, c.body, status, body, c.says)
		}
		if strings.Contains(body, a.ref.GetSecret()) {
			t.Errorf("%s: the answer has the secret: %s", c.method, body)
		}
	}
	after := w.node.Status()
	if after.Revision != before.Revision || after.LastNumber != before.LastNumber || after.Locks != before.Locks || len(w.sessions()) != sessions {
		t.Errorf("something changed: before %+v, after %+v", before, after)
	}
	// Exactly the limits pass.
	for _, body := range []string{
		`{"ttlMs":1000,"label":"` + strings.Repeat("é", 128) + `","host":"` + strings.Repeat("h", 256) + `"}`, `{"ttlMs":86400000}`,
	} {
		if status, answer := w.json("OpenSession", body); status != 200 {
			t.Errorf("at the limit: %d %s", status, answer)
		}
	}
	longest := `"lock":"` + strings.Repeat("é", 256) + `"`
	if status, answer := w.json("Acquire", `{`+me+`,`+lane+`,`+longest+`,"lockDelayMs":"34560000000","maxHoldMs":"34560000000","oncePerMs":"34560000000","retryFailed":true,"value":"`+strings.Repeat("AAAA", 1365)+`"}`); status != 200 {
		t.Errorf("at the limit: %d %s", status, answer)
	}
}

// badCall is a call that must be refused, and a part of the text that says why.
type badCall struct{ method, body, says string }

func badInput(me, lane, secret, token, foreign, burnt, other string) []badCall {
	return append(badSessionsAndAcquires(me, lane, secret), []badCall{
		{"Cancel", `{` + me + `}`, "request is missing"},
		{"Cancel", `{` + me + `,"request":{"lane":5,"n":"9223372036854775808"}}`, "want 1 … 9223372036854775807"},
		{"Acquire", `{` + me + `,"request":{"lane":5,"n":"18446744073709551615"},"lock":"x"}`, "request.n is 18446744073709551615"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"a\u200bb"}`, "U+200B"},
		{"Put", `{"lock":"a\u2028"}`, "U+2028"},
		{"Release", `{` + me + `,"grant":"9223372036854775807"}`, "number 9223372036854775807: the last one given out is"},
		{"Release", `{` + me + `}`, "grant is missing"},
		{"Release", `{` + me + `,"grant":"9223372036854775808"}`, "at most 9223372036854775807"},
		{"Put", `{"lock":""}`, "lock name is empty"},
		{"Put", `{"lock":"x","value":"` + strings.Repeat("AAAA", 1366) + `"}`, "at most 4096"},
		{"Put", `{"lock":"x","bind":true}`, "bind needs session"},
		{"Put", `{"lock":"x",` + lane + `}`, "request needs session"},
		{"Put", `{"lock":"x",` + me + `}`, "request is missing"},
		{"Put", `{"lock":"held","token":"33"}`, "not a fencing token"},
		{"Put", `{"lock":"held","token":"` + foreign + `"}`, "another lock service"},
		{"Put", `{"lock":"held","token":"` + burnt + `"}`, "revocation token"},
		{"Put", `{"lock":"held","token":"` + other + `"}`, `want a token of lock \"held\"`},
		{"Delete", `{"lock":"held","token":"x"}`, "not a fencing token"},
		{"Delete", `{}`, "lock name is empty"},
		{"GetLock", `{}`, "lock name is empty"},
		{"GetLock", `{"lock":"x","queueLimit":1001}`, "want 1 … 1000"},
		{"ListLocks", `{"pageSize":1001}`, "want 1 … 1000"},
		{"ListLocks", `{"pageToken":"*"}`, "next_page_token"},
		{"ListLocks", `{"prefix":"` + strings.Repeat("a", 513) + `"}`, "at most 512"},
		{"ListLocks", `{"prefix":"\u0000"}`, "control character"},
		{"ListSessions", `{"pageSize":4000000000}`, "want 1 … 1000"},
		{"ListSessions", `{"pageToken":"x"}`, "next_page_token"},
		{"ListSessions", `{"pageToken":"007"}`, "next_page_token"},
		{"Poll", `{"lock":"a","prefix":"b"}`, "exclude each other"},
		{"Poll", `{"waitMs":60001}`, "want 0 … 60000"},
		{"RevokeGrant", `{"lock":"held"}`, "grant is missing"},
		{"RevokeGrant", `{"grant":"1"}`, "lock name is empty"},
		{"RevokeGrant", `{"lock":"held","grant":"1","by":"` + strings.Repeat("b", 257) + `"}`, "want at most 256"},
		{"ExpelSession", `{}`, "session_id is 0"},
		{"ExpelSession", `{"sessionId":"1","by":"a\u0007"}`, "control character"},
		{"ReportRefusal", `{}`, "needs gate and a token"},
		{"ReportRefusal", `{"gate":"g","offered":"34"}`, "offered: "},
		{"ReportRefusal", `{"gate":"g","seen":"` + token + ` "}`, "seen: "},
		{"ReportRefusal", `{"gate":"` + strings.Repeat("g", 257) + `","seen":"` + token + `"}`, "want at most 256"},
	}...)
}

func badSessionsAndAcquires(me, lane, secret string) []badCall {
	return []badCall{
		{"OpenSession", `{"ttlMs":999}`, "want 1000 … 86400000"},
		{"OpenSession", `{"ttlMs":"86400001"}`, "want 1000 … 86400000"},
		{"OpenSession", `{"ttlMs":"18446744073709551615"}`, "want 1000 … 86400000"},
		{"OpenSession", `{"ttlMs":-1}`, "field ttlMs is -1: want a whole number of milliseconds"},
		{"OpenSession", `{"ttlMs":1.5}`, "field ttlMs is 1.5: want a whole number"},
		{"OpenSession", `{"label":"` + strings.Repeat("l", 257) + `"}`, "want at most 256"},
		{"OpenSession", `{"label":"a\u001b[2J"}`, "control character U+001B"},
		{"OpenSession", `{"host":"a\nb"}`, "control character U+000A"},
		{"OpenSession", `{"host":"a\u0085b"}`, "control character U+0085"},
		{"OpenSession", `{"label":"\ud800"}`, "invalid"},
		{"OpenSession", `{"secret":"00"}`, "want 64 lower-case hexadecimal digits"},
		{"OpenSession", `{"secret":"` + strings.Repeat("0", 64) + `"}`, "drawn at random"},
		{"OpenSession", `{"secret":"` + strings.Repeat("AB", 32) + `"}`, "lower-case"},
		{"OpenSession", `{"instance":"AAAA"}`, "want 16"},
		{"OpenSession", `{"instance":"!"}`, "invalid"},
		{"KeepAlive", `{}`, "session is missing"},
		{"KeepAlive", `{"session":{}}`, "session.id is missing"},
		{"KeepAlive", `{"session":{"id":"1"}}`, "want 64"},
		{"KeepAlive", `{"session":{"id":"9223372036854775808","secret":"` + secret + `"}}`, "at most 9223372036854775807"},
		{"Acquire", `{` + me + `,` + lane + `}`, "lock name is empty: want 1–512 bytes"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"` + strings.Repeat("a", 513) + `"}`, "513 bytes: want 1–512"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"a\u0000b"}`, "control character"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"a\u007fb"}`, "control character"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"e\u0301"}`, "normal form C"},
		{"Acquire", `{` + me + `,"lock":"x"}`, "request is missing"},
		{"Acquire", `{` + me + `,"request":{"lane":0},"lock":"x"}`, "n is 0"},
		{"Acquire", `{` + me + `,"request":{"lane":-1,"n":1},"lock":"x"}`, "invalid"},
		{"Acquire", `{` + me + `,"request":{"lane":4294967296,"n":1},"lock":"x"}`, "invalid"},
		{"Acquire", `{"request":{"n":1},"lock":"x"}`, "session is missing"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","waitMs":"86400001"}`, "want 0 … 86400000"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","waitMs":1,"waitForever":true}`, "exclude each other"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","shared":true,"limit":2}`, "exclude each other"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","limit":10001}`, "at most 10000"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","retryFailed":true}`, "needs once_per_ms"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","lockDelayMs":"34560000001"}`, "want 0 … 34560000000"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","oncePerMs":"18446744073709551615"}`, "want 0 … 34560000000"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","maxHoldMs":"34560000001"}`, "want 0 … 34560000000"},
		{"Acquire", `{` + me + `,` + lane + `,"lock":"x","value":"` + strings.Repeat("AAAA", 1366) + `"}`, "at most 4096"},
	}
}

// Every kind of refusal that core has, and every error of the node, has its
// place on the wire.
func TestEveryRefusalHasAKind(t *testing.T) {
	for r := core.Busy; r <= core.TooNew; r++ {
		e := classify(at{clock: 100}.refused(&core.Refusal{Reason: r, Msg: "why", Lock: "x", OpensAt: 50, Holder: &core.Holder{Grant: core.Grant{Number: 3, Lock: "x", Since: 200}}}))
		if e.Kind == driver.Internal || e.Outcome != driver.No || e.OpensIn != 0 || e.Holder.Held != 0 {
			t.Errorf("reason %d: %+v", r, e)
		}
	}
	if e := classify(at{}.refused(&core.Refusal{Reason: 200})); e.Kind != driver.Internal || e.Outcome != driver.No {
		t.Errorf("unknown reason: %+v", e)
	}
	for _, c := range []struct {
		err     error
		kind    driver.Kind
		outcome driver.Outcome
	}{
		{&NotLeaderError{Addr: "b:1", Term: 4}, driver.Unavailable, driver.No},
		{ErrOverloaded, driver.Overloaded, driver.No},
		{ErrUnknownOutcome, driver.Unavailable, driver.Unknown},
		{fmt.Errorf("%w: %w", ErrStopped, ErrUnknownOutcome), driver.Unavailable, driver.Unknown},
		{fmt.Errorf("%w: %w", ErrPoisoned, ErrUnknownOutcome), driver.Unavailable, driver.Unknown},
		{ErrStopped, driver.Unavailable, driver.No},
		{ErrPoisoned, driver.Unavailable, driver.No},
		{ErrReplaced, driver.Unavailable, driver.Unknown},
		{ErrSessionLost, driver.SessionLost, driver.No},
		{ErrCompacted, driver.NotFound, driver.No},
		{fmt.Errorf("what is this"), driver.Internal, driver.Unknown},
	} {
		if e := classify(fmt.Errorf("call: %w", c.err)); e.Kind != c.kind || e.Outcome != c.outcome {
			t.Errorf("%v: %v, %v", c.err, e.Kind, e.Outcome)
		}
	}
	away := wire.RemoteOf(classify(&NotLeaderError{Addr: "b:1", Term: 4}))
	if addr, term := away.Leader(); addr != "b:1" || term != 4 {
		t.Errorf("leader %q, term %d", addr, term)
	}
}

func TestEveryNameHasItsWord(t *testing.T) {
	for k := core.EventOpened; k <= core.EventAudit; k++ {
		if eventKinds[k] == "" {
			t.Errorf("event kind %d has no name", k)
		}
	}
	for c := core.CauseReleased; c <= core.CauseEpoch; c++ {
		if causes[c] == "" {
			t.Errorf("cause %d has no name", c)
		}
	}
}

// Operators without credentials must be on this machine.
func TestOperatorsAreOnThisMachine(t *testing.T) {
	for addr, here := range map[string]bool{
		"127.0.0.1:5": true, "[::1]:5": true, "127.9.9.9:1": true, "[::ffff:127.0.0.1]:5": true,
		"192.0.2.1:5": false, "[2001:db8::1]:5": false, "": false, "localhost:1": false, "127.0.0.1": false,
	} {
		if fromHere(addr) != here {
			t.Errorf("%q: %v", addr, !here)
		}
	}
}

// A page of a list ends before a frame is full, and goes on where it ended.
func TestListsEndTheirPagesInTime(t *testing.T) {
	w := start(t)
	call := w.callers()["connect"]
	value := make([]byte, core.MaxValue)
	var want []string
	for i := range 40 {
		name := fmt.Sprintf("%03d/%s", i, strings.Repeat("n", 500))
		want = append(want, name)
		ok(t, call, "Put", &holdfastv1.PutRequest{Lock: name, Value: value}, &holdfastv1.PutResponse{})
	}
	for _, size := range []uint32{0, 7, 39, 40, 41} {
		var got []string
		req := &holdfastv1.ListLocksRequest{PageSize: size}
		for {
			res := ok(t, call, "ListLocks", req, &holdfastv1.ListLocksResponse{})
			if proto.Size(res) > wire.MaxFrame || (size > 0 && len(res.GetLocks()) > int(size)) {
				t.Fatalf("a page of %d bytes, %d locks", proto.Size(res), len(res.GetLocks()))
			}
			for _, l := range res.GetLocks() {
				got = append(got, l.GetName())
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %d locks", size, len(got))
		}
	}
	for i := range 5 {
		w.open(fmt.Sprint(i), time.Minute)
	}
	req, seen := &holdfastv1.ListSessionsRequest{PageSize: 2}, map[uint64]bool{}
	for {
		res := ok(t, call, "ListSessions", req, &holdfastv1.ListSessionsResponse{})
		for _, s := range res.GetSessions() {
			seen[s.GetId()] = true
		}
		if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d sessions in pages of 2", len(seen))
	}
}

func TestTooManySessionsAreRetryablyBusy(t *testing.T) {
	w := start(t, func(c *Config) { c.MaxSessions = 2 })
	w.open("a", time.Minute)
	w.open("b", time.Minute)
	e := refusedAs(t, w.callers()["grpc-go"], "OpenSession", &holdfastv1.OpenSessionRequest{}, driver.Overloaded)
	if !strings.Contains(e.Error(), "2") {
		t.Errorf("%v does not say how many are allowed", e)
	}
}
