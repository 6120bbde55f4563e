package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"holdfast/fence"
	"holdfast/wire"
)

func sessionEndCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "end ID",
		Short: "End another's session: all that it holds and waits for is free",
		Long: `Ends the session with this ID, as 'holdfast session list' shows it. All that it
holds is free at once, whatever its owner is doing: only a gate stops its late
writes. To take back a single lock, and let the holder stop first, use
'holdfast lock revoke'.

` + exitTable,
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, ok := wire.ParseID(args[0])
			if !ok || id == 0 || id > fence.MaxNumber {
				return usagef("session ID %q: want a number, as 'holdfast session list' shows it", args[0])
			}
			client, err := dial(cmd)
			if err != nil {
				return err
			}
			defer closeClient(client)
			ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
			defer cancel()
			err = client.ExpelSession(ctx, id, operatorName())
			if isNotFound(err) {
				return withCode(exitMissing, fmt.Errorf("no session %d: it has ended, or never was; see 'holdfast session list'", id))
			}
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "session %d ended\n", id)
			return err
		},
	}
	operatorFlag(cmd)
	return cmd
}
