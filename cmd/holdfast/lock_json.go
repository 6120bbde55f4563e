package main

import (
	"strconv"
	"time"

	"holdfast/engine/cluster"
)

// The JSON of the read commands. Field names are stable: scripts depend on
// them. 64-bit numbers and tokens are strings, durations are milliseconds with
// the unit in the name, a value is base64.

type lockJSON struct {
	Name           string       `json:"name"`
	Holders        []holderJSON `json:"holders"`
	Waiters        int          `json:"waiters"`
	Queue          []waiterJSON `json:"queue,omitempty"`
	Limit          uint32       `json:"limit,omitempty"`
	Value          *[]byte      `json:"value,omitempty"`
	ValueSession   string       `json:"value_session,omitempty"`
	Sealed         bool         `json:"sealed,omitempty"`
	Closed         bool         `json:"closed"`
	ClosedCause    string       `json:"closed_cause,omitempty"`
	OpensInMS      int64        `json:"opens_in_ms,omitempty"`
	CreateRevision string       `json:"create_revision"`
	ModifyRevision string       `json:"modify_revision"`
	Revision       string       `json:"revision"` // of the state that was read
}

type holderJSON struct {
	Grant         string `json:"grant"`
	Token         string `json:"token"`
	TokenNumber   string `json:"token_number"`
	Session       string `json:"session"`
	Label         string `json:"label"`
	Host          string `json:"host"`
	Shared        bool   `json:"shared"`
	Slot          uint32 `json:"slot"`
	Since         string `json:"since"` // wall time of this machine, RFC 3339
	HeldMS        int64  `json:"held_ms"`
	LastRenewalMS *int64 `json:"last_renewal_ms"` // ago; null: not heard by this server
	TTLLeftMS     int64  `json:"ttl_left_ms"`
	Revoked       bool   `json:"revoked"`
	RevokeCause   string `json:"revoke_cause,omitempty"`
	RevokeBy      string `json:"revoke_by,omitempty"`
	FreeCommand   string `json:"free_command"`
}

type waiterJSON struct {
	Place    int    `json:"place"` // 1 is the head
	Session  string `json:"session"`
	Label    string `json:"label"`
	Host     string `json:"host"`
	Shared   bool   `json:"shared"`
	WaitedMS int64  `json:"waited_ms"`
}

type sessionJSON struct {
	ID            string   `json:"id"`
	Label         string   `json:"label"`
	Host          string   `json:"host"`
	TTLMS         int64    `json:"ttl_ms"`
	TTLLeftMS     int64    `json:"ttl_left_ms"`
	LastRenewalMS *int64   `json:"last_renewal_ms"` // ago; null: not heard by this server
	Suspected     bool     `json:"suspected"`
	AgeMS         int64    `json:"age_ms"`
	Attached      bool     `json:"attached"`
	Holds         []string `json:"holds"`
	WaitsFor      []string `json:"waits_for"`
}

type eventJSON struct {
	Revision    string     `json:"revision"`
	Kind        string     `json:"kind"`
	Cause       string     `json:"cause,omitempty"`
	Lock        string     `json:"lock,omitempty"`
	Session     string     `json:"session,omitempty"`
	Label       string     `json:"label,omitempty"`
	Host        string     `json:"host,omitempty"`
	Grant       string     `json:"grant,omitempty"`
	Token       string     `json:"token,omitempty"`
	TokenNumber string     `json:"token_number,omitempty"`
	Shared      bool       `json:"shared,omitempty"`
	Value       *[]byte    `json:"value,omitempty"`
	ClockMS     int64      `json:"clock_ms"` // of the log
	By          string     `json:"by,omitempty"`
	Burnt       string     `json:"burnt,omitempty"`
	Audit       *auditJSON `json:"audit,omitempty"`
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

// numberIf is number, or nothing for 0.
func numberIf(n uint64) string {
	if n == 0 {
		return ""
	}
	return number(n)
}

func bytesIf(has bool, b []byte) *[]byte {
	if !has {
		return nil
	}
	if b == nil {
		b = []byte{}
	}
	return &b
}

func toLockJSON(l *cluster.Lock, servers string) lockJSON {
	out := lockJSON{
		Name: l.Name, Holders: []holderJSON{}, Waiters: l.Waiters, Limit: l.Limit,
		Value: bytesIf(l.HasValue, l.Value), ValueSession: numberIf(l.ValueSession),
		Sealed: l.Sealed, Closed: l.Closed, ClosedCause: l.ClosedCause, OpensInMS: millis(l.OpensIn),
		CreateRevision: number(l.CreateRevision), ModifyRevision: number(l.ModifyRevision),
		Revision: number(l.Read.Revision),
	}
	if l.Limit == 1 {
		out.Limit = 0 // a plain lock
	}
	for _, h := range l.Holders {
		out.Holders = append(out.Holders, holderJSON{
			Grant: number(h.Grant), Token: h.Token.String(), TokenNumber: number(h.Token.Number),
			Session: number(h.SessionID), Label: h.Label, Host: h.Host, Shared: h.Shared, Slot: h.Token.Slot,
			Since: since(h.Held).Format(time.RFC3339Nano), HeldMS: millis(h.Held),
			LastRenewalMS: millisOf(h.LastHeard), TTLLeftMS: millis(h.TTLLeft),
			Revoked: h.Revoked, RevokeCause: h.RevokeWhy, RevokeBy: h.RevokeBy,
			FreeCommand: freeCommand(l.Name, h.Grant, servers),
		})
	}
	for _, w := range l.Queue {
		out.Queue = append(out.Queue, waiterJSON{
			Place: w.Place, Session: number(w.SessionID), Label: w.Label, Host: w.Host, Shared: w.Shared, WaitedMS: millis(w.Waited),
		})
	}
	return out
}

func toSessionJSON(s *cluster.Session) sessionJSON {
	return sessionJSON{
		ID: number(s.ID), Label: s.Label, Host: s.Host, TTLMS: millis(s.TTL), TTLLeftMS: millis(s.TTLLeft),
		LastRenewalMS: millisOf(s.LastHeard), Suspected: s.Suspected, AgeMS: millis(s.Age), Attached: s.Attached,
		Holds: append([]string{}, s.Holds...), WaitsFor: append([]string{}, s.WaitsFor...),
	}
}

func toEventJSON(e *cluster.Event) eventJSON {
	out := eventJSON{
		Revision: number(e.Revision), Kind: e.Kind, Cause: e.Cause, Lock: e.Lock, Session: numberIf(e.SessionID),
		Label: e.Label, Host: e.Host, Grant: numberIf(e.Grant), Shared: e.Shared,
		Value: bytesIf(e.HasValue, e.Value), ClockMS: millis(e.Clock), By: e.By, Burnt: numberIf(e.Burnt),
	}
	if e.Audit != nil {
		audit := toAuditJSON(&cluster.AuditRecord{Revision: e.Revision, Clock: e.Clock, AuditCall: *e.Audit})
		out.Audit = &audit
	}
	if !e.Token.IsZero() {
		out.Token, out.TokenNumber = e.Token.String(), number(e.Token.Number)
	}
	return out
}

// since is the wall time, of this machine, at which something that lasted for
// d began. The service itself keeps no wall time.
func since(d time.Duration) time.Time { return time.Now().Add(-d).Truncate(time.Millisecond) }

// freeCommand is the command that takes a grant back, ready to be pasted.
func freeCommand(name string, grant uint64, servers string) string {
	cmd := "holdfast lock revoke --token " + number(grant)
	if servers != defaultServer {
		cmd += " --server " + shellQuote(servers)
	}
	return cmd + " -- " + shellQuote(name)
}
