package lease

import (
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"holdfast/server/core"
)

// TestTranscripts plays the files of testdata: each shows one rule at work.
// Times on the left are seconds of real time since the start. Rewrite them with
// `go test ./server/lease -rewrite`, and read the difference.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		r := newRig(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			r.t = t
			play(t, r, d)
			return r.take()
		})
	})
}

func play(t *testing.T, r *rig, d *datadriven.TestData) {
	var id, grant uint64
	var lock string
	dur := func(key string) time.Duration { return argument(t, d, key) }
	first := func() time.Duration { return parse(t, d.CmdArgs[0].Key) }
	d.MaybeScanArgs(t, "id", &id)
	d.MaybeScanArgs(t, "grant", &grant)
	d.MaybeScanArgs(t, "lock", &lock)
	sid := core.SessionID(id)
	switch d.Cmd {
	case "elect":
		r.elect(dur("gap"), d.HasArg("keep"))
	case "depose":
		r.depose(false)
	case "open":
		r.open(sid, dur("ttl"))
	case "run":
		r.run(first())
	case "stall":
		r.stall(first())
	case "commit-after":
		r.commit = first()
	case "confirm-after":
		r.confirm = first()
	case "drain-after":
		r.drain = first()
	case "show-ticks":
		r.showTicks = true
	case "refuse":
		r.refuse, _ = strconv.ParseBool(d.CmdArgs[0].Key)
	case "member":
		r.members = append(r.members, &member{id: sid, every: dur("every"), next: r.now + dur("every")})
	case "keepalive":
		r.say("keepalive of %d is %d", sid, r.keepalive(sid))
		r.turn()
	case "acquire":
		var n uint64 = 1
		d.MaybeScanArgs(t, "n", &n)
		r.acquire(core.Acquire{Session: sid, Request: core.Request{N: n}, Lock: lock, MaxHold: dur("max-hold"),
			LockDelay: dur("lock-delay"), OncePer: dur("once-per")})
	case "revoke":
		cmd := core.Revoke{Lock: lock, Grant: grant, Now: d.HasArg("now"), Cause: core.ByOperator, By: "op"}
		r.m.Proposed([]core.Command{cmd})
		r.propose(nil, cmd)
	case "release":
		r.propose(nil, core.Release{Session: sid, Grant: grant})
		r.run(r.commit)
	case "show":
		left, ok := r.m.TTLLeft(r.now, r.st, sid)
		ago, heard := r.m.Heard(r.now, sid)
		r.say("session %d: left %v %t, heard %v %t; clock %v, of the state %v", sid, left, ok, ago, heard,
			time.Duration(r.m.Clock(r.now)), time.Duration(r.st.Clock()))
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
}

// argument is a duration given as key=value; 0 if it is not given.
func argument(t *testing.T, d *datadriven.TestData, key string) time.Duration {
	if !d.HasArg(key) {
		return 0
	}
	var s string
	d.ScanArgs(t, key, &s)
	return parse(t, s)
}

func parse(t *testing.T, s string) time.Duration {
	t.Helper()
	v, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
