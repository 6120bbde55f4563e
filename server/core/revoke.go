package core

import "holdfast/internal/planted"

// revoke takes a grant from its holder (B11). A repeated one is already done;
// one that names a grant which is not held shows who holds the lock.
func (t *step) revoke(c Revoke) Result {
	if k := checkRevoke(c); k != 0 {
		return refuse(k)
	}
	g, held := t.grant(c.Grant)
	if !held || g.Lock != c.Lock {
		return t.cannotRevoke(c)
	}
	switch {
	case c.Now:
		burnt, _ := t.nextNumber()
		t.seal(g, burnt)
		if planted.On("B11-no-burn") {
			burnt = g.Generation
		}
		return t.free(g, c.Cause, c.By, burnt)
	case c.Free && !g.revoked:
		return t.about(ruleNotMarked, t.mustLock(c.Lock)).refused()
	case c.Free:
		return t.free(g, g.cause, g.by, g.burnt)
	case g.revoked:
		return Result{Status: Done, Number: g.burnt}
	}
	return t.mark(g, c)
}

// cannotRevoke answers for a grant that is not held on the lock.
func (t *step) cannotRevoke(c Revoke) Result {
	if d, gone := t.tombs.Get(tombOf(c.Grant)); gone && d.Lock == c.Lock {
		return Result{Status: Done, Number: d.burnt}
	}
	l, ok := t.locks.Get(&lock{name: c.Lock})
	if !ok {
		l = &lock{name: c.Lock}
	}
	if c.Grant == 0 || c.Grant > t.LastNumber() {
		return t.about(ruleNoSuchGrant, l).saying(c.Grant, t.LastNumber())
	}
	return t.about(ruleNotHeld, l).refused()
}

func checkRevoke(c Revoke) rule {
	switch {
	case !nameFits(c.Lock):
		return ruleName
	case c.Now && c.Free:
		return ruleRevokeHow
	case !textFits(c.By):
		return ruleBy
	case !c.Free && c.Cause != ByOperator && c.Cause != ByMaxHold:
		return ruleRevokeCause
	}
	return 0
}

// mark tells the holder to stop; it holds the grant until it released it, its
// session ended, or the leader frees it. A full counter burns no number (the
// result says 0): nothing will be granted after this grant anyway.
func (t *step) mark(g *grant, c Revoke) Result {
	next := *g
	next.revoked, next.revokedAt = true, t.clock
	next.cause, next.by = c.Cause, c.By
	next.burnt, _ = t.nextNumber()
	t.putGrant(&next)
	t.seal(g, next.burnt)
	e := grantEvent(EventRevoked, &next)
	e.Cause, e.By, e.Burnt = endCause(c.Cause), c.By, next.burnt
	t.emitOf(g.Session, e)
	t.touchGrant(&next)
	return Result{Status: Done, Number: next.burnt, Revision: t.rev()}
}

// seal closes a shared run to newcomers once a number was burnt on it: the run
// has one token, its first grant's (A1), so whoever joined would get a token
// that is dead at every gate where the revocation token was armed. A later
// acquire waits as behind an exclusive holder, until the generation has ended.
func (t *step) seal(g *grant, burnt uint64) {
	if !g.Shared || burnt == 0 || planted.On("B11-not-sealed") {
		return
	}
	l := *t.mustLock(g.Lock)
	l.sealed = true
	t.putLock(&l)
}

// free ends a grant without its holder and leaves a tombstone, told to the
// holder until it acknowledges.
func (t *step) free(g *grant, why RevokeCause, by string, burnt uint64) Result {
	t.endGrant(g, end{cause: endCause(why), by: by, burnt: burnt})
	t.putTomb(tomb{
		Tombstone: Tombstone{Grant: g.Number, Lock: g.Lock, Cause: why, By: by},
		session:   g.Session, burnt: burnt,
	})
	t.settle(g.Lock)
	return Result{Status: Done, Number: burnt, Revision: t.rev()}
}

func endCause(c RevokeCause) Cause {
	if c == ByMaxHold {
		return CauseMaxHold
	}
	return CauseOperator
}

// tombOf is the key of a tombstone in tombs.
func tombOf(number uint64) tomb { return tomb{Tombstone: Tombstone{Grant: number}} }

// putTomb keeps at most MaxTombstones a session and drops the oldest.
func (t *step) putTomb(d tomb) {
	t.tombs.ReplaceOrInsert(d)
	t.tombsBySess.ReplaceOrInsert(d)
	x := t.mustSession(d.session)
	x.tombs++
	t.sessions.ReplaceOrInsert(x)
	if x.tombs > MaxTombstones {
		oldest, _ := firstFrom(t.tombsBySess, tomb{session: d.session})
		t.dropTomb(oldest)
	}
}

func (t *step) dropTomb(d tomb) {
	t.tombs.Delete(d)
	t.tombsBySess.Delete(d)
	x := t.mustSession(d.session)
	x.tombs--
	t.sessions.ReplaceOrInsert(x)
}
