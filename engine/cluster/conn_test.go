package cluster

import (
	"context"
	"net"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"holdfast/wire/holdfastv1"
)

// TestFirstCallsShareTheConnection: none of the calls that are made at once on
// a new connection may fail for want of a second one.
func TestFirstCallsShareTheConnection(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	for range 50 {
		raw, err := net.Dial("tcp", f.addr)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConn(t.Context(), f.addr, raw, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 16 {
			calls.Go(func() {
				if _, err := c.rpc.GetStatus(context.Background(), connect.NewRequest(&holdfastv1.GetStatusRequest{})); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		c.close()
	}
}
