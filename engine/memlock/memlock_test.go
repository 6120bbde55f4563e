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
