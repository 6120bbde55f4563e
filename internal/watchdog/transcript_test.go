package watchdog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestTranscripts replays testdata/transcripts; -rewrite writes them anew. Every
// command may be preceded by "at=DURATION"; without it no time passes. Jitter
// is 0 throughout, so retries come as early as they can.
//
//	new [ttl= margin= interval= timeout=]     a session, opened by a call that left at 0
//	begin [try]                               start an acquire
//	abandon lane= n=
//	release grant= [failed]
//	fail grant= cause=liveness|dropped
//	hurry | close | tick
//	settle call= done|retry|refused|session-lost [grant=] [revoked=ID] [gone] [max-hold] [by=] [contended=ID]
//	run until=                                tick at every wake until then
//	state grant=
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		var r rig
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return r.command(t, d) })
	})
}

type rig struct {
	m   *Machine
	now Instant
}

func duration(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	t.Helper()
	if !d.HasArg(key) {
		return 0
	}
	var s string
	d.ScanArgs(t, key, &s)
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("%s: %v", d.Pos, err)
	}
	return v
}

func text(t *testing.T, d *datadriven.TestData, key string) string {
	t.Helper()
	var s string
	if d.HasArg(key) {
		d.ScanArgs(t, key, &s)
	}
	return s
}

func number(t *testing.T, d *datadriven.TestData, key string) uint64 {
	t.Helper()
	var n uint64
	d.ScanArgs(t, key, &n)
	return n
}

func (r *rig) command(t *testing.T, d *datadriven.TestData) string {
	if d.HasArg("at") {
		r.now = duration(t, d, "at")
	}
	now := Moment{At: r.now}
	switch d.Cmd {
	case "new":
		s := Settings{
			TTL: duration(t, d, "ttl"), Margin: duration(t, d, "margin"),
			Interval: duration(t, d, "interval"), CallTimeout: duration(t, d, "timeout"),
		}.WithDefaults()
		if err := s.Validate(); err != nil {
			t.Fatalf("%s: %v", d.Pos, err)
		}
		r.m, r.now = New(s, 0), 0
		return r.after(nil)
	case "begin":
		id, acts, err := r.m.Begin(now, d.HasArg("try"))
		if err != nil {
			return r.after(acts) + "error: " + err.Error() + "\n"
		}
		return fmt.Sprintf("request %d/%d\n", id.Lane, id.N) + r.after(acts)
	case "abandon":
		return r.after(r.m.Abandon(now, Request{uint32(number(t, d, "lane")), number(t, d, "n")}))
	case "release":
		return r.after(r.m.Release(now, text(t, d, "grant"), d.HasArg("failed")))
	case "fail":
		cause := Liveness
		if text(t, d, "cause") == "dropped" {
			cause = Dropped
		}
		return r.after(r.m.Fail(now, text(t, d, "grant"), cause))
	case "hurry":
		return r.after(r.m.Hurry(now))
	case "close":
		return r.after(r.m.Close(now))
	case "tick":
		return r.after(r.m.Tick(now))
	case "settle":
		return r.after(r.m.Settle(now, CallID(number(t, d, "call")), reply(t, d)))
	case "run":
		return r.run(duration(t, d, "until"))
	case "state":
		return r.m.State(r.now, text(t, d, "grant")).String() + "\n"
	}
	t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	return ""
}

func reply(t *testing.T, d *datadriven.TestData) Reply {
	var rep Reply
	switch {
	case d.HasArg("done"):
		rep.Verdict = Done
	case d.HasArg("refused"):
		rep.Verdict = Refused
	case d.HasArg("session-lost"):
		rep.Verdict = SessionLost
	}
	rep.Grant = text(t, d, "grant")
	if id := text(t, d, "revoked"); id != "" {
		rev := Revocation{Grant: id, Cause: Revoked, By: text(t, d, "by"), Gone: d.HasArg("gone")}
		if d.HasArg("max-hold") {
			rev.Cause = MaxHold
		}
		rep.Revoked = append(rep.Revoked, rev)
	}
	if id := text(t, d, "contended"); id != "" {
		rep.Contended = append(rep.Contended, id)
	}
	return rep
}

// run ticks whenever the machine wants it.
func (r *rig) run(until Instant) string {
	var b strings.Builder
	for n := 0; ; n++ {
		wake, ok := r.m.Wake()
		if n > 1000 {
			return "stuck: the machine wants to be called for ever\n"
		}
		if !ok || wake > until {
			r.now = until
			return b.String() + r.after(nil)
		}
		r.now = max(r.now, wake)
		for _, a := range r.m.Tick(Moment{At: r.now}) {
			fmt.Fprintf(&b, "%v: %s\n", r.now, describe(a))
		}
	}
}

// after prints actions, and when the machine wants to be called again.
func (r *rig) after(acts []Action) string {
	var b strings.Builder
	for _, a := range acts {
		b.WriteString(describe(a) + "\n")
	}
	if wake, ok := r.m.Wake(); ok {
		fmt.Fprintf(&b, "wake %v, deadline %v\n", wake, r.m.Deadline())
	} else {
		b.WriteString("no wake\n")
	}
	return b.String()
}

var callNames = map[CallKind]string{
	CallKeepalive: "keepalive", CallAcquire: "acquire", CallCancel: "cancel", CallRelease: "release", CallEnd: "end",
}

var actionNames = map[ActionKind]string{
	Send: "send", Abort: "abort", Granted: "granted", Declined: "declined", GaveUp: "gave up", Settled: "settled",
	GrantLost: "lost", GrantContended: "contended", GrantReleased: "released", SessionOver: "session over", Finished: "finished",
}

func describe(a Action) string {
	s := actionNames[a.Kind]
	if a.Kind == Send {
		s += " " + callNames[a.Send]
	}
	if a.Call != 0 {
		s += fmt.Sprintf(" #%d", a.Call)
	}
	if a.Request.N != 0 {
		s += fmt.Sprintf(" request %d/%d", a.Request.Lane, a.Request.N)
	}
	if a.Grant != "" {
		s += " grant " + a.Grant
	}
	if a.Cause != 0 {
		s += " cause " + a.Cause.String()
	}
	if a.By != "" {
		s += " by " + a.By
	}
	if a.Failed {
		s += " failed"
	}
	return s
}
