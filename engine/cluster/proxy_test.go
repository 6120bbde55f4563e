package cluster

import (
	"sync"
	"testing"
	"time"

	"holdfast/driver/drivertest"
)

// cutter is the damage that these tests do to a TCP line.
type cutter struct{ *drivertest.Proxy }

func newCutter(t *testing.T, target string) cutter {
	return cutter{drivertest.NewProxy(t, target)}
}

// refuse resets every connection, and new ones until heal.
func (p cutter) refuse() { p.Refuse(); p.Reset() }

// stall keeps back what goes to the server, to the client, or both.
func (p cutter) stall(toServer, toClient bool) {
	if toServer {
		p.Stall(drivertest.ToServer)
	}
	if toClient {
		p.Stall(drivertest.ToClient)
	}
}

// heal lets new connections work; what was kept back on old ones is lost.
func (p cutter) heal() { p.Reset(); p.Restore() }

// often resets every connection at short intervals until stop is called.
func (p cutter) often(every time.Duration) (stop func()) {
	quit := make(chan struct{})
	var loop sync.WaitGroup
	loop.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.Reset()
			case <-quit:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(quit); loop.Wait() })
}
