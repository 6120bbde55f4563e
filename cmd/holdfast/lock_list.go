package main

import (
	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

func lockListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [PREFIX]",
		Short: "List the locks that are held, waited for, closed or have a value",
		Long: `Lists locks in the order of their names, those that begin with PREFIX if it is
given. A lock that is free, open and without a value does not exist, and is not
listed. -o json prints one object a line.

` + exitTable,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactArgs("[PREFIX]")(cmd, args)
			}
			return nil
		},
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		prefix := ""
		if len(args) == 1 && args[0] != "" {
			prefix = args[0]
			if err := checkLockName(prefix); err != nil {
				return err
			}
		}
		return listLocks(cmd, prefix, *format)
	}
	return cmd
}

func listLocks(cmd *cobra.Command, prefix, format string) error {
	client, err := dial(cmd)
	if err != nil {
		return err
	}
	defer closeClient(client)
	servers, err := serverList(cmd)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	var rows [][]string
	for l, err := range client.List(cmd.Context(), prefix, cluster.ListOptions{PageSize: 1000}) {
		if err != nil {
			return err
		}
		if format == formatJSON {
			if err := printJSON(out, toLockJSON(l, servers)); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, lockRow(l))
	}
	if format == formatJSON {
		return nil
	}
	return table(out, []string{"NAME", "STATE", "GRANT", "HOLDER", "HELD", "RENEWED", "WAITERS"}, rows)
}

func lockRow(l *cluster.Lock) []string {
	state, grant, holder, held, renewed := "free", "", "", "", ""
	if l.Closed {
		state = "closed for " + brief(l.OpensIn) + " (" + l.ClosedCause + ")"
	}
	if len(l.Holders) > 0 {
		h := l.Holders[0]
		state = "held"
		if h.Shared {
			state = "shared"
		}
		if h.Revoked {
			state += ", revoked"
		}
		grant, held, renewed = number(h.Grant), brief(h.Held), agoText(h.LastHeard)
		holder = holderName(h.Label, h.Host, h.SessionID)
	}
	if more := len(l.Holders) - 1; more > 0 {
		holder += " and " + number(uint64(more)) + " more"
	}
	return []string{quoted(l.Name), state, grant, holder, held, renewed, number(uint64(l.Waiters))}
}
