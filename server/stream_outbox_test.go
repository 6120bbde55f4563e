package server

import (
	"testing"

	"holdfast/wire/holdfastv1"
)

// The answers to keepalives do not wait behind others.
func TestKeepalivesGoFirst(t *testing.T) {
	var o outbox
	o.init()
	for i := range uint64(100) {
		o.put(&holdfastv1.ServerFrame{Id: i + 1})
	}
	o.putPulse(7, &holdfastv1.SessionPulse{SessionId: 1})
	o.putPulse(8, &holdfastv1.SessionPulse{SessionId: 2})
	o.putPulse(7, &holdfastv1.SessionPulse{SessionId: 3})
	frames, open := o.take()
	if !open || len(frames) != 102 || len(frames[0].GetKeepAlives().GetPulses()) != 2 || len(frames[1].GetKeepAlives().GetPulses()) != 1 || frames[2].GetId() != 1 {
		t.Errorf("%d frames, the first %v", len(frames), frames[:3])
	}
	// A frame that was taken takes no more pulses along.
	o.putPulse(7, &holdfastv1.SessionPulse{SessionId: 4})
	if frames, _ := o.take(); len(frames) != 1 || len(frames[0].GetKeepAlives().GetPulses()) != 1 {
		t.Errorf("%v", frames)
	}
	o.close()
	if !o.put(&holdfastv1.ServerFrame{}) {
		t.Error("a closed outbox is not full")
	}
	if frames, open := o.take(); open || len(frames) != 0 {
		t.Errorf("closed: %v, %v", frames, open)
	}
}
