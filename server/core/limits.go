package core

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// The limits that core keeps. A command that breaks one is refused by name
// and changes nothing else.
const (
	// MaxLockName is the longest lock name, in bytes.
	MaxLockName = 512
	// MaxValue is the longest value of a lock, in bytes.
	MaxValue = 4096
	// MaxLabel is the longest owner label, host or operator name, in bytes.
	MaxLabel = 256
	// MinTTL and MaxTTL bound a session's TTL; DefaultTTL is for callers
	// that were not told one (core itself has no default).
	MinTTL     = time.Second
	MaxTTL     = 24 * time.Hour
	DefaultTTL = 15 * time.Second
	// MaxWaiters is the most requests that wait for one lock.
	MaxWaiters = 100_000
	// MaxPerSession is the most that one session may hold, wait for and
	// bind, taken together, and the most lanes it may use. It bounds the
	// work of the command that ends the session (D8).
	MaxPerSession = 10_000
	// MaxRequest is the highest number of a request on a lane.
	MaxRequest = 1<<63 - 1
	// MaxPermits is the highest Limit of an acquire.
	MaxPermits = 10_000
	// MaxPeriod is the longest lock-delay, once-per and maximum hold.
	MaxPeriod = 400 * 24 * time.Hour
	// MaxTombstones is how many unacknowledged revoked grants a session
	// remembers; the oldest is dropped.
	MaxTombstones = 1000
	// EventsKept is how many events can be replayed at least. Whole
	// revisions are dropped, never a part of one.
	EventsKept = 10_000
	// MaxHoldersShown is how many holders [State.Lock] lists, and
	// MaxHoldersListed how many [State.Locks] lists of each lock; the number
	// of all stands beside.
	MaxHoldersShown  = 1000
	MaxHoldersListed = 100
	// MaxEpoch is the highest epoch: 15 bits, so that a number fits a signed
	// 64-bit integer.
	MaxEpoch = 1<<15 - 1
	// MaxCounter is the highest counter in one epoch: 48 bits.
	MaxCounter = 1<<epochShift - 1
	// SupportedVersion is the newest cluster version this code can apply.
	SupportedVersion = 2

	epochShift    = 48
	maxMembers    = 1000
	maxMemberText = 512
	maxRemoved    = 1_000_000
	maxPlaceScan  = 10_000 // in one view
	// maxPlaceAnswer is how far the place of a waiter is counted that asks
	// again: a server that comes back is asked by all of them at once.
	maxPlaceAnswer = 1000
)

// ValidateLockName returns an error that says what is allowed unless name can
// be the name of a lock: 1–512 bytes of UTF-8 in Unicode normal form C without
// control characters, and without characters that nobody sees (so that no two
// names look the same, and none rewrites the line that it stands in): formats
// such as zero-width and bidirectional marks, line and paragraph separators,
// variation selectors, and fillers. Callers check names with it before they
// propose a command. [State.Apply] checks length, UTF-8 and control characters
// only: the rest depends on the tables of the Unicode version which a binary
// was built with, and a replica's state must not (invariant 8).
func ValidateLockName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("lock name is empty: want 1–%d bytes", MaxLockName)
	case len(name) > MaxLockName:
		return fmt.Errorf("lock name has %d bytes: want 1–%d", len(name), MaxLockName)
	case !utf8.ValidString(name):
		return fmt.Errorf("lock name %q is not UTF-8", clip(name))
	case hasControl(name):
		return fmt.Errorf("lock name %q has a control character: none is allowed", clip(name))
	case strings.ContainsFunc(name, isUnseen):
		r, _ := utf8.DecodeRuneInString(name[strings.IndexFunc(name, isUnseen):])
		return fmt.Errorf("lock name %q has the invisible character %U: none is allowed (formats, separators of lines and paragraphs, variation selectors, fillers)", clip(name), r)
	case !norm.NFC.IsNormalString(name):
		return fmt.Errorf("lock name %q is not in Unicode normal form C: normalise it first", clip(name))
	}
	return nil
}

// isUnseen reports whether a character has no form of its own.
func isUnseen(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// nameFits is the part of ValidateLockName that no Unicode version changes.
func nameFits(name string) bool {
	return name != "" && len(name) <= MaxLockName && utf8.ValidString(name) && !hasControl(name)
}

// textFits reports whether s can be a label, a host or an operator's name.
func textFits(s string) bool {
	return len(s) <= MaxLabel && utf8.ValidString(s) && !hasControl(s)
}

// hasControl names the ranges itself, because a replica's verdict must not
// depend on a Unicode version (these two never change).
func hasControl(s string) bool {
	for _, r := range s {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return true
		}
	}
	return false
}

// clip shortens what somebody else sent before it goes into an error text.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

// later returns c + d, at most the highest clock there is.
func later(c Clock, d time.Duration) Clock {
	if sum := c + Clock(d); sum >= c {
		return sum
	}
	return Clock(1<<63 - 1)
}
