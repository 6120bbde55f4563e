package core

import "github.com/google/btree"

// AuditsKept is how many records of operators' calls the state keeps; the
// oldest is dropped.
const AuditsKept = 1000

// auditVersion is the cluster version from which records are in the log. A
// state below it is written in format 1, as it was before there were any.
const auditVersion = 2

// Audit is the record of an operator's call. It stands behind the command that
// carries the call out, in the same entry, or alone if that is no command.
type Audit struct{ AuditCall }

// AuditCall says who called what, and what came of it. The texts are for
// people, at most [MaxLabel] bytes each: nothing decides by them.
type AuditCall struct {
	Call       string // one word: "revoke"
	By         string // who, as they said
	Credential string // what the caller was known by
	Peer       string // from where
	On         string // what it was done to
	// Outcome 0 means that of the command before, in the same entry; then Kind
	// is empty and Reason is core's own. Records in the state have none of it.
	Outcome AuditOutcome
	Kind    string // of the error, if the caller named one
	Reason  Reason // of the refusal by core
	Count   uint32 // how many calls of this kind the record stands for
	// Told is the time of day at the node that wrote the record, as a text
	// that this package does not read (B2).
	Told string
}

// AuditOutcome is what became of an operator's call.
type AuditOutcome uint8

// The outcomes.
const (
	AuditDone    AuditOutcome = iota + 1 // it took effect, or had before
	AuditRefused                         // it could not be done: Kind or Reason
	AuditUnknown                         // nobody knows
	AuditDenied                          // the caller is no operator
	AuditBegun                           // told before it is done; if it fails, another record follows
)

// AuditRecord is a record as the state keeps it.
type AuditRecord struct {
	Revision Revision
	Clock    Clock
	AuditCall
}

func (Audit) command() {}

// audit keeps the record of a call.
func (t *step) audit(c Audit) Result {
	if t.version < auditVersion {
		return refuse(ruleAuditVersion)
	}
	call := c.AuditCall
	if call.Outcome == 0 {
		if len(t.out.Results) == 0 {
			return refuse(ruleAudit)
		}
		call.Outcome, call.Kind, call.Reason = AuditDone, "", 0
		if r := t.out.Results[len(t.out.Results)-1]; r.Status == Refused {
			call.Outcome, call.Reason = AuditRefused, r.Refusal.Reason
		}
	}
	if !call.fits() {
		return refuse(ruleAudit)
	}
	t.audits.ReplaceOrInsert(&AuditRecord{Revision: t.rev(), Clock: t.clock, AuditCall: call})
	for t.audits.Len() > AuditsKept {
		t.audits.DeleteMin()
	}
	t.emit(Event{Kind: EventAudit, By: call.By, Audit: &call})
	return Result{Status: Done, Revision: t.rev()}
}

func (c *AuditCall) fits() bool {
	for _, text := range []string{c.Call, c.By, c.Credential, c.Peer, c.On, c.Kind, c.Told} {
		if !textFits(text) {
			return false
		}
	}
	return c.Call != "" && c.Count > 0 && c.Outcome >= AuditDone && c.Outcome <= AuditBegun && c.Reason <= TooNew
}

// Audits returns the newest records, at most limit, oldest first.
func (s *State) Audits(limit int) []AuditRecord {
	skip := max(0, s.audits.Len()-limit)
	var out []AuditRecord
	s.audits.Ascend(func(r *AuditRecord) bool {
		if skip > 0 {
			skip--
			return true
		}
		out = append(out, *r)
		return true
	})
	return out
}

func newAudits() *btree.BTreeG[*AuditRecord] {
	return btree.NewG(degree, func(a, b *AuditRecord) bool { return a.Revision < b.Revision })
}

func (s *State) checkAudits() {
	must(s.audits.Len() <= AuditsKept, "%d audit records are too many", s.audits.Len())
	must(s.audits.Len() == 0 || s.version >= auditVersion, "audit records at cluster version %d", s.version)
	s.audits.Ascend(func(r *AuditRecord) bool {
		must(r.fits() && r.Revision > 0 && r.Revision <= s.revision, "bad audit record of revision %d", r.Revision)
		return true
	})
}

// auditCommand is the command's body.
func (x *codec) auditCommand(c *Audit) { x.auditCall(&c.AuditCall, x.rest(), 255) }

// auditCall is a call in an entry, or in a state, where texts are short.
func (x *codec) auditCall(c *AuditCall, most int, codes uint8) {
	x.text(&c.Call, most, "audited call")
	x.text(&c.By, most, "audited by")
	x.text(&c.Credential, most, "audited credential")
	x.text(&c.Peer, most, "audited peer")
	x.text(&c.On, most, "audited object")
	x.u8((*uint8)(&c.Outcome), codes, "audited outcome")
	x.text(&c.Kind, most, "audited kind")
	x.u8((*uint8)(&c.Reason), codes, "audited reason")
	x.u32(&c.Count, "audited count")
	x.text(&c.Told, most, "audited time")
}

// stateAudits are the records, from format 2 on.
func (x *codec) stateAudits(s *State) {
	if x.format < 2 {
		return
	}
	x.what, x.nth = "audit records", 0
	n := x.count(s.audits.Len(), AuditsKept, "audit records")
	if x.writing {
		s.audits.Ascend(func(r *AuditRecord) bool {
			x.auditRecord(*r)
			return x.err == nil
		})
		return
	}
	last := Revision(0)
	for i := 1; i <= n && x.err == nil; i++ {
		x.what, x.nth = "audit record", i
		r := x.auditRecord(AuditRecord{})
		if x.reading() && r.Revision <= last {
			x.corrupt("audit records are not in order")
		}
		last = r.Revision
		s.audits.ReplaceOrInsert(&r)
	}
}

func (x *codec) auditRecord(r AuditRecord) AuditRecord {
	x.revision(&r.Revision, 1<<63-1, "audit record's revision")
	x.clock(&r.Clock, "audit record's clock")
	x.auditCall(&r.AuditCall, MaxLabel, 255)
	return r
}

// stateFormatOf is the format in which a state is written. It follows from the
// replicated version, so that equal states have equal bytes whatever binary
// writes them (invariant 8).
func stateFormatOf(version uint32) uint8 {
	if version < auditVersion {
		return 1
	}
	return 2
}

// lastEventKind is the highest kind of event in a format.
func lastEventKind(format uint8) EventKind {
	if format < 2 {
		return EventVersion
	}
	return EventAudit
}
