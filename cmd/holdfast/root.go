package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func main() { os.Exit(execute(os.Args[1:], os.Stdout, os.Stderr)) }

// execute runs one command line and returns the exit code. It prints an error
// once, without a stack trace and without the usage text.
func execute(args []string, stdout, stderr io.Writer) int {
	if code, ok := hiddenMain(args); ok {
		return code
	}
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	err = asOperator(cmd, err)
	if err != nil {
		if text := err.Error(); text != "" {
			fmt.Fprintf(stderr, "holdfast: %s\n", printableLines(text))
		}
	}
	return exitCode(err)
}

// printableLines is printable, but keeps line ends.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "holdfast",
		Short: "A lock service whose late writers are harmless",
		Long: `holdfast is a lock and lease service, the client that keeps a lease alive, and
the tools around both.

` + exitTable + `
holdfast run has more; see 'holdfast run --help'.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          needSubcommand,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see '%s --help'", err, cmd.CommandPath())
	})
	root.CompletionOptions.HiddenDefaultCmd = true
	root.Version = readVersion().String()
	root.SetVersionTemplate("{{.Version}}\n")
	lock := group("lock", "Look at locks, and take one back", lockListCmd(), lockGetCmd(), lockWatchCmd(), lockRevokeCmd())
	session := group("session", "Look at sessions, and end one", sessionListCmd(), sessionEndCmd())
	serverFlag(lock)
	serverFlag(session)
	root.AddCommand(serveCmd(), devCmd(), runCmd(), lock, session, versionCmd())
	for _, more := range moreCommands {
		root.AddCommand(more())
	}
	return root
}

// moreCommands are subcommands of files that register themselves.
var moreCommands []func() *cobra.Command

// group is a command that only has subcommands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: needSubcommand}
	cmd.AddCommand(subs...)
	return cmd
}

// needSubcommand answers a group that was called without a known subcommand.
func needSubcommand(cmd *cobra.Command, args []string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	if len(args) == 0 {
		return usagef("%s needs a subcommand: %s; see '%s --help'", cmd.CommandPath(), strings.Join(names, ", "), cmd.CommandPath())
	}
	return usagef("%s has no subcommand %q; there are: %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
}
