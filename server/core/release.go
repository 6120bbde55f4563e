package core

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
		t.settle(g.Lock)
		return Result{Status: Done}
	}
	if d, gone := t.tombs.Get(tombOf(c.Grant)); gone && d.session == c.Session {
		t.dropTomb(d) // the holder knows now
	}
	return Result{Status: Done}
}
