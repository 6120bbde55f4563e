package cluster

import (
	"net"
	"testing"
	"time"

	"holdfast/driver"
	"holdfast/driver/drivertest"
)

// world shows a server to the suites.
type world struct {
	op   *Client
	addr string
}

func newWorld(t *testing.T, addr string) world { return world{op: dial(t, addr, nil), addr: addr} }

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

// Revoke implements drivertest.RevocableWorld.
func (w world) Revoke(t testing.TB, lock string, atOnce bool, by string) {
	l, err := w.op.Get(t.Context(), lock, GetOptions{})
	if err == nil && len(l.Holders) == 1 {
		_, err = w.op.Revoke(t.Context(), lock, l.Holders[0].Grant, RevokeOptions{Now: atOnce, By: by})
	}
	if err != nil {
		t.Error(err)
	}
}

// plainWorld is the same without tokens.
type plainWorld struct{ world }

func (w plainWorld) Driver(t testing.TB) driver.Driver { return w.world.Driver(t) }

// timing leaves room for a busy machine.
var timing = drivertest.Timing{TTL: 2 * time.Second, Slack: time.Second}

func TestEfficiency(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startService(t).addr)
	drivertest.Efficiency(t, timing, func(testing.TB) drivertest.BasicWorld { return plainWorld{w} })
}

func TestRevocable(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startService(t).addr)
	drivertest.Revocable(t, timing, func(testing.TB) drivertest.RevocableWorld { return w })
}

func TestFenced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, startService(t).addr)
	drivertest.Fenced(t, timing, func(testing.TB) drivertest.World { return w })
}
