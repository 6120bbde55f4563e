package fence

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxLockName is the longest lock name, in bytes.
const MaxLockName = 512

// MaxNumber is the highest token number: 15 bits of epoch and 48 bits of
// counter, so that it fits a signed 64-bit integer everywhere.
const MaxNumber = 1<<63 - 1

// EpochShift is the number of bits below the epoch in a token number:
// number = epoch << EpochShift + counter.
const EpochShift = 48

// A Domain identifies one lineage of grant numbers: numbers of different
// domains have no order. It is drawn at random when a lock service is first
// set up. The zero Domain is not valid.
type Domain [16]byte

// String returns the domain as 32 lower-case hexadecimal digits.
func (d Domain) String() string { return hex.EncodeToString(d[:]) }

// ParseDomain is the inverse of [Domain.String]; it accepts nothing else.
func ParseDomain(s string) (Domain, error) {
	var d Domain
	if len(s) != 2*len(d) || s != strings.ToLower(s) {
		return d, fmt.Errorf("%w: domain %q: want %d lower-case hexadecimal digits", ErrMalformed, clip(s), 2*len(d))
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return Domain{}, fmt.Errorf("%w: domain %q: want %d lower-case hexadecimal digits", ErrMalformed, clip(s), 2*len(d))
	}
	return d, nil
}

// An Incarnation tells apart the services that ever continued one domain: it
// is drawn at random at bootstrap and again at each restore. Two tokens with
// one number and different incarnations mean that the domain was forked.
type Incarnation uint64

// String returns the incarnation as 16 lower-case hexadecimal digits.
func (i Incarnation) String() string { return fmt.Sprintf("%016x", uint64(i)) }

// Mode says what a token was issued for.
type Mode uint8

// The modes of a token. The zero Mode is not valid.
const (
	// Exclusive is the token of the only holder of its slot.
	Exclusive Mode = iota + 1
	// Shared is the token of a holder beside others of its generation.
	Shared
	// Revocation is a burnt number: it can arm a gate, and never write.
	Revocation
)

// String returns the letter that stands for the mode in a token's text form.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "x"
	case Shared:
		return "s"
	case Revocation:
		return "r"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// A Token is the fencing token of one grant: a number that only rises, with
// all that says which resource it may write. It is a value: comparable, and
// safe to copy. The zero Token is not valid.
type Token struct {
	Domain      Domain
	Incarnation Incarnation
	Lock        string // the lock's name
	Slot        uint32 // the permit of a lock with a limit, else 0
	Mode        Mode
	Number      uint64 // 1 … MaxNumber; the number of the first grant of the generation
}

// ErrMalformed is wrapped by every error about a token, domain or lock name
// that is not well formed.
var ErrMalformed = errors.New("malformed")

// MaxTokenText is the length in bytes of the longest text form of a token.
const MaxTokenText = len("9223372036854775807@") + 32 + len(".") + 16 + len(".x4294967295.") + 3*MaxLockName

// Compare orders two tokens of one slot of one lock in one domain: -1 if t was
// minted before o, so that a gate that has seen o refuses t; 0 if they belong
// to one generation; +1 if t is newer. ok is false, and the order is 0, where
// there is none: for another domain, lock or slot, and for one number of two
// incarnations (the domain was forked).
//
// The number alone decides: shared holders of one generation compare equal,
// and a revocation token orders like any other.
func (t Token) Compare(o Token) (order int, ok bool) {
	switch {
	case t.Domain != o.Domain || t.Lock != o.Lock || t.Slot != o.Slot:
		return 0, false
	case t.Number < o.Number:
		return -1, true
	case t.Number > o.Number:
		return 1, true
	}
	return 0, t.Incarnation == o.Incarnation
}

// Epoch returns the epoch part of the number.
func (t Token) Epoch() uint64 { return t.Number >> EpochShift }

// IsZero reports whether t is the zero Token.
func (t Token) IsZero() bool { return t == Token{} }

// Validate returns an error that wraps [ErrMalformed] unless every field of t
// is in range.
func (t Token) Validate() error {
	switch {
	case t.IsZero():
		return fmt.Errorf("%w: no fencing token", ErrMalformed)
	case t.Domain == Domain{}:
		return fmt.Errorf("%w: token has no domain", ErrMalformed)
	case t.Mode < Exclusive || t.Mode > Revocation:
		return fmt.Errorf("%w: token has unknown mode %d", ErrMalformed, t.Mode)
	case t.Number == 0 || t.Number > MaxNumber:
		return fmt.Errorf("%w: token number %d is outside 1 … %d", ErrMalformed, t.Number, uint64(MaxNumber))
	}
	return ValidateLockName(t.Lock)
}

// ValidateLockName returns an error that wraps [ErrMalformed] unless name can
// be a lock's name as far as a gate must know: 1–512 bytes of UTF-8 without
// control characters. The service is stricter: it also asks for Unicode normal
// form C and refuses invisible characters (formats, separators of lines and
// paragraphs, variation selectors, fillers). A gate must not: what counts as
// such differs between versions of Unicode, and a token that one service minted
// must be readable at every gate. It compares names byte by byte, and the text
// form of a token is printable ASCII whatever the name has.
func ValidateLockName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: lock name is empty: want 1–%d bytes", ErrMalformed, MaxLockName)
	case len(name) > MaxLockName:
		return fmt.Errorf("%w: lock name has %d bytes: want 1–%d", ErrMalformed, len(name), MaxLockName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: lock name %q is not UTF-8", ErrMalformed, clip(name))
	}
	for _, r := range name {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return fmt.Errorf("%w: lock name %q has the control character %U", ErrMalformed, clip(name), r)
		}
	}
	return nil
}

// String returns the text form of t, the same in a header, a setting of a
// database session, an environment variable and JSON:
//
//	33@<domain>.<incarnation>.<mode><slot>.<lock>
//
// for example 33@0b…7f.00000000000000a1.x0.invoices. The lock name is
// percent-encoded, so the form is printable ASCII without spaces or quotes. The
// zero Token, which is not valid, is "no token".
func (t Token) String() string {
	if t.IsZero() {
		return "no token"
	}
	var b strings.Builder
	b.Grow(80 + len(t.Lock))
	b.WriteString(strconv.FormatUint(t.Number, 10))
	b.WriteByte('@')
	b.WriteString(t.Domain.String())
	b.WriteByte('.')
	b.WriteString(t.Incarnation.String())
	b.WriteByte('.')
	b.WriteString(t.Mode.String())
	b.WriteString(strconv.FormatUint(uint64(t.Slot), 10))
	b.WriteByte('.')
	escapeLock(&b, t.Lock)
	return b.String()
}

// ParseToken is the inverse of [Token.String]. It accepts the canonical text
// of a valid token and nothing else: no sign, space, leading zero, bare
// number, upper-case hexadecimal or needless escape. Every error wraps
// [ErrMalformed].
func ParseToken(s string) (Token, error) {
	t, ok := parseToken(s)
	if !ok {
		return Token{}, fmt.Errorf("%w: %q is not a fencing token: want NUMBER@DOMAIN.INCARNATION.MODESLOT.LOCK as the lock service printed it", ErrMalformed, clip(s))
	}
	if err := t.Validate(); err != nil {
		return Token{}, err
	}
	if t.String() != s {
		return Token{}, fmt.Errorf("%w: token %q is not in canonical form", ErrMalformed, clip(s))
	}
	return t, nil
}

func parseToken(s string) (t Token, ok bool) {
	if len(s) > MaxTokenText {
		return t, false
	}
	number, rest, ok := strings.Cut(s, "@")
	if !ok {
		return t, false
	}
	parts := strings.SplitN(rest, ".", 4)
	if len(parts) != 4 || len(parts[1]) != 16 || len(parts[2]) < 2 {
		return t, false
	}
	var err error
	if t.Number, err = strconv.ParseUint(number, 10, 64); err != nil {
		return t, false
	}
	if t.Domain, err = ParseDomain(parts[0]); err != nil {
		return t, false
	}
	inc, err := strconv.ParseUint(parts[1], 16, 64)
	if err != nil {
		return t, false
	}
	t.Incarnation = Incarnation(inc)
	switch parts[2][0] {
	case 'x':
		t.Mode = Exclusive
	case 's':
		t.Mode = Shared
	case 'r':
		t.Mode = Revocation
	default:
		return t, false
	}
	slot, err := strconv.ParseUint(parts[2][1:], 10, 32)
	if err != nil {
		return t, false
	}
	t.Slot = uint32(slot)
	t.Lock, ok = unescapeLock(parts[3])
	return t, ok
}

// MarshalText implements [encoding.TextMarshaler].
func (t Token) MarshalText() ([]byte, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	return []byte(t.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseToken].
func (t *Token) UnmarshalText(text []byte) error {
	p, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

const upperHex = "0123456789ABCDEF"

func plainByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '_' || c == '.' || c == '~' || c == '/'
}

func escapeLock(b *strings.Builder, lock string) {
	for i := range len(lock) {
		c := lock[i]
		if plainByte(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(upperHex[c>>4])
		b.WriteByte(upperHex[c&15])
	}
}

func unescapeLock(s string) (string, bool) {
	if !strings.Contains(s, "%") {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		v, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(v))
		i += 2
	}
	return string(b), true
}

// clip shortens what somebody else sent before it goes into an error text.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
