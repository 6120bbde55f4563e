package core

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts plays testdata/*.txt. To write the expected parts anew, run
//
//	go test ./server/core -run TestTranscripts -rewrite
//
// and read the difference. Each input line is one command; the lines of one
// apply are one entry. After every entry the invariants are checked, and the
// state goes on as what its own encoding gives.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		s := testState()
		clock := Clock(0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.HasArg("at") {
				var at string
				d.ScanArgs(t, "at", &at)
				c, err := time.ParseDuration(at)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				clock = Clock(c)
			}
			if d.Cmd != "apply" {
				return query(t, s, d)
			}
			out := applyLines(t, s, clock, d.Input)
			s = reload(t, s)
			return out
		})
	})
}

func applyLines(t *testing.T, s *State, clock Clock, input string) string {
	var lines []string
	var cmds []Command
	for line := range strings.Lines(input) {
		line = strings.TrimSpace(line)
		c, err := parseCommand(line)
		if err != nil {
			return err.Error()
		}
		lines, cmds = append(lines, line), append(cmds, c)
	}
	a, err := s.Apply(Entry{Index: s.Index() + 1, Term: 1, Header: Header{Clock: clock}, Commands: cmds})
	if err != nil {
		return err.Error()
	}
	if err := s.Check(); err != nil {
		t.Fatalf("after\n%s\n%v", input, err)
	}
	return formatApplied(lines, a)
}

func query(t *testing.T, s *State, d *datadriven.TestData) string {
	var b strings.Builder
	switch d.Cmd {
	case "lock":
		v, ok := s.Lock(d.CmdArgs[0].Key, 10)
		if !ok {
			return "no such lock"
		}
		return formatLock(v)
	case "locks":
		for _, v := range s.Locks("", "", math.MaxInt) {
			b.WriteString(formatLock(v))
		}
		if b.Len() == 0 {
			return "none"
		}
	case "session":
		v, ok := s.Session(SessionID(parseNumber(d.CmdArgs[0].Key)))
		if !ok {
			return "no such session"
		}
		fmt.Fprintf(&b, "%s  contended %v\n", formatSession(v), s.Contended(v.ID))
		for _, r := range s.Revocations(v.ID) {
			fmt.Fprintf(&b, "  revoked #%s gone=%v\n", formatNumber(r.Grant), r.Gone)
		}
	case "lane":
		var lane int
		d.ScanArgs(t, "lane", &lane)
		r, o, ok := s.Lane(SessionID(parseNumber(d.CmdArgs[0].Key)), uint32(lane))
		return fmt.Sprintf("%v %d/%d %s\n", ok, r.Lane, r.N, formatResult(o))
	case "audits":
		for _, r := range s.Audits(3) {
			fmt.Fprintf(&b, "r%d %s by=%s %s\n", r.Revision, formatClock(r.Clock), r.By, formatAudit(r.AuditCall))
		}
		if b.Len() == 0 {
			return "none"
		}
	case "timing":
		s.EachSessionTiming(func(x SessionTiming) bool {
			fmt.Fprintf(&b, "session %d ttl=%s suspected=%v since=%s\n", x.ID, x.TTL, x.Suspected, formatClock(x.Since))
			return true
		})
		s.EachTimedGrant(func(g GrantTiming) bool {
			fmt.Fprintf(&b, "grant %s of %d on %s ttl=%s ends=%s revoked=%v at %s\n", formatNumber(g.Number), g.Session, g.Lock, g.TTL, formatClock(g.EndsAt), g.Revoked, formatClock(g.RevokedAt))
			return true
		})
		s.EachClosing(func(c ClosingTiming) bool {
			fmt.Fprintf(&b, "closed %s closing=%d opens=%s\n", c.Lock, c.Closing, formatClock(c.OpensAt))
			return true
		})
	case "state":
		domain := s.Domain()
		members, removed := s.Members()
		fmt.Fprintf(&b, "domain=%q incarnation=%d epoch=%d last=%s revision=%d clock=%s version=%d sessions=%d locks=%d members=%v removed=%v\n",
			bytes.TrimRight(domain[:], "\x00"), s.Incarnation(), s.Epoch(), formatNumber(s.LastNumber()), s.Revision(), formatClock(s.Clock()),
			s.Version(), s.SessionCount(), s.LockCount(), members, removed)
	default:
		d.Fatalf(t, "no such query")
	}
	return b.String()
}
