package cluster_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"holdfast/engine/cluster"
)

// One lock, held while a function runs.
func Example() {
	ctx := context.Background()
	client, err := cluster.Dial(ctx, "127.0.0.1:7433", &cluster.Options{Label: "billing run"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	grant, err := client.Acquire(ctx, "invoices", cluster.AcquireOptions{MaxHold: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	defer grant.Release(ctx)
	fmt.Println("holding", grant.Token())
}

// Values are read, watched and changed by compare-and-set, whether or not
// anybody holds the lock.
func ExampleClient_Put() {
	ctx := context.Background()
	client, err := cluster.Dial(ctx, "127.0.0.1:7433", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close(ctx)
	lock, err := client.Get(ctx, "config/limit", cluster.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.Put(ctx, "config/limit", []byte("100"), cluster.PutOptions{IfRevision: &lock.ModifyRevision})
	if found := cluster.ConflictRevision(err); found != 0 {
		log.Fatalf("somebody else changed it, at revision %d", found)
	}
}
