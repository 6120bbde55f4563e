package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// FuzzRequests reads requests from JSON and from protobuf and checks them as
// the calls do: whatever passes keeps core's rules, whatever does not is
// refused as invalid.
func FuzzRequests(f *testing.F) {
	f.Add(true, []byte(`{"session":{"id":"1"},"request":{"n":"1"},"lock":"a","waitMs":"5","value":""}`))
	f.Add(true, []byte(`{"ttlMs":1000,"label":"é","instance":"AAAAAAAAAAAAAAAAAAAAAQ=="}`))
	f.Add(false, []byte("\x12\x02\x10\x01\x1a\x01a \x05"))
	f.Fuzz(func(t *testing.T, asJSON bool, data []byte) {
		read := func(m proto.Message) bool {
			if asJSON {
				return wire.UnmarshalJSON(data, m) == nil
			}
			return proto.Unmarshal(data, m) == nil
		}
		refusal := func(err error) {
			if e := classify(err); e.Kind != driver.Invalid || e.Outcome != driver.No || e.Error() == "" {
				t.Errorf("refused as %v, %v: %v", e.Kind, e.Outcome, err)
			}
		}
		if m := (&holdfastv1.AcquireRequest{}); read(m) {
			if cmd, wait, err := acquireCommand(m); err != nil {
				refusal(err)
			} else if core.ValidateLockName(cmd.Lock) != nil || len(cmd.Value) > core.MaxValue || cmd.Request.N == 0 || cmd.Request.N > core.MaxRequest || wait < 0 || wait > wire.MaxWait ||
				cmd.LockDelay < 0 || cmd.OncePer < 0 || cmd.MaxHold < 0 || cmd.Limit > core.MaxPermits || cmd.Try != (wait == 0 && !m.GetWaitForever()) {
				t.Errorf("accepted: %+v, wait %v", cmd, wait)
			}
		}
		if m := (&holdfastv1.OpenSessionRequest{}); read(m) {
			if cmd, err := openCommand(m, wire.Secret{1}, false); err != nil {
				refusal(err)
			} else if cmd.TTL < core.MinTTL || cmd.TTL > core.MaxTTL || len(cmd.Label) > core.MaxLabel || len(cmd.Host) > core.MaxLabel || cmd.SecretHash == ([32]byte{}) {
				t.Errorf("accepted: %+v", cmd)
			}
		}
		if m := (&holdfastv1.WatchRequest{}); read(m) {
			if _, err := newFilter(m.GetLock(), m.GetPrefix()); err != nil {
				refusal(err)
			}
		}
		if m := (&holdfastv1.ListLocksRequest{}); read(m) {
			if _, err := lockPage(m.GetPageToken()); err != nil {
				refusal(err)
			}
		}
	})
}

// FuzzSessionRequest gives a stream of a real server any message: each frame
// is answered once (an acquire also with its place), or the message is refused
// as a whole, and the node lives on.
func FuzzSessionRequest(f *testing.F) {
	seed := func(frames ...*holdfastv1.ClientFrame) {
		for i, fr := range frames {
			fr.Id = uint64(i + 1)
		}
		data, err := proto.Marshal(&holdfastv1.SessionRequest{Frames: frames})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	seed(frameOpen(&holdfastv1.OpenSessionRequest{Instance: instance("p"), TtlMs: 1000}))
	seed(frameAcquire(5, 0, 1, "x", true), frameCancel(5, 0, 1), frameRelease(5, 1), frameKeepAlive(5, 6), frameEnd(5))
	seed(frameAttach(&holdfastv1.SessionRef{Id: 5, Secret: wire.Secret{1}.String()}, "p", 1), &holdfastv1.ClientFrame{})
	node, err := StartNode(context.Background(), NodeConfig{Dir: f.TempDir(), Tick: 20 * time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		if err := node.Stop(context.Background()); err != nil {
			f.Error(err)
		}
	})
	s := &service{node: node, log: node.cfg.Logger, metrics: newMetrics(), voices: newVoices(), streams: &streams{}, stopping: context.Background(), slowAfter: slowAfter}
	f.Fuzz(func(t *testing.T, data []byte) {
		m := &holdfastv1.SessionRequest{}
		if proto.Unmarshal(data, m) != nil {
			return
		}
		st := &stream{s: s, call: &call{}, voiceOf: make(map[core.SessionID]struct{})}
		st.out.init()
		defer s.voices.leave(st)
		if err := st.handle(t.Context(), m); err != nil {
			if classify(err).Kind != driver.Invalid {
				t.Errorf("refused as %v", err)
			}
			return
		}
		want := map[uint64]int{}
		for _, fr := range m.GetFrames() {
			want[fr.GetId()] += max(1, len(fr.GetKeepAlives().GetSessionIds()))
		}
		for len(want) > 0 {
			frames, _ := st.out.take()
			for _, fr := range frames {
				if fr.GetQueued() != nil {
					continue
				}
				want[fr.GetId()] -= max(1, len(fr.GetKeepAlives().GetPulses()))
				if left, asked := want[fr.GetId()]; !asked || left < 0 {
					t.Fatalf("frame %d is answered too often: %s", fr.GetId(), protojson.Format(m))
				} else if left == 0 {
					delete(want, fr.GetId())
				}
			}
		}
	})
}
