package main

import (
	"context"
	"fmt"

	"holdfast/wire/holdfastv1"
)

// churn lets each session take a lock with a large value and give it back: the
// log grows, and the state does not.
func (l *line) churn(ctx context.Context, n uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	grants := make([]uint64, len(l.sessions))
	err := l.batch(ctx, len(l.sessions), func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Acquire{Acquire: &holdfastv1.AcquireRequest{
			Session: &holdfastv1.SessionRef{Id: l.sessions[i].id}, Request: &holdfastv1.RequestID{N: n},
			Lock: fmt.Sprintf("churn/%d", i), Value: make([]byte, churnValue),
		}}}
	}, func(i int, f *holdfastv1.ServerFrame) error {
		grants[i] = f.GetAcquire().GetGrant().GetNumber()
		return answerError(f)
	})
	if err != nil {
		return err
	}
	return l.batch(ctx, len(l.sessions), func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_Release{Release: &holdfastv1.ReleaseRequest{
			Session: &holdfastv1.SessionRef{Id: l.sessions[i].id}, Grant: grants[i],
		}}}
	}, func(_ int, f *holdfastv1.ServerFrame) error { return answerError(f) })
}

// endAll ends the sessions of a line.
func (l *line) endAll(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.batch(ctx, len(l.sessions), func(i int) *holdfastv1.ClientFrame {
		return &holdfastv1.ClientFrame{Body: &holdfastv1.ClientFrame_End{End: &holdfastv1.EndSessionRequest{Session: &holdfastv1.SessionRef{Id: l.sessions[i].id}}}}
	}, func(_ int, f *holdfastv1.ServerFrame) error { return answerError(f) })
}
