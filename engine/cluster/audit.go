package cluster

import (
	"context"
	"time"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// AuditCall says which operator's call was made, and what came of it. The
// texts are for people.
type AuditCall struct {
	Call       string // revoke, expel, add-member, …
	By         string // who, as they said
	Credential string // what they were known by; "" if by nothing
	Peer       string // from which address
	On         string // what it was done to
	// Outcome is done, refused, denied, unknown, or begun: told before it was
	// done.
	Outcome string
	Kind    driver.Kind // refused: why; else [driver.Internal], which says nothing
	// Count is how many denied calls there were since the last record of them;
	// else 1.
	Count uint32
	// Told is the time of day at the node that wrote the record; zero if it
	// makes no sense.
	Told time.Time
}

// AuditRecord is the record of an operator's call, as the service keeps it.
type AuditRecord struct {
	Revision uint64
	Clock    time.Duration // the log's clock
	AuditCall
}

// Audit returns the newest records of operators' calls, oldest first: at most
// limit, or 100 if it is 0. The service keeps 1,000. revision is the one up to
// which they tell all; [Client.Watch] goes on from there.
func (c *Client) Audit(ctx context.Context, limit uint32) (records []AuditRecord, revision uint64, err error) {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	res, _, e := unary(ctx, c.link, always, holdfastv1connect.LockServiceClient.ListAudit, &holdfastv1.ListAuditRequest{Limit: limit})
	if e != nil {
		return nil, 0, asRead(e)
	}
	for _, r := range res.GetRecords() {
		records = append(records, AuditRecord{Revision: r.GetRevision(), Clock: wire.FromMillis(r.GetClockMs()), AuditCall: *auditCall(r.GetCall())})
	}
	return records, res.GetRead().GetRevision(), nil
}

func auditCall(m *holdfastv1.AuditCall) *AuditCall {
	told, _ := time.Parse(time.RFC3339, m.GetTold())
	return &AuditCall{
		Call: m.GetCall(), By: m.GetBy(), Credential: m.GetCredential(), Peer: m.GetPeer(), On: m.GetOn(),
		Outcome: m.GetOutcome(), Kind: driver.ParseKind(m.GetKind()), Count: m.GetCount(), Told: told,
	}
}
