package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/lab/stage"
)

// The hidden subcommands that drill, lab and dev start of themselves.
const (
	workerCommand  = "lab-worker"  // SPEC
	sweeperCommand = "lab-sweeper" // DIR
)

// ownCommand is how this very program is started as one of its subcommands.
func ownCommand(name string) ([]string, error) {
	self, err := stage.Self()
	if err != nil {
		return nil, err
	}
	return []string{self, name}, nil
}

func newWorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workerCommand + " SPEC",
		Short:  "one worker of the drill or the lab (started by it)",
		Hidden: true,
		Args:   exactArgs("SPEC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := stage.ParseWorkerSpec(args[0])
			if err != nil {
				return usagef("%w", err)
			}
			return stage.RunWorker(cmd.Context(), spec, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}

func newSweeperCommand() *cobra.Command {
	return &cobra.Command{
		Use:    sweeperCommand + " DIR",
		Short:  "remove a temporary directory after the program that made it (started by it)",
		Hidden: true,
		Args:   exactArgs("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			err := stage.Sweep(cmd.Context(), args[0], cmd.InOrStdin())
			if os.Getenv(stage.DSNVariable) != "" && strings.HasPrefix(filepath.Base(args[0]), "holdfast-drill-") {
				schema, owner := drillSchema(args[0])
				err = errors.Join(err, stage.DropSchema(cmd.Context(), schema, owner))
			}
			return err
		},
	}
}

// drillSchema is the schema, in a database of PostgreSQL, of the drill with the
// directory dir, and what it says of its owner: the sweeper, which knows the
// directory only, removes it too.
func drillSchema(dir string) (schema, owner string) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return strings.ReplaceAll(filepath.Base(dir), "-", "_"), "holdfast drill in " + dir + " on " + host
}

// sweptDir makes a temporary directory that is removed when the sweeper is
// closed, and also if this program is killed.
func sweptDir(kind string) (dir string, sweeper *stage.Sweeper, err error) {
	exe, err := ownCommand(sweeperCommand)
	if err != nil {
		return "", nil, err
	}
	return stage.SweptDir(kind, exe)
}

func init() { moreCommands = append(moreCommands, newWorkerCommand, newSweeperCommand) }
