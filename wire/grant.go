package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/wire/holdfastv1"
)

// A Secret proves that a caller owns a session: 256 bits, drawn at random by
// the client (PROTOCOL B12).
type Secret [32]byte

// String returns the secret as 64 lower-case hexadecimal digits. It is for
// the wire and must not reach a log.
func (s Secret) String() string { return hex.EncodeToString(s[:]) }

// Hash is what the service keeps of a secret.
func (s Secret) Hash() [32]byte { return sha256.Sum256(s[:]) }

// ParseSecret is the inverse of [Secret.String]. Its errors do not repeat
// what was given.
func ParseSecret(text string) (Secret, error) {
	var s Secret
	if len(text) != 2*len(s) || text != strings.ToLower(text) {
		return s, fmt.Errorf("secret has %d characters: want %d lower-case hexadecimal digits (256 random bits)", len(text), 2*len(s))
	}
	if _, err := hex.Decode(s[:], []byte(text)); err != nil {
		return Secret{}, fmt.Errorf("secret is not hexadecimal: want %d lower-case hexadecimal digits (256 random bits)", 2*len(s))
	}
	if s == (Secret{}) {
		return s, fmt.Errorf("secret is all zeros: want %d lower-case hexadecimal digits drawn at random", 2*len(s))
	}
	return s, nil
}

// Grant is a grant's form on the wire. The number is the grant's own; the
// token's is that of its generation (PROTOCOL A1). A maxHoldLeft of 0 says
// that there is no maximum hold; one that is over shows as one millisecond.
func Grant(number uint64, token fence.Token, maxHoldLeft time.Duration) *holdfastv1.Grant {
	return &holdfastv1.Grant{
		Number: number, Token: token.String(), TokenNumber: token.Number,
		Lock: token.Lock, Slot: token.Slot, Shared: token.Mode == fence.Shared,
		MaxHoldLeftMs: MillisUp(maxHoldLeft),
	}
}

// FromGrant is the inverse of [Grant]. It refuses a grant whose parts do not
// agree with each other: a client must not fence with a token that belongs to
// something else.
func FromGrant(g *holdfastv1.Grant) (driver.Grant, error) {
	if g == nil {
		return driver.Grant{}, fmt.Errorf("the answer has no grant")
	}
	token, err := fence.ParseToken(g.GetToken())
	if err != nil {
		return driver.Grant{}, fmt.Errorf("grant %d: %w", g.GetNumber(), err)
	}
	mode := fence.Exclusive
	if g.GetShared() {
		mode = fence.Shared
	}
	switch {
	case g.GetNumber() == 0 || g.GetNumber() > fence.MaxNumber:
		return driver.Grant{}, fmt.Errorf("grant number %d is outside 1 … %d", g.GetNumber(), uint64(fence.MaxNumber))
	case token.Number != g.GetTokenNumber() || token.Lock != g.GetLock() || token.Slot != g.GetSlot() || token.Mode != mode:
		return driver.Grant{}, fmt.Errorf("grant %d of lock %q does not agree with its token %s", g.GetNumber(), g.GetLock(), token)
	case token.Number > g.GetNumber() || (mode == fence.Exclusive && token.Number != g.GetNumber()):
		return driver.Grant{}, fmt.Errorf("grant %d has token number %d", g.GetNumber(), token.Number)
	}
	return driver.Grant{ID: FormatID(g.GetNumber()), Token: token}, nil
}

// FromKeepAlive is what a keepalive's answer says about the session's grants.
func FromKeepAlive(r *holdfastv1.KeepAliveResponse) driver.Pulse {
	var p driver.Pulse
	for _, v := range r.GetRevoked() {
		p.Revoked = append(p.Revoked, driver.Revocation{Grant: FormatID(v.GetGrant()), Cause: v.GetCause(), By: v.GetBy(), Gone: v.GetGone()})
	}
	for _, n := range r.GetContended() {
		p.Contended = append(p.Contended, FormatID(n))
	}
	return p
}
