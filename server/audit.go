package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

const (
	// recordWithin is how long a call waits until its record is in the log.
	recordWithin = 5 * time.Second
	// deniedEvery is how often denied calls of one kind get a record in the
	// log, with their number: whoever may not do anything must not be able to
	// push the records of those who may out of it.
	deniedEvery = time.Minute
	// defaultAudits is how many records are shown if none are asked for.
	defaultAudits = 100
)

// outcomes are the words for core's.
var outcomes = map[core.AuditOutcome]string{
	core.AuditDone: "done", core.AuditRefused: "refused", core.AuditUnknown: "unknown",
	core.AuditDenied: "denied", core.AuditBegun: "begun",
}

// record is what the record of op says. Outcome 0 is that of the command before.
func (op *operation) record(outcome core.AuditOutcome, kind string, count uint32) core.Audit {
	return core.Audit{AuditCall: core.AuditCall{
		Call: auditText(op.call), By: auditText(op.by), Credential: auditText(op.credential), Peer: auditText(op.peer), On: auditText(op.on),
		Outcome: outcome, Kind: kind, Count: count, Told: time.Now().UTC().Format(time.RFC3339),
	}}
}

// auditText makes a text fit for a record.
func auditText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	for len(s) > core.MaxLabel {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

func auditBytes(c core.Audit) int {
	return len(c.Call) + len(c.By) + len(c.Credential) + len(c.Peer) + len(c.On) + len(c.Kind) + len(c.Told)
}

// recordOf is the record that goes into the entry behind a proposal's command;
// nil if there is none, or if the cluster's version does not know records yet
// (then the node's own log has it).
func (b *batch) recordOf(p proposal) *core.Audit {
	if p.audit == nil || b.state.Version() < core.VersionOf(*p.audit) {
		return nil
	}
	return p.audit
}

// doAudited is Do for a command whose record goes into the same entry: both are
// applied, or neither is.
func (n *Node) doAudited(ctx context.Context, cmd core.Command, record core.Audit) (core.Result, error) {
	got := make(chan Answer, 2)
	n.in.put(request{cmd: cmd, audit: &record, sink: func(a Answer) { got <- a }}, urgent(cmd))
	select {
	case a := <-got:
		return a.Result, a.Err
	case <-ctx.Done():
		return core.Result{}, fmt.Errorf("%w: no answer in time: %w", ErrUnknownOutcome, context.Cause(ctx))
	}
}

// doRecorded is do for the command of an operator's call, with its record.
func (s *service) doRecorded(ctx context.Context, op *operation, cmd core.Command) (core.Result, error) {
	op.recorded = true
	res, err := s.node.doAudited(ctx, cmd, op.record(0, "", 1))
	if err == nil && res.Status == core.Refused {
		err = s.at().refused(res.Refusal)
	}
	return res, err
}

// record puts the record of a call into the log.
func (s *service) record(ctx context.Context, op *operation, outcome core.AuditOutcome, kind driver.Kind) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	text := ""
	if outcome == core.AuditRefused || outcome == core.AuditUnknown {
		text = kind.String()
	}
	_, err := s.do(ctx, op.record(outcome, text, 1))
	if errors.Is(err, ErrTooNew) {
		return nil // until then the node's own log has to do
	}
	return err
}

// begin puts a record into the log that a call is about to be done. A node that
// dies before the end leaves it there, without an end; nothing is done without
// it.
func (s *service) begin(ctx context.Context, op *operation) error {
	if err := s.record(ctx, op, core.AuditBegun, driver.Internal); err != nil {
		return nothingDone(err)
	}
	op.begun = true
	if s.begun != nil {
		s.begun(op.call)
	}
	return nil
}

// recordEnd makes the records of a call that is done or has failed, here and
// in the log.
func (s *service) recordEnd(ctx context.Context, op *operation, err error) {
	outcome, kind := core.AuditDone, driver.Internal
	if err != nil {
		e := classify(err)
		outcome, kind = core.AuditRefused, e.Kind
		if e.Outcome == driver.Unknown {
			outcome = core.AuditUnknown
		}
	}
	s.audit(op, outcomes[outcome], err)
	switch {
	case op.recorded, op.leaves && err == nil:
		return
	case outcome == core.AuditRefused && slices.Contains([]driver.Kind{driver.Unavailable, driver.Overloaded, driver.Invalid}, kind):
		// Nothing was done, and nothing can be written here; or what was asked
		// for makes no sense. The node's own log has it.
		return
	}
	if err := s.record(ctx, op, outcome, kind); err != nil {
		s.unrecorded(op, outcomes[outcome], err)
	}
}

// unrecorded says that the log does not have what it should have of a call.
func (s *service) unrecorded(op *operation, outcome string, why error) {
	s.metrics.unrecorded.Inc()
	s.log.Error("the record of an operator's call did not get into the replicated log; this line is all there is", "call", op.call, "by", op.by, "on", op.on, "outcome", outcome, "error", why)
}

// denials are the denied calls that have no record in the log yet, by call.
type denials struct {
	mu  sync.Mutex
	all map[string]*denial
}

type denial struct {
	told  time.Time
	count uint32
}

// due counts a denied call, and returns how many are to be told now; 0 if it is
// not time yet.
func (d *denials) due(call string, now time.Time) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = map[string]*denial{}
	}
	one := d.all[call]
	if one == nil {
		one = &denial{}
		d.all[call] = one
	}
	one.count++
	if !one.told.IsZero() && now.Sub(one.told) < deniedEvery {
		return 0
	}
	count := one.count
	one.told, one.count = now, 0
	return count
}

// denied puts denied calls into the log, now and then. If that fails they are
// in the node's own log, and counted.
func (s *service) denied(ctx context.Context, op *operation) {
	count := s.denials.due(op.call, time.Now())
	if count == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordWithin)
	defer cancel()
	_, _ = s.do(ctx, op.record(core.AuditDenied, driver.Denied.String(), count))
}

// ListAudit implements the service.
func (s *service) ListAudit(ctx context.Context, req *connect.Request[holdfastv1.ListAuditRequest]) (*connect.Response[holdfastv1.ListAuditResponse], error) {
	limit := int(req.Msg.GetLimit())
	switch {
	case limit == 0:
		limit = defaultAudits
	case limit > core.AuditsKept:
		return nil, invalid("limit is %d: want 1 … %d, or 0 for the default %d", limit, core.AuditsKept, defaultAudits)
	}
	out := &holdfastv1.ListAuditResponse{}
	var records []core.AuditRecord
	err := s.node.View(ctx, req.Msg.GetAllowStale(), func(r Reading) {
		out.Read, records = readInfo(r), r.State.Audits(limit)
	})
	if err != nil {
		return nil, nothingDone(err)
	}
	for i := range records {
		r := &records[i]
		out.Records = append(out.Records, &holdfastv1.AuditRecord{
			Revision: uint64(r.Revision), ClockMs: uint64(time.Duration(r.Clock).Milliseconds()), Call: auditMessage(&r.AuditCall),
		})
	}
	return answer(out)
}

func auditMessage(c *core.AuditCall) *holdfastv1.AuditCall {
	kind := c.Kind
	if k, ok := kinds[c.Reason]; ok && kind == "" {
		kind = k.String()
	}
	return &holdfastv1.AuditCall{
		Call: c.Call, By: c.By, Credential: c.Credential, Peer: c.Peer, On: c.On,
		Outcome: outcomes[c.Outcome], Kind: kind, Count: c.Count, Told: c.Told,
	}
}
