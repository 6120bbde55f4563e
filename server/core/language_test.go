package core

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The language of the transcripts: one command a line.

// parseCommand reads one line. Words are separated by spaces; key=value words
// and flags may stand in any order after the others.
func parseCommand(line string) (c Command, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%q: %v", line, r)
		}
	}()
	words := strings.Fields(line)
	a := arguments{named: map[string]string{}}
	for _, w := range words[1:] {
		if key, value, ok := strings.Cut(w, "="); ok {
			a.named[key] = value
		} else {
			a.plain = append(a.plain, w)
		}
	}
	c = a.command(words[0])
	if len(a.plain) > 0 || len(a.named) > 0 {
		return nil, fmt.Errorf("%q: what is %v %v", line, a.plain, a.named)
	}
	return c, nil
}

type arguments struct {
	plain []string
	named map[string]string
}

func (a *arguments) word() string {
	w := a.plain[0]
	a.plain = a.plain[1:]
	return w
}

func (a *arguments) flag(name string) bool {
	for i, w := range a.plain {
		if w == name {
			a.plain = append(a.plain[:i:i], a.plain[i+1:]...)
			return true
		}
	}
	return false
}

func (a *arguments) text(name string) string {
	v := a.named[name]
	delete(a.named, name)
	return v
}

func (a *arguments) number(name string) uint64 {
	if _, ok := a.named[name]; !ok {
		return 0
	}
	return parseNumber(a.text(name))
}

func (a *arguments) duration(name string) time.Duration {
	if _, ok := a.named[name]; !ok {
		return 0
	}
	d, err := time.ParseDuration(a.text(name))
	if err != nil {
		panic(err)
	}
	return d
}

func (a *arguments) value(name string) []byte {
	if _, ok := a.named[name]; !ok {
		return nil
	}
	return []byte(a.text(name))
}

func (a *arguments) session() SessionID { return SessionID(parseNumber(a.word())) }

func (a *arguments) request() Request {
	lane, n, _ := strings.Cut(a.word(), "/")
	return Request{Lane: uint32(parseNumber(lane)), N: parseNumber(n)}
}

// parseNumber reads a decimal number, or EPOCH:COUNTER, with or without #.
func parseNumber(s string) uint64 {
	s = strings.TrimPrefix(s, "#")
	epoch, counter, ok := strings.Cut(s, ":")
	if !ok {
		epoch, counter = "0", s
	}
	e, err1 := strconv.ParseUint(epoch, 10, 15)
	n, err2 := strconv.ParseUint(counter, 10, 64)
	if err1 != nil || err2 != nil {
		panic("bad number " + s)
	}
	return e<<epochShift + n
}

func formatNumber(n uint64) string {
	if e := n >> epochShift; e != 0 {
		return fmt.Sprintf("%d:%d", e, n&MaxCounter)
	}
	return strconv.FormatUint(n, 10)
}

func testSecret(text string) [32]byte { return sha256.Sum256([]byte(text)) }

func (a *arguments) command(verb string) Command {
	switch verb {
	case "open":
		id := a.session()
		secret := a.text("secret")
		if secret == "" {
			secret = strconv.Itoa(int(id))
		}
		o := Open{ID: id, SecretHash: testSecret(secret), TTL: a.duration("ttl"), Label: a.text("label"), Host: a.text("host")}
		if o.TTL == 0 {
			o.TTL = 10 * time.Second
		}
		return o
	case "end":
		return End{ID: a.session(), Operator: a.flag("operator"), By: a.text("by")}
	case "suspect":
		s := Suspect{Since: Clock(a.duration("since"))}
		for len(a.plain) > 0 {
			s.Sessions = append(s.Sessions, a.session())
		}
		return s
	case "clear":
		var c Clear
		for len(a.plain) > 0 {
			c.Sessions = append(c.Sessions, a.session())
		}
		return c
	case "expire":
		return Expire{ID: a.session(), Since: Clock(a.duration("since"))}
	case "tick":
		return Tick{}
	case "raise-epoch":
		r := RaiseEpoch{Epoch: uint16(parseNumber(a.word())), Incarnation: a.number("incarnation")}
		if d := a.text("domain"); d != "" {
			copy(r.NewDomain[:], d)
		}
		return r
	case "version":
		return SetVersion{Version: uint32(parseNumber(a.word()))}
	case "members":
		return a.members()
	case "audit":
		c := Audit{AuditCall{Call: a.word(), By: a.text("by"), On: a.text("on"), Credential: a.text("credential"), Count: 1, Told: a.text("told")}}
		c.Outcome, c.Reason = AuditOutcome(a.number("outcome")), Reason(a.number("reason"))
		if _, ok := a.named["count"]; ok {
			c.Count = uint32(a.number("count"))
		}
		return c
	}
	return a.lockCommand(verb)
}

func (a *arguments) members() Command {
	var m Members
	for _, id := range strings.FieldsFunc(a.text("removed"), func(r rune) bool { return r == ',' }) {
		m.Removed = append(m.Removed, parseNumber(id))
	}
	for len(a.plain) > 0 {
		name := a.word()
		m.Members = append(m.Members, Member{ID: parseNumber(name), Name: "n" + name})
	}
	return m
}

func (a *arguments) lockCommand(verb string) Command {
	switch verb {
	case "acquire":
		return Acquire{
			Session: a.session(), Request: a.request(), Lock: a.word(),
			Shared: a.flag("shared"), Try: a.flag("try"), Limit: uint32(a.number("limit")), Value: a.value("value"),
			LockDelay: a.duration("delay"), OncePer: a.duration("once"), RetryFailed: a.flag("retry-failed"), MaxHold: a.duration("max"),
		}
	case "cancel":
		return Cancel{Session: a.session(), Request: a.request()}
	case "release":
		return Release{Session: a.session(), Grant: parseNumber(a.word()), Failed: a.flag("failed")}
	case "revoke":
		r := Revoke{Lock: a.word(), Grant: parseNumber(a.word()), Now: a.flag("now"), Free: a.flag("free"), Cause: ByOperator, By: a.text("by")}
		if a.flag("max-hold") {
			r.Cause = ByMaxHold
		}
		return r
	case "reopen":
		return Reopen{Lock: a.word(), Closing: Revision(a.number("closing"))}
	case "put":
		p := Put{Lock: a.word(), Value: a.value("value"), Bind: a.flag("bind"), Token: a.number("token")}
		p.Session, p.Request = a.optionalRequest()
		_, p.Conditional = a.named["if"]
		p.IfRevision = Revision(a.number("if"))
		return p
	case "delete":
		d := Delete{Lock: a.word(), Token: a.number("token")}
		d.Session, d.Request = a.optionalRequest()
		_, d.Conditional = a.named["if"]
		d.IfRevision = Revision(a.number("if"))
		return d
	}
	panic("no such command")
}

// optionalRequest reads by=SESSION/LANE/N.
func (a *arguments) optionalRequest() (SessionID, Request) {
	session, rest, ok := strings.Cut(a.text("by"), "/")
	if !ok {
		return 0, Request{}
	}
	r := arguments{plain: []string{rest}}
	return SessionID(parseNumber(session)), r.request()
}

// tester is what *testing.T and *rapid.T have in common.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// mustApply applies commands as one entry at the next index, through the
// entry's encoding, and checks the state.
func mustApply(t tester, s *State, clock Clock, cmds ...Command) Applied {
	t.Helper()
	data, err := EncodeEntry(Header{Clock: clock}, cmds)
	if err != nil {
		t.Fatal(err)
	}
	e, err := DecodeEntry(s.Index()+1, 1, data)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Apply(e)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// do applies lines, each as an entry of its own, and returns what the last
// one answered.
func do(t testing.TB, s *State, lines ...string) Result {
	t.Helper()
	var r Result
	for _, line := range lines {
		r = doAll(t, s, line).Results[0]
	}
	return r
}

// quick is do without looking at the whole state after each line.
func quick(t testing.TB, s *State, lines ...string) Result {
	t.Helper()
	var r Result
	for _, line := range lines {
		c, err := parseCommand(line)
		if err != nil {
			t.Fatal(err)
		}
		r = mustApply(t, s, 0, c).Results[0]
	}
	return r
}

// doAll applies lines as one entry, checks the state, and returns all of it.
func doAll(t testing.TB, s *State, lines ...string) Applied {
	t.Helper()
	var cmds []Command
	for _, line := range lines {
		c, err := parseCommand(line)
		if err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, c)
	}
	a := mustApply(t, s, 0, cmds...)
	if err := s.Check(); err != nil {
		t.Fatalf("after %q: %v", lines, err)
	}
	return a
}

// testState is a new state for tests.
func testState() *State {
	return New(Config{Domain: [16]byte{0xd0}, Incarnation: 7, Members: []Member{{ID: 1, Name: "n1"}}})
}

// reload returns the state that its own encoding gives.
func reload(t tester, s *State) *State {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	back, err := Decode(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if back.Hash() != s.Hash() {
		t.Fatal("decode(encode(s)) has another hash than s")
	}
	return back
}
