package cluster

import (
	"net"
	"testing"

	"holdfast/driver"
	"holdfast/driver/drivertest"
)

// world shows a server to the suites.
type world struct {
	op   *Client
	addr string
}

func newWorld(t *testing.T, addr string) func(testing.TB) drivertest.World {
	w := world{op: dial(t, addr, nil), addr: addr}
	return func(testing.TB) drivertest.World { return w }
}

// lineDriver is an engine that owns its line.
type lineDriver struct{ engine }

func (d lineDriver) Close() error { d.link.close(); return nil }

func (w world) Driver(testing.TB) driver.Fenced {
	l := newLink([]string{w.addr}, new(net.Dialer).DialContext, nil, (&Options{}).logger())
	go l.connectLoop()
	return lineDriver{engine{l}}
}

func (w world) Waiters(t testing.TB, lock string) int {
	l, err := w.op.Get(t.Context(), lock, GetOptions{})
	switch {
	case driver.KindOf(err) == driver.NotFound:
		return 0
	case err != nil:
		t.Error(err)
		return 0
	}
	return l.Waiters
}

func (w world) Expel(t testing.TB, label string) {
	for s, err := range w.op.Sessions(t.Context(), ListOptions{}) {
		if err != nil {
			t.Error(err)
			return
		}
		if s.Label == label {
			if err := w.op.ExpelSession(t.Context(), s.ID, "drivertest"); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestFenced(t *testing.T) {
	drivertest.Fenced(t, drivertest.Timing{}, newWorld(t, startService(t).addr))
}
