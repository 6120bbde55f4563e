package elect_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"holdfast"
	"holdfast/elect"
	"holdfast/engine/cluster"
	"holdfast/engine/memlock"
	"holdfast/server"
)

// A candidate on any fenced engine: the function runs while it is primary, and
// has a token for its gates.
func Example() {
	service := memlock.New(nil)
	defer service.Close()
	locker, err := service.Locker(&holdfast.Options{Label: "scheduler on db7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close(context.Background())

	candidate, err := elect.New(locker, "scheduler", &elect.Options{StopOnReturn: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = candidate.Run(context.Background(), func(ctx context.Context, g *holdfast.Grant) error {
		fmt.Println("primary, with token", g.Token().Number)
		// A real primary works until ctx ends, and shows the token to its
		// gates with every write.
		return nil
	})
	fmt.Println("standing no more:", err)
	// Output:
	// primary, with token 1
	// standing no more: <nil>
}

// A primary publishes where it can be reached, and everybody can see it.
func ExampleObserve() {
	addr, stop := exampleService()
	defer stop()
	client, err := cluster.Dial(context.Background(), addr, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close(context.Background())

	candidate, err := elect.New(client.Locker(), "scheduler", &elect.Options{
		Board: client.Board(), Value: []byte("10.0.0.7:8080"),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- candidate.Run(ctx, func(ctx context.Context, _ *holdfast.Grant) error {
			<-ctx.Done()
			return nil
		})
	}()
	for primary, err := range elect.Observe(ctx, client.Board(), "scheduler") {
		if err != nil {
			fmt.Println(err)
			break
		}
		if !primary.None() {
			fmt.Printf("the primary is at %s\n", primary.Value)
			break
		}
	}
	cancel()
	<-ended
	// Output:
	// the primary is at 10.0.0.7:8080
}

// exampleService starts a lock service for an example.
func exampleService() (addr string, stop func()) {
	dir, err := os.MkdirTemp("", "holdfast-example-")
	if err != nil {
		panic(err)
	}
	s, err := server.Start(context.Background(), server.Config{Listen: "127.0.0.1:0", Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return s.Addr(), func() {
		_ = s.Stop(context.Background())
		_ = os.RemoveAll(dir)
	}
}
