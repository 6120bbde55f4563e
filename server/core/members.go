package core

import (
	"fmt"
	"slices"
)

// MaxMemberName is the most bytes that a member's name may have.
const MaxMemberName = 64

// ValidateMemberName returns an error that says what is allowed unless name
// can be the name of a member: 1–64 of a–z, 0–9 and "-". Callers check names
// with it before they propose a change of membership.
func ValidateMemberName(name string) error {
	ok := name != "" && len(name) <= MaxMemberName
	for _, c := range []byte(name) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-')
	}
	if !ok {
		return fmt.Errorf("member name %q: want 1–%d of a–z, 0–9 and -", clip(name), MaxMemberName)
	}
	return nil
}

// WasRemoved reports whether a member with this ID was removed: it never comes
// back (D7).
func (s *State) WasRemoved(id uint64) bool {
	_, found := slices.BinarySearch(s.removed, id)
	return found
}

// Supports is the newest cluster version that this code applies.
func (s *State) Supports() uint32 { return s.supports }
