package memgate_test

import (
	"context"
	"fmt"
	"log/slog"

	"holdfast/fence"
	"holdfast/gate/memgate"
)

// A zombie's write is refused once the next holder has armed the gate.
func Example() {
	ctx := context.Background()
	balance := 100
	gate, err := memgate.New(memgate.Config{Lock: "account", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	older := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "account", Mode: fence.Exclusive, Number: 33}
	newer := older
	newer.Number = 34

	set := func(token fence.Token, to int) error {
		return gate.Do(ctx, token, func() error {
			balance = to
			return nil
		})
	}
	fmt.Println(set(older, 150), balance)
	fmt.Println(gate.Arm(ctx, newer))
	fmt.Println(set(older, 0))
	fmt.Println(set(newer, balance+50), balance)
	// Output:
	// <nil> 150
	// <nil>
	// gate memgate: stale token: offered 33, already seen 34 (lock "account"): the grant was lost and another holder has been here; stop, and acquire the lock again
	// <nil> 200
}
