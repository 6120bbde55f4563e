package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"holdfast/lab"
)

func devCmd() *cobra.Command {
	s := &serveSettings{}
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a lock service to play with: one node, in a temporary directory, and the lab",
		Long: `Runs one node whose data goes to a temporary directory. It listens on a free
port of this machine, and prints the line that makes the other commands use it.
On another free port of this machine it serves the lab (see 'holdfast lab'),
whose pages have services of their own.

However it ends, kill -9 included, the directory is removed. If the lab cannot
be served, the log says why, and the node is run without it.

Settings may also come from the environment, as for 'holdfast serve'.

` + devExitTable,
		Args: exactArgs(),
	}
	s.register(cmd.Flags(), "127.0.0.1:0")
	s.logLevel = "warn"
	cmd.Flag("log-level").DefValue = s.logLevel
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		if err := layerConfig(cmd.Flags(), os.LookupEnv); err != nil {
			return err
		}
		// A reader who has left is noticed by the error of a write. (The signal
		// itself comes for sockets and workers' pipes too.)
		signal.Ignore(syscall.SIGPIPE)
		dir, sweeper, err := sweptDir("dev")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sweeper.Close()) }()
		s.data = filepath.Join(dir, "data")
		var l *lab.Lab
		defer func() {
			if l != nil {
				err = errors.Join(err, stopLab(l))
			}
		}()
		return serve(cmd, s, func(w io.Writer, address string) error {
			log := newLogger(cmd.ErrOrStderr(), s)
			text := ""
			if l = devLab(cmd.Context(), filepath.Join(dir, "lab"), log); l != nil {
				text = "holdfast: the lab is at " + l.URL() + "\n"
			}
			_, err := fmt.Fprintf(w, "holdfast: serving on %s, data in %s until this ends\n%sexport %s=%s\n", address, s.data, text, serverVariable, address)
			return unread(err)
		})
	}
	return cmd
}

// devLab serves the lab beside the node, in a part of its directory. Without
// it the node is still of use.
func devLab(ctx context.Context, dir string, log *slog.Logger) *lab.Lab {
	cfg, err := labConfig(log)
	if err == nil {
		cfg.Dir = dir
		var l *lab.Lab
		if l, err = lab.Start(ctx, cfg); err == nil {
			return l
		}
	}
	log.Warn("the lab is not served", "error", err)
	return nil
}
