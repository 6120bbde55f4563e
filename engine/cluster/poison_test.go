package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdfast"
	"holdfast/driver"
)

// A frame that cannot be sent would break the line that all sessions of the
// client share, again on each new one.
func TestWhatCannotBeSentIsRefusedBefore(t *testing.T) {
	t.Parallel()
	srv := startService(t)
	c := dial(t, srv.addr, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	g := must[*holdfast.Grant](t)(c.Acquire(ctx, "a", AcquireOptions{}))
	_, err := c.Acquire(ctx, "b", AcquireOptions{Value: make([]byte, 5<<20)})
	if !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a value of 5 MiB: %v", err)
	}
	if _, err := c.Acquire(ctx, "b", AcquireOptions{Value: make([]byte, 4097)}); !errors.Is(err, holdfast.ErrInvalid) {
		t.Errorf("a value of 4097 bytes: %v", err)
	}
	g2, err := c.Acquire(ctx, "b", AcquireOptions{Value: make([]byte, 4096)})
	if err != nil {
		t.Fatalf("a value of 4096 bytes: %v", err)
	}
	if _, err := c.Put(ctx, "c", make([]byte, 5<<20), PutOptions{}); driver.KindOf(err) == driver.Unavailable || driver.OutcomeOf(err) != driver.No {
		t.Errorf("put of 5 MiB: kind %v, outcome %v: %v", driver.KindOf(err), driver.OutcomeOf(err), err)
	}
	for _, o := range []*holdfast.Options{{Label: "a\xff"}, {Host: "a\xff"}} {
		if l, err := holdfast.NewFencedLocker(c.Engine(), o); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("label %q, host %q: %v, %v", o.Label, o.Host, l, err)
		}
	}
	for _, g := range []*holdfast.Grant{g, g2} {
		if err := g.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}
