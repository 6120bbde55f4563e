package server

import (
	"time"

	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// How much of a lock or session one answer lists; counts stand beside.
const (
	maxHolders       = core.MaxHoldersShown
	maxHoldersInList = core.MaxHoldersListed
	maxQueue         = 1000
	defaultQueue     = 100
	maxNames         = 100
	// maxPageBytes ends a page before a frame is full.
	maxPageBytes = wire.MaxFrame * 3 / 4
)

func revokeCause(c core.RevokeCause) string {
	switch c {
	case core.ByOperator:
		return "operator"
	case core.ByMaxHold:
		return "max-hold"
	}
	return ""
}

var causes = map[core.Cause]string{
	core.CauseReleased: "released", core.CauseExpired: "expired", core.CauseEnded: "ended",
	core.CauseOperator: "operator", core.CauseMaxHold: "max-hold", core.CauseCancelled: "cancelled",
	core.CauseClosed: "closed", core.CauseLockDelay: "lock-delay", core.CauseOncePer: "once-per",
	core.CauseDeleted: "deleted", core.CauseEpoch: "epoch",
}

var eventKinds = map[core.EventKind]string{
	core.EventOpened: "opened", core.EventEnded: "ended", core.EventQueued: "queued",
	core.EventLeft: "left", core.EventGranted: "granted", core.EventReleased: "released",
	core.EventRevoked: "revoked", core.EventClosed: "closed", core.EventReopened: "reopened",
	core.EventPut: "put", core.EventDeleted: "deleted", core.EventEpoch: "epoch", core.EventVersion: "version", core.EventAudit: "audit",
}

// atReading is the instant of a reading.
func atReading(r Reading) at {
	return at{clock: r.Clock, domain: r.State.Domain(), incarnation: r.State.Incarnation(), epoch: r.State.Epoch()}
}

func readInfo(r Reading) *holdfastv1.ReadInfo {
	return &holdfastv1.ReadInfo{
		Stale: r.Info.Stale, Index: r.Info.Index, AgeMs: wire.Millis(r.Info.Age), Revision: uint64(r.State.Revision()),
	}
}

// lastHeard is how long ago this node heard a session, for an optional field.
func lastHeard(r Reading, id core.SessionID) *uint64 {
	ago, ok := r.Heard(id)
	if !ok {
		return nil
	}
	ms := wire.Millis(ago)
	return &ms
}

// ttlLeft is within [0, TTL] whatever the lease machine is about (C18 in the
// casebook).
func ttlLeft(r Reading, id core.SessionID, ttl time.Duration) uint64 {
	return wire.Millis(min(r.TTLLeft(id), ttl))
}

func lockMessage(r Reading, l core.LockView, most int) *holdfastv1.Lock {
	now := atReading(r)
	out := &holdfastv1.Lock{
		Name: l.Name, CreateRevision: uint64(l.Created), ModifyRevision: uint64(l.Modified),
		ValueSession: uint64(l.ValueSession), ValueGrant: l.ValueGrant, Limit: l.Limit,
		Waiters: uint32(l.Waiters), HolderCount: uint32(l.HolderCount), Closed: l.Closed, Sealed: l.Sealed,
	}
	if l.HasValue {
		out.Value = append([]byte{}, l.Value...)
	}
	if l.Closed {
		out.ClosedCause = causes[l.ClosedCause]
		out.OpensInMs = wire.MillisUp(now.until(l.OpensAt))
	}
	for i := range min(len(l.Holders), most) {
		out.Holders = append(out.Holders, holderMessage(r, now, &l.Holders[i]))
	}
	for i := range l.Queue {
		w := &l.Queue[i]
		out.Queue = append(out.Queue, &holdfastv1.Waiter{
			SessionId: uint64(w.Session), Label: w.Label, Host: w.Host, Shared: w.Shared,
			Place: uint32(w.Place), WaitedMs: wire.Millis(now.since(w.Since)),
		})
	}
	return out
}

func holderMessage(r Reading, now at, h *core.HolderView) *holdfastv1.Holder {
	out := &holdfastv1.Holder{
		Grant: h.Number, Token: now.token(&h.Grant).String(), TokenNumber: h.Generation,
		SessionId: uint64(h.Session), Label: h.Label, Host: h.Host, Slot: h.Slot, Shared: h.Shared,
		HeldMs: wire.Millis(now.since(h.Since)), Revoked: h.Revoked, RevokeBy: h.By,
		LastHeardMs: lastHeard(r, h.Session),
	}
	if h.Revoked {
		out.RevokeCause = revokeCause(h.Cause)
	}
	if t, ok := r.State.SessionTiming(h.Session); ok {
		out.TtlLeftMs = ttlLeft(r, h.Session, t.TTL)
	}
	return out
}

func sessionMessage(r Reading, v *core.SessionView, attached bool) *holdfastv1.SessionInfo {
	out := &holdfastv1.SessionInfo{
		Id: uint64(v.ID), Label: v.Label, Host: v.Host, TtlMs: wire.Millis(v.TTL),
		TtlLeftMs: ttlLeft(r, v.ID, v.TTL), LastHeardMs: lastHeard(r, v.ID), Suspected: v.Suspected,
		AgeMs: wire.Millis(atReading(r).since(v.Opened)), Attached: attached,
		HoldsCount: uint32(len(v.Grants)), WaitsCount: uint32(len(v.Waits)),
	}
	for i := range min(len(v.Grants), maxNames) {
		out.Holds = append(out.Holds, v.Grants[i].Lock)
	}
	for i := range min(len(v.Waits), maxNames) {
		out.WaitsFor = append(out.WaitsFor, v.Waits[i].Lock)
	}
	return out
}

// eventMessage is one event as watchers get it. A token's text needs the
// incarnation, which is known for grants of the present epoch only.
func eventMessage(now at, e *core.Event) *holdfastv1.Event {
	out := &holdfastv1.Event{
		Revision: uint64(e.Revision), Kind: eventKinds[e.Kind], Cause: causes[e.Cause], Lock: e.Lock,
		SessionId: uint64(e.Session), Label: e.Label, Host: e.Host, Grant: e.Grant, TokenNumber: e.Token,
		Slot: e.Slot, Shared: e.Shared, ClockMs: wire.Millis(time.Duration(e.Clock)), By: e.By, Burnt: e.Burnt,
		OpensAtMs: wire.MillisUp(time.Duration(e.OpensAt)),
	}
	if e.Value != nil {
		out.Value = append([]byte{}, e.Value...)
	}
	if e.Audit != nil {
		out.Audit = auditMessage(e.Audit)
	}
	if e.Token != 0 && e.Token>>fence.EpochShift == uint64(now.epoch) {
		g := core.Grant{Generation: e.Token, Incarnation: now.incarnation, Lock: e.Lock, Slot: e.Slot, Shared: e.Shared}
		out.Token = now.token(&g).String()
	}
	return out
}
