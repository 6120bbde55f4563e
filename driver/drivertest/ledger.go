package drivertest

import (
	"context"
	"fmt"
	"sync"

	"holdfast/fence"
)

// A Ledger is a guarded resource in memory that judges what happened to it: it
// accepts every write, and notes each that a gate would have had to refuse. A
// ledger with a fence is a gate as well, and refuses.
type Ledger struct {
	// Fence makes the ledger refuse tokens below the highest it has seen.
	Fence bool

	mu struct {
		sync.Mutex
		mark    fence.Token
		inside  string // who is in its section now
		writes  int
		refused int
		wrongs  []string
	}
}

// Arm implements holdfast.Gate.
func (l *Ledger) Arm(_ context.Context, t fence.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.judge(t, "arm")
}

// judge raises the mark, refuses, or notes a wrong; l.mu is held.
func (l *Ledger) judge(t fence.Token, who string) error {
	if t.Number < l.mu.mark.Number {
		if l.Fence {
			l.mu.refused++
			return &fence.StaleError{Gate: "ledger", Offered: t, Seen: l.mu.mark}
		}
		l.mu.wrongs = append(l.mu.wrongs, fmt.Sprintf("%s wrote with token %d after token %d", who, t.Number, l.mu.mark.Number))
		return nil
	}
	l.mu.mark = t
	return nil
}

// Enter begins a section that must not overlap with another.
func (l *Ledger) Enter(who string, t fence.Token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.inside != "" {
		l.mu.wrongs = append(l.mu.wrongs, fmt.Sprintf("%s came in while %s was inside", who, l.mu.inside))
	}
	if t.Number <= l.mu.mark.Number {
		l.mu.wrongs = append(l.mu.wrongs, fmt.Sprintf("%s came in with token %d, not above %d", who, t.Number, l.mu.mark.Number))
	}
	l.mu.inside = who
}

// Write writes within a section, or late.
func (l *Ledger) Write(who string, t fence.Token) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.judge(t, who); err != nil {
		return err
	}
	l.mu.writes++
	return nil
}

// Leave ends a section.
func (l *Ledger) Leave(who string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.inside == who {
		l.mu.inside = ""
	}
}

// Verdict returns what went wrong, how many writes were accepted, and how many
// tokens were refused.
func (l *Ledger) Verdict() (wrongs []string, writes, refused int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.wrongs, l.mu.writes, l.mu.refused
}
