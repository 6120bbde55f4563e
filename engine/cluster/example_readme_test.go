package cluster_test

import (
	"context"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/gate/sqlgate"
)

// The README shows the body of this function; internal/tidy compares the two.
func Example_readme() {
	_ = func(ctx context.Context, gate *sqlgate.Gate) error {
		client, err := cluster.Dial(ctx, "127.0.0.1:7433", nil)
		if err != nil {
			return err
		}
		defer client.Close(ctx)
		return client.Locker().Run(ctx, "invoices", func(ctx context.Context, g *holdfast.Grant) error {
			return gate.Do(ctx, g.Token(), func(ctx context.Context, s *sqlgate.Snapshot) ([]sqlgate.Stmt, error) {
				return []sqlgate.Stmt{sqlgate.Exec("UPDATE invoice SET paid = 1 WHERE id = ?", 4711)}, nil
			})
		}, holdfast.Arm(gate))
	}
}
