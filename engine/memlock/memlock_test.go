package memlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"holdfast/driver"
	"holdfast/driver/drivertest"
	"holdfast/engine/memlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world shows a service to the suites.
type world struct{ *memlock.Service }

func newWorld(t testing.TB) world {
	s := memlock.New(nil)
	t.Cleanup(s.Close)
	return world{s}
}

func (w world) Driver(testing.TB) driver.Fenced { return w.Service.Driver() }

func (w world) Waiters(_ testing.TB, lock string) int { return w.Lock(lock).Waiters }

func (w world) Expel(t testing.TB, label string) {
	t.Helper()
	for _, id := range w.SessionsOf(label) {
		if err := w.Service.Expel(id, "operator"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFencedOnVirtualTime(t *testing.T) {
	drivertest.Fenced(t, drivertest.Timing{Virtual: true}, func(t testing.TB) drivertest.World { return newWorld(t) })
}

// Revoke names the grant that holds the lock now.
func (w world) Revoke(t testing.TB, lock string, atOnce bool, by string) {
	t.Helper()
	h := w.Lock(lock).Holder
	if h == nil {
		t.Fatalf("nobody holds %q", lock)
	}
	if _, err := w.Service.Revoke(lock, h.GrantNumber, atOnce, by); err != nil {
		t.Fatal(err)
	}
}

func TestRevocable(t *testing.T) {
	drivertest.Revocable(t, drivertest.Timing{Virtual: true}, func(t testing.TB) drivertest.RevocableWorld { return newWorld(t) })
}

// plainWorld shows a service as an engine without tokens.
type plainWorld struct{ world }

func (w plainWorld) Driver(t testing.TB) driver.Driver { return w.world.Driver(t) }

func TestEfficiency(t *testing.T) {
	drivertest.Efficiency(t, drivertest.Timing{Virtual: true}, func(t testing.TB) drivertest.BasicWorld { return plainWorld{newWorld(t)} })
}
