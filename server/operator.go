package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
)

// operation is one operator's call, from the check of who makes it to its
// record.
type operation struct {
	call string // one word, such as "revoke": a label of the metric
	by   string // who makes it: as they say, then as it is recorded
	on   string // what it is done to, for people: "session 7"
	// credential is what the caller is known by; "" if by none.
	credential string
	peer       string
	// begun: the log has a record that what was asked for is about to be done.
	begun bool
	// leaves: when the call is done this node does not lead any more, and
	// cannot say so in the log: the record that it was begun is the last one.
	leaves   bool
	recorded bool  // the record is, or will be, in the log with the command
	args     []any // more for the log
}

// add puts more into the record, pairs as slog takes them.
func (op *operation) add(args ...any) { op.args = append(op.args, args...) }

// operator runs do, an operator's call, if its caller may make it, and records
// the call in any case. Everything that an operator may do goes through here,
// unary calls and streams. While do runs, op.by is who makes the call. do must
// not act before the record is in the log: doRecorded puts it into the entry of
// the command, and before everything that is no command stands begin.
func (s *service) operator(ctx context.Context, peer connect.Peer, op *operation, do func() error) error {
	op.peer = peer.Addr
	if err := s.permit(ctx, peer, op); err != nil {
		if classify(err).Kind != driver.Denied {
			s.audit(op, outcomes[core.AuditRefused], err)
			return err
		}
		s.audit(op, outcomes[core.AuditDenied], err)
		s.denied(ctx, op)
		return err
	}
	err := do()
	s.recordEnd(ctx, op, err)
	return err
}

// permit checks who makes an operator's call: somebody with a credential if
// any is configured, and else this machine only. The answer to whoever is
// refused never depends on what was offered.
func (s *service) permit(ctx context.Context, peer connect.Peer, op *operation) error {
	said := checkText("by", op.by)
	if said != nil {
		op.by = ""
	} else if op.by == "" {
		op.by = "operator at " + peer.Addr
	}
	if s.operators.configured() {
		var shows shown
		if c := callOf(ctx); c != nil {
			shows = c.shows
		}
		var ok bool
		if shows.authorization != "" && !shows.secret(peer.Addr) {
			s.log.Warn("a credential crossed the network in the clear and is not taken: replace it, and use TLS", "peer", peer.Addr)
			shows.authorization = ""
		}
		if op.credential, ok = s.operators.who(shows); !ok {
			return &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: "only operators may do this, and the caller is not known as one: show an operator's credential"}
		}
		return said
	}
	op.credential = "this machine"
	if !fromHere(peer.Addr) {
		op.credential = ""
		return &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: "operator calls are taken from the server's own machine only: run the command there, against a loopback address"}
	}
	return said
}

// audit writes the record of an operator's call into the node's own log: who,
// what, outcome. Refused and denied calls have one too.
func (s *service) audit(op *operation, outcome string, err error) {
	level, args := slog.LevelInfo, op.args
	if err != nil {
		e := classify(err)
		level = slog.LevelWarn
		args = append(args, "kind", e.Kind.String(), "error", e.Error())
	}
	args = append([]any{"call", op.call, "by", op.by, "on", op.on, "credential", op.credential, "peer", op.peer, "outcome", outcome}, args...)
	s.log.Log(context.Background(), level, "audit", args...)
	s.metrics.audits.WithLabelValues(op.call, outcome).Inc()
}

// fromHere reports whether a peer's address is this machine's loopback.
func fromHere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
