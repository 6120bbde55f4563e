package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func devCmd() *cobra.Command {
	s := &serveSettings{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a lock service to play with: one node, in a temporary directory",
		Long: `Runs one node whose data goes to a temporary directory, which is removed at the
end. It listens on a free port of this machine, and prints the line that makes
the other commands use it.

Settings may also come from the environment, as for 'holdfast serve'.

` + serveExitTable,
		Args: exactArgs(),
	}
	s.register(cmd.Flags(), "127.0.0.1:0")
	s.logLevel = "warn"
	cmd.Flag("log-level").DefValue = s.logLevel
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := layerConfig(cmd.Flags(), os.LookupEnv); err != nil {
			return err
		}
		if s.data, err = os.MkdirTemp("", "holdfast-dev-"); err != nil {
			return fmt.Errorf("no temporary directory: %w", err)
		}
		defer func() {
			if e := os.RemoveAll(s.data); e != nil && err == nil {
				err = e
			}
		}()
		return serve(cmd, s, func(w io.Writer, address string) {
			fmt.Fprintf(w, "holdfast: serving on %s, data in %s until this ends\nexport %s=%s\n", address, s.data, serverVariable, address)
		})
	}
	return cmd
}
