package server

import (
	"context"
	"errors"
	"sync"
	"testing"
)

// Who asks again for a transfer that is under way, because it lost the line,
// gets the same answer; who asks for another one is refused.
func TestTransferIsAskedForTwice(t *testing.T) {
	t.Parallel()
	r := newCluster(t, 3)
	lead := r.leader()
	to, other := r.but(lead)[0], r.but(lead)[1]
	id := to.node.Status().NodeID
	r.isolate(to.i) // so that it takes a while
	var asked sync.WaitGroup
	var errs [2]error
	for i := range errs {
		asked.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, errs[i] = lead.node.TransferLeadership(ctx, id)
		})
	}
	asked.Wait()
	if !errors.Is(errs[0], ErrNoTransfer) || !errors.Is(errs[1], ErrNoTransfer) {
		t.Errorf("to a member that is cut off: %v, and %v", errs[0], errs[1])
	}
	r.heal()
	eventually(t, "both are told that it leads", func() bool {
		lead := r.leading()
		for i := range errs {
			asked.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				_, errs[i] = lead.node.TransferLeadership(ctx, id)
			})
		}
		asked.Wait()
		return errs[0] == nil && errs[1] == nil
	})
	if got := r.leader(); got == other {
		t.Errorf("%s leads", rigName(other.i))
	}
}
