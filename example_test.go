package holdfast_test

import (
	"context"
	"fmt"

	"holdfast"
	"holdfast/engine/memlock"
	"holdfast/gate/memgate"
)

func Example() {
	ctx := context.Background()
	gate, _ := memgate.New(memgate.Config{Lock: "invoices"}) // guards the resource
	locks, _ := memlock.New(nil).Locker(nil)                 // or cluster.Dial(ctx, "127.0.0.1:7433", nil)
	defer locks.Close(ctx)
	err := locks.Run(ctx, "invoices", func(ctx context.Context, g *holdfast.Grant) error {
		return gate.Do(ctx, g.Token(), func() error { // whoever lost the lock is refused here
			fmt.Println("written by the holder of", g.Lock())
			return nil
		})
	}, holdfast.Arm(gate))
	fmt.Println(err)
	// Output:
	// written by the holder of invoices
	// <nil>
}
