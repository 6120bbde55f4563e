package fence_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"holdfast/fence"

	"pgregory.net/rapid"
)

var (
	domainA = fence.Domain{0x0b, 0xad, 15: 0x7f}
	domainB = fence.Domain{0xff}
)

const (
	hexA  = "0bad000000000000000000000000007f"
	textA = "33@" + hexA + ".00000000000000a1.x0.invoices"
)

func token(number uint64, changes ...func(*fence.Token)) fence.Token {
	t := fence.Token{Domain: domainA, Incarnation: 0xa1, Lock: "invoices", Mode: fence.Exclusive, Number: number}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func TestTokenText(t *testing.T) {
	at := "@" + hexA + ".00000000000000a1."
	for text, want := range map[string]fence.Token{
		textA: token(33),
		"9223372036854775807" + at + "s4294967295.invoices": token(math.MaxInt64, func(t *fence.Token) { t.Mode, t.Slot = fence.Shared, math.MaxUint32 }),
		"9007199254740993" + at + "r7.invoices":             token(9007199254740993, func(t *fence.Token) { t.Mode, t.Slot = fence.Revocation, 7 }),
		"1" + at + "x0.a.b/c-d_e~F9":                        token(1, func(t *fence.Token) { t.Lock = "a.b/c-d_e~F9" }),
		"1" + at + "x0.a%20b%25c%22%2C%3B%3D%40":            token(1, func(t *fence.Token) { t.Lock = `a b%c",;=@` }),
		"1" + at + "x0.%C3%BC%F0%9F%94%92":                  token(1, func(t *fence.Token) { t.Lock = "ü🔒" }),
		"1" + at + "x0....":                                 token(1, func(t *fence.Token) { t.Lock = "..." }),
		"1" + at + "x0." + strings.Repeat("%C3%BC", 256):    token(1, func(t *fence.Token) { t.Lock = strings.Repeat("ü", 256) }),
	} {
		if got := want.String(); got != text {
			t.Errorf("String gives %q, want %q", got, text)
		}
		if got, err := fence.ParseToken(text); err != nil || got != want {
			t.Errorf("ParseToken(%q) gives %+v, %v; want %+v", text, got, err, want)
		}
		if len(text) > fence.MaxTokenText {
			t.Errorf("%q has %d bytes, MaxTokenText is %d", text, len(text), fence.MaxTokenText)
		}
	}
	longest := token(fence.MaxNumber, func(t *fence.Token) { t.Slot, t.Lock = math.MaxUint32, strings.Repeat("%", fence.MaxLockName) })
	if got := len(longest.String()); got != fence.MaxTokenText {
		t.Errorf("the longest token has %d bytes, MaxTokenText is %d", got, fence.MaxTokenText)
	}
}

// hostile are texts that are no token, however close they come.
var hostile = func() []string {
	tail := strings.TrimPrefix(textA, "33")
	all := []string{
		"", "33", "5", "+5", "0x5", "5 ", " 5", "-5", "5.0", "1e3", "0", "null", "x", "@", "33@", "@" + hexA,
		"9223372036854775808", "18446744073709551616",
		" " + textA, textA + " ", textA + "\n", textA + "\x00", "\ufeff" + textA, "\"" + textA + "\"",
		textA + "," + textA, textA + "%", textA + "%2", textA + "%zz", textA + "%+1",
		textA + "%20%", textA + "%6", textA + "%61", textA + "%c3%bc", textA + "ü", textA + " x", textA + "\"", textA + "+", textA + "@",
		textA + "%00", textA + "%0A", textA + "%7F", textA + "%C2%85", textA + "%FF", textA + "%C3",
		strings.ToUpper(textA), strings.Replace(textA, "0bad", "0BAD", 1), strings.Replace(textA, "00a1", "00A1", 1),
		strings.Replace(textA, "00a1", "0a1", 1), strings.Replace(textA, "00a1", "000a1", 1), strings.Replace(textA, "00000000000000a1", "+0000000000000a1", 1),
		strings.Replace(textA, "00000000000000a1", "0x000000000000a1", 1), strings.Replace(textA, "00000000000000a1", "_0000000000000a1", 1),
		strings.Replace(textA, ".x0.", ".x00.", 1), strings.Replace(textA, ".x0.", ".x.", 1), strings.Replace(textA, ".x0.", ".0.", 1),
		strings.Replace(textA, ".x0.", ".y0.", 1), strings.Replace(textA, ".x0.", ".X0.", 1), strings.Replace(textA, ".x0.", ".x+0.", 1),
		strings.Replace(textA, ".x0.", ".x-1.", 1), strings.Replace(textA, ".x0.", ".x4294967296.", 1), strings.Replace(textA, ".x0.", "..", 1),
		strings.Replace(textA, hexA, strings.Repeat("0", 32), 1), strings.Replace(textA, hexA, hexA[1:], 1), strings.Replace(textA, hexA, hexA+"0", 1),
		strings.Replace(textA, hexA, "g"+hexA[1:], 1), strings.Replace(textA, "@", "@@", 1), strings.Replace(textA, "@", ".", 1),
		strings.TrimSuffix(textA, "invoices"), strings.TrimSuffix(textA, ".invoices"),
		strings.TrimSuffix(textA, "invoices") + strings.Repeat("n", 513), strings.TrimSuffix(textA, "invoices") + strings.Repeat("%C3%BC", 257),
		strings.Repeat("9", 1<<16), textA + strings.Repeat("%20", 1<<16), strings.Repeat(textA, 100),
	}
	for _, number := range []string{"", "+33", "-33", "033", "0x21", "3_3", "33 ", " 33", "33.0", "3e1", "0", "9223372036854775808", "18446744073709551615", "18446744073709551616", "99999999999999999999999999", "³³", "٣٣"} {
		all = append(all, number+tail)
	}
	return all
}()

func TestHostileTexts(t *testing.T) {
	for _, text := range hostile {
		got, err := fence.ParseToken(text)
		if !errors.Is(err, fence.ErrMalformed) || got != (fence.Token{}) {
			t.Errorf("ParseToken(%.100q) gives %v, %v; want ErrMalformed", text, got, err)
			continue
		}
		if s := err.Error(); len(s) > 1000 || strings.ContainsAny(s, "\n\x00") || !utf8.ValidString(s) {
			t.Errorf("the error for %.100q has %d bytes, or bytes that do not belong in a log: %.200q", text, len(s), s)
		}
		var into fence.Token
		if err := into.UnmarshalText([]byte(text)); err == nil || into != (fence.Token{}) {
			t.Errorf("UnmarshalText(%.100q) gives %v, %v", text, into, err)
		}
	}
}

func TestValidate(t *testing.T) {
	if err := token(1).Validate(); err != nil {
		t.Error(err)
	}
	for name, bad := range map[string]fence.Token{
		"zero":            {},
		"no number":       token(0),
		"number too high": token(fence.MaxNumber + 1),
		"no domain":       token(1, func(t *fence.Token) { t.Domain = fence.Domain{} }),
		"no mode":         token(1, func(t *fence.Token) { t.Mode = 0 }),
		"unknown mode":    token(1, func(t *fence.Token) { t.Mode = 4 }),
		"no lock":         token(1, func(t *fence.Token) { t.Lock = "" }),
		"long lock":       token(1, func(t *fence.Token) { t.Lock = strings.Repeat("n", 513) }),
		"not UTF-8":       token(1, func(t *fence.Token) { t.Lock = "a\xff" }),
		"surrogate":       token(1, func(t *fence.Token) { t.Lock = "\xed\xa0\x80" }),
		"NUL":             token(1, func(t *fence.Token) { t.Lock = "a\x00b" }),
		"newline":         token(1, func(t *fence.Token) { t.Lock = "a\nb" }),
		"delete":          token(1, func(t *fence.Token) { t.Lock = "a\x7f" }),
		"C1 control":      token(1, func(t *fence.Token) { t.Lock = "a\u009f" }),
	} {
		if err := bad.Validate(); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("%s: Validate gives %v", name, err)
		}
		if text, err := bad.MarshalText(); err == nil {
			t.Errorf("%s: MarshalText gives %q", name, text)
		}
	}
}

func TestTokenInJSON(t *testing.T) {
	type message struct{ Token fence.Token }
	text, err := json.Marshal(message{token(33)})
	if want := `{"Token":"` + textA + `"}`; err != nil || string(text) != want {
		t.Fatalf("Marshal gives %s, %v; want %s", text, err, want)
	}
	var back message
	if err := json.Unmarshal(text, &back); err != nil || back.Token != token(33) {
		t.Fatalf("Unmarshal gives %v, %v", back, err)
	}
	for _, bad := range []string{`{"Token":33}`, `{"Token":"33"}`, `{"Token":""}`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("Unmarshal(%s) succeeded", bad)
		}
	}
	if back.Token != token(33) {
		t.Errorf("a failed Unmarshal left %v", back.Token)
	}
}

func TestDomainText(t *testing.T) {
	if d, err := fence.ParseDomain(hexA); err != nil || d != domainA || d.String() != hexA {
		t.Errorf("ParseDomain gives %v, %v", d, err)
	}
	for _, bad := range []string{"", hexA[1:], hexA + "0", strings.ToUpper(hexA), "0x" + hexA[2:], " " + hexA[1:], strings.Repeat("é", 16)} {
		if d, err := fence.ParseDomain(bad); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("ParseDomain(%q) gives %v, %v", bad, d, err)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name  string
		a, b  fence.Token
		order int
		ok    bool
	}{
		{"equal", token(5), token(5), 0, true},
		{"lower", token(5), token(6), -1, true},
		{"higher", token(6), token(5), 1, true},
		{"not as floats", token(9007199254740992), token(9007199254740993), -1, true},
		{"not as text", token(9), token(10), -1, true},
		{"a later epoch", token(1 << fence.EpochShift), token(1<<fence.EpochShift - 1), 1, true},
		{"one shared generation", token(5, func(t *fence.Token) { t.Mode = fence.Shared }), token(5, func(t *fence.Token) { t.Mode = fence.Shared }), 0, true},
		{"revocation", token(6, func(t *fence.Token) { t.Mode = fence.Revocation }), token(5), 1, true},
		{"forked", token(5), token(5, func(t *fence.Token) { t.Incarnation++ }), 0, false},
		{"another incarnation", token(5), token(6, func(t *fence.Token) { t.Incarnation++ }), -1, true},
		{"another domain", token(5), token(6, func(t *fence.Token) { t.Domain = domainB }), 0, false},
		{"another lock", token(5), token(6, func(t *fence.Token) { t.Lock = "other" }), 0, false},
		{"another slot", token(5), token(6, func(t *fence.Token) { t.Slot = 1 }), 0, false},
	} {
		if order, ok := c.a.Compare(c.b); order != c.order || ok != c.ok {
			t.Errorf("%s: Compare gives %d, %v; want %d, %v", c.name, order, ok, c.order, c.ok)
		}
		if order, ok := c.b.Compare(c.a); order != -c.order || ok != c.ok {
			t.Errorf("%s, the other way: Compare gives %d, %v; want %d, %v", c.name, order, ok, -c.order, c.ok)
		}
	}
	if e := token(3<<fence.EpochShift + 7).Epoch(); e != 3 {
		t.Errorf("Epoch gives %d, want 3", e)
	}
}

// tokens draws valid tokens whose lock names use every kind of character.
func tokens(allow ...fence.Mode) *rapid.Generator[fence.Token] {
	name := rapid.StringOfN(rapid.OneOf(
		rapid.RuneFrom([]rune("ab.%/ ~-_+@\"'\\&=;,20AF")),
		rapid.Rune().Filter(func(r rune) bool { return fence.ValidateLockName(string(r)) == nil }),
	), 1, 40, fence.MaxLockName)
	return rapid.Custom(func(t *rapid.T) fence.Token {
		return fence.Token{
			Domain:      fence.Domain(append(rapid.SliceOfN(rapid.Byte(), 15, 15).Draw(t, "domain"), 1)),
			Incarnation: fence.Incarnation(rapid.Uint64().Draw(t, "incarnation")),
			Lock:        name.Draw(t, "lock"),
			Slot:        rapid.Uint32().Draw(t, "slot"),
			Mode:        rapid.SampledFrom(allow).Draw(t, "mode"),
			Number:      rapid.Uint64Range(1, fence.MaxNumber).Draw(t, "number"),
		}
	})
}

var modes = []fence.Mode{fence.Exclusive, fence.Shared, fence.Revocation}

// Every valid token survives its text, which is printable ASCII, and no two
// tokens have one text.
func TestTokenRoundTrip(t *testing.T) {
	all := tokens(modes...)
	rapid.Check(t, func(t *rapid.T) {
		a, b := all.Draw(t, "a"), all.Draw(t, "b")
		text := a.String()
		if back, err := fence.ParseToken(text); err != nil || back != a {
			t.Fatalf("%+v becomes %q becomes %+v, %v", a, text, back, err)
		}
		for _, c := range []byte(text) {
			if c <= ' ' || c >= 0x7f || strings.IndexByte(`"'\,;`, c) >= 0 {
				t.Fatalf("%q has the byte %q", text, c)
			}
		}
		b.Domain, b.Incarnation, b.Slot, b.Mode, b.Number = a.Domain, a.Incarnation, a.Slot, a.Mode, a.Number
		if (a.Lock == b.Lock) != (text == b.String()) {
			t.Fatalf("locks %q and %q both give %q", a.Lock, b.Lock, text)
		}
	})
}

// Whatever text is taken for a token is the one text of a valid token.
func FuzzParseToken(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Add(textA)
	f.Add(token(fence.MaxNumber, func(t *fence.Token) { t.Lock = "ü /%.🔒" }).String())
	f.Fuzz(func(t *testing.T, text string) {
		got, err := fence.ParseToken(text)
		if err != nil {
			if !errors.Is(err, fence.ErrMalformed) || got != (fence.Token{}) {
				t.Fatalf("ParseToken(%q) gives %v, %v", text, got, err)
			}
			return
		}
		if err := got.Validate(); err != nil || got.String() != text {
			t.Fatalf("ParseToken(%q) gives %+v, whose text is %q (%v)", text, got, got, err)
		}
	})
}
