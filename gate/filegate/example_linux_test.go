package filegate_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"holdfast/fence"
	"holdfast/gate/filegate"
)

// Two holders of one lock: the newer one arms the gate, and the older one's
// late write is refused. (Real tokens come from a grant.)
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "filegate-example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "summary.txt")
	gate, err := filegate.New(ctx, filegate.Config{Path: path, Lock: "invoices", Name: "shop", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	older := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "invoices", Mode: fence.Exclusive, Number: 33}
	newer := older
	newer.Number = 34

	write := func(token fence.Token, text string) error {
		return gate.Do(ctx, token, func(_ context.Context, u *filegate.Update) error {
			_, err := fmt.Fprint(u, text)
			return err
		})
	}
	fmt.Println("33 writes:", write(older, "100 EUR"))
	fmt.Println("34 arms:", gate.Arm(ctx, newer))
	err = write(older, "200 EUR")
	var stale *fence.StaleError
	if errors.As(err, &stale) {
		fmt.Println("33 writes late: offered", stale.Offered.Number, "seen", stale.Seen.Number)
	}
	fmt.Println("34 writes:", write(newer, "300 EUR"))
	text, err := os.ReadFile(path)
	fmt.Println(string(text), err)
	// Output:
	// 33 writes: <nil>
	// 34 arms: <nil>
	// 33 writes late: offered 33 seen 34
	// 34 writes: <nil>
	// 300 EUR <nil>
}
