package holdfast

import (
	"context"
	"time"

	"holdfast/driver"
	"holdfast/fence"
)

type client struct{}
type owner struct{ c *client }
type handle struct {
	lock      string
	token     fence.Token
	contended chan struct{}
}
type leaseContext struct{ context.Context }
type aliveCheck struct {
	every    time.Duration
	failures int
	fn       func() error
}

func newClient(d driver.Driver, o *Options) (*client, error) { _, err := o.complete(); return &client{}, err }
func newOwner(c *client) *owner                              { return &owner{c} }
func (c *client) grant(ctx context.Context, op, name string, try bool, opts []AcquireOption) (*Grant, error) {
	return nil, wrap(op, name, ErrUnsupported, nil)
}
func (c *client) hold(ctx context.Context, op, name string, try bool, opts []HoldOption) (*Hold, error) {
	return nil, wrap(op, name, ErrUnsupported, nil)
}
func (c *client) close(ctx context.Context) error { return nil }
func (c *client) stats() Stats                     { return Stats{} }
func sinceBoot() time.Duration                     { return 0 }
func runGuarded(ctx context.Context, h *handle, gctx context.Context, fn func(context.Context) error) error {
	return nil
}
func (h *handle) state() State                                              { return StateHeld }
func (h *handle) lost() *Lost                                               { return nil }
func (h *handle) err() error                                                { return nil }
func (h *handle) left() time.Duration                                       { return 0 }
func (h *handle) release(ctx context.Context, opts []ReleaseOption) error { return nil }
