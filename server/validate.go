package server

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// What a request says is checked here before anything is proposed: each error
// is of kind Invalid and outcome No, names the field and says what is allowed.
// core refuses most of it again, because a log can come from anywhere.

func invalid(format string, args ...any) error {
	return &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Msg: fmt.Sprintf(format, args...)}
}

func checkLock(name string) error {
	if err := core.ValidateLockName(name); err != nil {
		return invalid("%v", err)
	}
	return nil
}

// checkText checks a label, a host or a name that is shown to people: a
// control character could rewrite a terminal.
func checkText(field, s string) error {
	switch {
	case len(s) > core.MaxLabel:
		return invalid("%s has %d bytes: want at most %d", field, len(s), core.MaxLabel)
	case !utf8.ValidString(s):
		return invalid("%s is not UTF-8: want at most %d bytes of UTF-8", field, core.MaxLabel)
	}
	for _, r := range s {
		if r < 0x20 || (r >= 0x7f && r < 0xa0) {
			return invalid("%s has the control character %U: want text without control characters", field, r)
		}
	}
	return nil
}

func checkTTL(ms uint64) (time.Duration, error) {
	ttl := wire.FromMillis(ms)
	switch {
	case ms == 0:
		return core.DefaultTTL, nil
	case ttl < core.MinTTL || ttl > core.MaxTTL:
		return 0, invalid("ttl_ms is %d: want %d … %d, or 0 for the default %d", ms,
			core.MinTTL.Milliseconds(), core.MaxTTL.Milliseconds(), core.DefaultTTL.Milliseconds())
	}
	return ttl, nil
}

// checkSpan checks a length of time that may be absent (0).
func checkSpan(field string, ms uint64, most time.Duration) (time.Duration, error) {
	if d := wire.FromMillis(ms); d <= most {
		return d, nil
	}
	return 0, invalid("%s is %d: want 0 … %d", field, ms, most.Milliseconds())
}

func checkValue(value []byte) error {
	if len(value) > core.MaxValue {
		return invalid("value has %d bytes: want at most %d", len(value), core.MaxValue)
	}
	return nil
}

func checkRequest(r *holdfastv1.RequestID) (core.Request, error) {
	switch {
	case r == nil:
		return core.Request{}, invalid(`request is missing: name the request, for example "request":{"lane":0,"n":"1"}, with n one higher for each new request on the lane`)
	case r.GetN() == 0:
		return core.Request{}, invalid("request.n is 0: want 1, then one higher for each new request on the lane")
	case r.GetN() > core.MaxRequest:
		return core.Request{}, invalid("request.n is %d: want 1 … %d, one higher for each new request on the lane", r.GetN(), uint64(core.MaxRequest))
	}
	return core.Request{Lane: r.GetLane(), N: r.GetN()}, nil
}

func checkSessionID(id uint64) error {
	switch {
	case id == 0:
		return invalid("session.id is missing: want the session_id that OpenSession answered")
	case id > fence.MaxNumber:
		return invalid("session.id is %d: want the session_id that OpenSession answered, at most %d", id, uint64(fence.MaxNumber))
	}
	return nil
}

func checkInstance(b []byte, needed bool) (id [16]byte, err error) {
	switch {
	case len(b) == 0 && !needed:
		return id, nil
	case len(b) != len(id):
		return id, invalid("instance has %d bytes: want %d, drawn at random by the client process", len(b), len(id))
	}
	copy(id[:], b)
	if id == ([16]byte{}) {
		return id, invalid("instance is all zeros: want %d bytes drawn at random by the client process", len(id))
	}
	return id, nil
}

func checkGrant(field string, n uint64) error {
	switch {
	case n == 0:
		return invalid("%s is missing: want the number of the grant, as the acquire answered it", field)
	case n > fence.MaxNumber:
		return invalid("%s is %d: want the number of a grant, at most %d", field, n, uint64(fence.MaxNumber))
	}
	return nil
}

// checkToken parses a token that came with a put or delete of a lock.
func checkToken(text, lock string) (fence.Token, error) {
	t, err := fence.ParseToken(text)
	switch {
	case err != nil:
		return t, invalid("token: %v", err)
	case t.Lock != lock:
		return t, invalid("token is of lock %q: want a token of lock %q", t.Lock, lock)
	case t.Mode == fence.Revocation:
		return t, invalid("token %s is a revocation token: it can arm a gate and never write", t)
	}
	return t, nil
}

func checkPage(size uint32) (int, error) {
	switch {
	case size == 0:
		return wire.DefaultPageSize, nil
	case size > wire.MaxPageSize:
		return 0, invalid("page_size is %d: want 1 … %d, or 0 for the default %d", size, wire.MaxPageSize, wire.DefaultPageSize)
	}
	return int(size), nil
}

// checkPrefix checks the prefix of lock names in a list or a watch. It need
// not be a lock name itself: "" stands for all, and a part of a name need not
// be in normal form.
func checkPrefix(prefix string) error {
	switch {
	case len(prefix) > core.MaxLockName:
		return invalid("prefix has %d bytes: want at most %d, the longest lock name", len(prefix), core.MaxLockName)
	case !utf8.ValidString(prefix):
		return invalid("prefix is not UTF-8")
	case strings.ContainsFunc(prefix, func(r rune) bool { return r < 0x20 || (r >= 0x7f && r < 0xa0) }):
		return invalid("prefix has a control character: no lock name has one")
	}
	return nil
}

// acquireCommand checks everything that an acquire says, apart from who asks.
func acquireCommand(m *holdfastv1.AcquireRequest) (cmd core.Acquire, wait time.Duration, err error) {
	if err = checkLock(m.GetLock()); err != nil {
		return cmd, 0, err
	}
	if cmd.Request, err = checkRequest(m.GetRequest()); err != nil {
		return cmd, 0, err
	}
	if wait, err = checkSpan("wait_ms", m.GetWaitMs(), wire.MaxWait); err != nil {
		return cmd, 0, err
	}
	if err = checkValue(m.GetValue()); err != nil {
		return cmd, 0, err
	}
	if cmd.LockDelay, err = checkSpan("lock_delay_ms", m.GetLockDelayMs(), core.MaxPeriod); err != nil {
		return cmd, 0, err
	}
	if cmd.OncePer, err = checkSpan("once_per_ms", m.GetOncePerMs(), core.MaxPeriod); err != nil {
		return cmd, 0, err
	}
	if cmd.MaxHold, err = checkSpan("max_hold_ms", m.GetMaxHoldMs(), core.MaxPeriod); err != nil {
		return cmd, 0, err
	}
	switch {
	case m.GetWaitForever() && wait > 0:
		err = invalid("wait_forever and wait_ms exclude each other: give one of them")
	case m.GetLimit() > core.MaxPermits:
		err = invalid("limit is %d: want at most %d permits", m.GetLimit(), core.MaxPermits)
	case m.GetShared() && m.GetLimit() > 1:
		err = invalid("shared and limit exclude each other: a lock has either shared holders or permits")
	case m.GetRetryFailed() && cmd.OncePer == 0:
		err = invalid("retry_failed needs once_per_ms: without a period there is nothing to retry in")
	}
	if m.Value != nil {
		cmd.Value = append([]byte{}, m.GetValue()...) // not nil, even if empty
	}
	cmd.Lock, cmd.Shared, cmd.Limit, cmd.RetryFailed = m.GetLock(), m.GetShared(), m.GetLimit(), m.GetRetryFailed()
	cmd.Try = wait == 0 && !m.GetWaitForever()
	return cmd, wait, err
}

// openCommand checks everything that an open says. Without a secret, drawn is
// the one that the server draws.
func openCommand(m *holdfastv1.OpenSessionRequest, drawn wire.Secret, instanceNeeded bool) (cmd core.Open, err error) {
	secret := drawn
	if m.GetSecret() != "" {
		if secret, err = wire.ParseSecret(m.GetSecret()); err != nil {
			return cmd, invalid("%v", err)
		}
	}
	if cmd.TTL, err = checkTTL(m.GetTtlMs()); err != nil {
		return cmd, err
	}
	if err = checkText("label", m.GetLabel()); err != nil {
		return cmd, err
	}
	if err = checkText("host", m.GetHost()); err != nil {
		return cmd, err
	}
	if cmd.Instance, err = checkInstance(m.GetInstance(), instanceNeeded); err != nil {
		return cmd, err
	}
	cmd.SecretHash, cmd.Label, cmd.Host = secret.Hash(), m.GetLabel(), m.GetHost()
	return cmd, nil
}
