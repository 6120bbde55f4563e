package core

import "holdfast/internal/planted"

// release gives back the grant with this number and no other (invariant 6,
// C3). It asks for no live session: what the session held is gone with it,
// which is what the caller wants.
func (t *step) release(c Release) Result {
	if c.Grant == 0 || c.Grant > t.LastNumber() {
		return (&refusal{rule: ruleNoSuchGrant}).saying(c.Grant, t.LastNumber())
	}
	if g, held := t.grant(c.Grant); held {
		if g.Session != c.Session {
			return (&refusal{rule: ruleNotYours, lock: g.Lock, holder: t.holder(g)}).refused()
		}
		t.endGrant(g, end{cause: CauseReleased, confirmed: true, failed: c.Failed})
		if !planted.On("I4-not-handed-on") {
			t.settle(g.Lock)
		}
		return Result{Status: Done}
	}
	if planted.On("A1-release-by-lock") {
		t.releaseByLock(c)
	}
	if d, gone := t.tombs.Get(tombOf(c.Grant)); gone && d.session == c.Session {
		t.dropTomb(d) // the holder knows now
	}
	return Result{Status: Done}
}

// releaseByLock releases whoever holds the lock that the named grant was of,
// for a planted bug.
func (t *step) releaseByLock(c Release) {
	name := ""
	t.State.events.Ascend(func(r record) bool {
		if r.Kind == EventGranted && r.Grant == c.Grant {
			name = r.Lock
		}
		return name == ""
	})
	if g, held := t.firstHolder(name); held && g.Session == c.Session {
		t.endGrant(g, end{cause: CauseReleased, confirmed: true, failed: c.Failed})
		t.settle(name)
	}
}
