package core

import "fmt"

// A rule is what a refused command ran into. Lanes remember it by number, so
// numbers are only ever added; the text may change, because it is made anew
// for every answer and is no part of the state (invariant 8).
type rule uint8

const (
	_ rule = iota
	ruleSessionLost
	ruleRequestZero
	ruleLaneBusy
	ruleLanes
	ruleName
	ruleValue
	ruleLimitRange
	ruleLimitShared
	ruleLockDelay
	ruleOncePer
	ruleMaxHold
	ruleRetryFailed
	ruleBind
	ruleTTL
	ruleLabel
	ruleHost
	ruleSessionZero
	ruleSessionTaken
	ruleSecret
	ruleSince
	ruleRevokeHow
	ruleRevokeCause
	ruleBy
	ruleMembers
	ruleEpoch
	ruleIncarnation
	ruleVersion
	ruleCounterFull
	ruleLimit
	ruleBusy
	ruleHeldByYou
	ruleClosed
	rulePerSession
	ruleWaiters
	ruleNotHeld
	ruleNotYours
	ruleNoSuchGrant
	ruleNotMarked
	ruleNoLock
	ruleNoValue
	ruleNoSession
	ruleConflict
	ruleStale
	ruleInUse
	ruleNotSuspected
	ruleFalseRetry
	ruleRequestRange
	ruleAudit
	ruleAuditVersion
	ruleEnd // one above the last
)

var rules = [ruleEnd]struct {
	reason Reason
	text   string
}{
	ruleSessionLost:  {SessionLost, "the session does not exist (any more): it ended or ran out, and all that it held and waited for with it; open a new one"},
	ruleRequestZero:  {Malformed, "request number 0: the requests of a lane are numbered 1, 2, …"},
	ruleLaneBusy:     {Malformed, "the lane's last request still waits: cancel it, or use another lane"},
	ruleLanes:        {TooMany, fmt.Sprintf("the session uses %d lanes, the most allowed: use one again whose last request is settled", MaxPerSession)},
	ruleName:         {Malformed, fmt.Sprintf("bad lock name: want 1–%d bytes of UTF-8 without control characters", MaxLockName)},
	ruleValue:        {Malformed, fmt.Sprintf("value too long: at most %d bytes", MaxValue)},
	ruleLimitRange:   {Malformed, fmt.Sprintf("limit too high: at most %d permits", MaxPermits)},
	ruleLimitShared:  {Malformed, "shared and limit exclude each other: a lock has either shared holders or permits"},
	ruleLockDelay:    {Malformed, fmt.Sprintf("bad lock-delay: want 0 – %v", MaxPeriod)},
	ruleOncePer:      {Malformed, fmt.Sprintf("bad once-per: want 0 – %v", MaxPeriod)},
	ruleMaxHold:      {Malformed, fmt.Sprintf("bad maximum hold: want 0 – %v", MaxPeriod)},
	ruleRetryFailed:  {Malformed, "retry-failed needs once-per: without a period there is nothing to retry in"},
	ruleBind:         {Malformed, "only a session can bind a value: name the session, or do not bind"},
	ruleTTL:          {Malformed, fmt.Sprintf("bad TTL: want %v – %v", MinTTL, MaxTTL)},
	ruleLabel:        {Malformed, fmt.Sprintf("bad label: want at most %d bytes of UTF-8 without control characters", MaxLabel)},
	ruleHost:         {Malformed, fmt.Sprintf("bad host: want at most %d bytes of UTF-8 without control characters", MaxLabel)},
	ruleSessionZero:  {Malformed, "session 0: a session's ID is not 0"},
	ruleSessionTaken: {Malformed, "the session ID is in use: draw another one"},
	ruleSecret:       {Malformed, "no secret: a session needs the hash of a secret"},
	ruleSince:        {Malformed, "negative clock: a suspicion needs the clock at which the sessions were last heard"},
	ruleRevokeHow:    {Malformed, "now and free exclude each other"},
	ruleRevokeCause:  {Malformed, "bad cause of a revoke: want operator or maximum hold"},
	ruleBy:           {Malformed, fmt.Sprintf("bad operator name: want at most %d bytes of UTF-8 without control characters", MaxLabel)},
	ruleMembers:      {Malformed, fmt.Sprintf("bad members: want at most %d with distinct IDs other than 0 and texts of at most %d bytes, and at most %d removed IDs", maxMembers, maxMemberText, maxRemoved)},
	ruleEpoch:        {Malformed, fmt.Sprintf("bad epoch: want one above the present epoch and at most %d", MaxEpoch)},
	ruleIncarnation:  {Malformed, "bad incarnation: want a new one, not 0"},
	ruleVersion:      {Conflict, "the cluster version is never lowered"},
	ruleCounterFull:  {CounterFull, "the counter of grant numbers is full in this epoch: an operator must raise the epoch"},
	ruleLimit:        {LimitMismatch, "the lock is in use with limit %d: ask with that limit, or wait until it is neither held nor queued"},
	ruleBusy:         {Busy, "the lock is held"},
	ruleHeldByYou:    {HeldByYou, "the lock is held by this very session: there is no re-entrance"},
	ruleClosed:       {Closed, "the lock is closed for a while"},
	rulePerSession:   {TooMany, fmt.Sprintf("the session holds, waits for and binds %d locks, the most allowed: release some, or open another session", MaxPerSession)},
	ruleWaiters:      {TooMany, fmt.Sprintf("%d requests wait for the lock, the most allowed: try later", MaxWaiters)},
	ruleNotHeld:      {NotHeld, "the grant is not held (any more) on this lock"},
	ruleNotYours:     {NotHeld, "the grant belongs to another session"},
	ruleNoSuchGrant:  {NoSuchGrant, "no grant ever had the number %d: the last one given out is %d"},
	ruleNotMarked:    {Conflict, "the grant is not marked as revoked: nothing to free"},
	ruleNoLock:       {NotFound, "no such lock"},
	ruleNoValue:      {NotFound, "the lock has no value"},
	ruleNoSession:    {NotFound, "no such session"},
	ruleConflict:     {Conflict, "the value's modify revision is another one: read again, then try again"},
	ruleStale:        {Stale, "the token is not the lock's current one"},
	ruleInUse:        {InUse, "the lock is held or queued: only a free lock can be deleted"},
	ruleFalseRetry:   {Malformed, "request %d on lane %d was %s: repeat it unchanged; %s"},
	ruleRequestRange: {Malformed, fmt.Sprintf("request number %%d on lane %%d is too high: want 1 … %d, one higher for each new request on the lane", uint64(MaxRequest))},
	ruleNotSuspected: {Conflict, "the session is not suspected since that clock: it was heard, or suspected anew"},
	ruleAudit:        {Malformed, fmt.Sprintf("bad audit record: want a call, a count, an outcome (or a command before it) and texts of at most %d bytes without control characters", MaxLabel)},
	ruleAuditVersion: {TooNew, fmt.Sprintf("audit records need cluster version %d", auditVersion)},
}

// refusal is what is remembered of a refused request.
type refusal struct {
	rule     rule
	lock     string
	holder   *Holder
	waiters  int
	opensAt  Clock
	revision Revision
	limit    uint32 // ruleLimit: the limit in force
}

// public returns r as it is told; the caller owns it.
func (r *refusal) public() *Refusal {
	about := rules[r.rule]
	p := &Refusal{
		Reason: about.reason, Msg: about.text, Lock: r.lock,
		Waiters: r.waiters, OpensAt: r.opensAt, Revision: r.revision,
	}
	if r.rule == ruleLimit {
		p.Msg = fmt.Sprintf(about.text, r.limit)
	}
	if r.holder != nil {
		h := *r.holder
		p.Holder = &h
	}
	return p
}

// refused is the answer that carries r.
func (r *refusal) refused() Result { return Result{Status: Refused, Refusal: r.public()} }

// saying is the answer that carries r, whose text has blanks to be filled in.
// Such a refusal is not remembered by any lane.
func (r *refusal) saying(args ...any) Result {
	p := r.public()
	p.Msg = fmt.Sprintf(p.Msg, args...)
	return Result{Status: Refused, Refusal: p}
}

// refuse is the answer to a command that broke a rule, when nothing more is
// to be said.
func refuse(k rule) Result { return (&refusal{rule: k}).refused() }

// about returns a refusal by rule k with what the state says of the lock.
func (s *State) about(k rule, l *lock) *refusal {
	r := &refusal{rule: k, lock: l.name, waiters: int(l.waiters)}
	if l.closed() {
		r.opensAt = l.opensAt
	}
	if g, ok := s.firstHolder(l.name); ok {
		r.holder = s.holder(g)
	}
	return r
}

// holder returns what people are told of the holder of g.
func (s *State) holder(g *grant) *Holder {
	h := &Holder{Grant: *g.Grant}
	if who, ok := s.session(g.Session); ok {
		h.Label, h.Host = who.who.label, who.who.host
	}
	return h
}
