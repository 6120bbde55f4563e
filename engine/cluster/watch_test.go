package cluster

import (
	"errors"
	"slices"
	"testing"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

func events(revision uint64, grants ...uint64) (out []*holdfastv1.Event) {
	for _, g := range grants {
		out = append(out, &holdfastv1.Event{Revision: revision, Kind: "released", Lock: "a", Grant: g})
	}
	return out
}

// A revision that comes in several messages is one batch, also when the stream
// breaks within it: then it comes again from its start.
func TestWatchNeverSplitsARevision(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	streams := 0
	f.watch = func(after uint64, send func(*holdfastv1.WatchResponse) error) error {
		streams++
		if after != 5 {
			t.Errorf("stream %d begins after %d, want 5", streams, after)
		}
		_ = send(&holdfastv1.WatchResponse{Revision: 5})
		_ = send(&holdfastv1.WatchResponse{Events: slices.Concat(events(6, 1), events(7, 2, 3)), Revision: 6, More: true})
		switch streams {
		case 1:
			return wire.Error(&driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "stopping"})
		case 2:
			return nil // ends without a reason
		}
		_ = send(&holdfastv1.WatchResponse{Events: events(7, 4), Revision: 8})
		return wire.Error(&driver.Error{Kind: driver.NotFound, Outcome: driver.No, Msg: "compacted"})
	}
	c := dial(t, f.addr, nil)
	var got []Batch
	var last error
	for b, err := range c.Watch(t.Context(), WatchOptions{After: new(uint64(5))}) {
		if last = err; err == nil {
			got = append(got, b)
		}
	}
	if !errors.Is(last, ErrCompacted) || driver.KindOf(last) != driver.NotFound {
		t.Errorf("ended with %v", last)
	}
	if len(got) != 2 || len(got[0].Events) != 0 || got[0].Revision != 5 || got[1].Revision != 8 {
		t.Fatalf("got %+v", got)
	}
	var grants []uint64
	for _, e := range got[1].Events {
		grants = append(grants, e.Grant)
	}
	if !slices.Equal(grants, []uint64{1, 2, 3, 4}) {
		t.Errorf("grants %v, want each once", grants)
	}
	if streams != 3 {
		t.Errorf("%d streams", streams)
	}
}
