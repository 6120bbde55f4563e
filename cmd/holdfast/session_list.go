package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

func sessionListCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the sessions of clients, with what they hold and wait for",
		Long: `Lists all sessions in the order of their IDs. -o json prints one object a line.

` + exitTable,
		Args: exactArgs(),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client, err := dial(cmd)
		if err != nil {
			return err
		}
		defer closeClient(client)
		var rows [][]string
		for s, err := range client.Sessions(cmd.Context(), cluster.ListOptions{PageSize: 1000}) {
			if err != nil {
				return err
			}
			if *format == formatJSON {
				if err := printJSON(cmd.OutOrStdout(), toSessionJSON(s)); err != nil {
					return err
				}
				continue
			}
			state := "detached"
			if s.Attached {
				state = "attached"
			}
			if s.Suspected {
				state += ", silent"
			}
			rows = append(rows, []string{
				number(s.ID), s.Label, s.Host, state, brief(s.TTL), brief(s.TTLLeft), agoText(s.LastHeard), brief(s.Age),
				names(s.Holds), names(s.WaitsFor),
			})
		}
		if *format == formatJSON {
			return nil
		}
		return table(cmd.OutOrStdout(), []string{"ID", "LABEL", "HOST", "STATE", "TTL", "LEFT", "RENEWED", "AGE", "HOLDS", "WAITS FOR"}, rows)
	}
	return cmd
}

// names lists locks, such that one with blanks in its name is not taken for
// several.
func names(locks []string) string {
	out := make([]string, len(locks))
	for i, l := range locks {
		if out[i] = quoted(l); strings.Contains(out[i], " ") && out[i] == l {
			out[i] = strconv.Quote(l)
		}
	}
	return strings.Join(out, " ")
}
