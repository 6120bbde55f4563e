package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"holdfast/lab"
	"holdfast/server"
)

// The range of --idle.
const (
	labMinIdle = time.Minute
	labMaxIdle = 24 * time.Hour
)

type labFlags struct {
	listen    string
	insecure  bool
	idle      time.Duration
	inProcess bool
	page      string
}

func newLabCommand() *cobra.Command {
	o := labFlags{listen: lab.DefaultListen, idle: lab.DefaultIdle}
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Serve a page on which you stage the disaster yourself",
		Long: `lab serves a page in which you play, by hand, the failure that no lock service
can prevent, and see the gate make it harmless. It prints the page's address;
open it in a browser.

Nothing on the page is simulated: each page has a lock service, two worker
processes and a ledger of its own, "pause" is SIGSTOP and "kill" is SIGKILL. At
most eight pages are served at a time; what a page was given ends when it is
closed, or has not been heard of for a minute and a half.

It listens on a free port of this machine. Whoever can reach the port can start
and stop the lab's processes, so another address than a loopback one needs
--insecure.

SIGTERM, SIGINT and SIGHUP stop it cleanly. However it ends, kill -9 included,
no process and no file is left.

` + labExitTable,
		Example: "  holdfast lab\n  holdfast lab --listen 127.0.0.1:8080",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runLab(cmd, o)
		},
	}
	f := cmd.Flags()
	f.Var(&addressValue{&o.listen}, "listen", "`host:port` to listen on; port 0 picks a free one")
	boolFlag(f, &o.insecure, "insecure", "allow to listen where others than this machine can connect")
	f.Var(&durationValue{d: &o.idle, min: labMinIdle, max: labMaxIdle}, "idle", fmt.Sprintf("how long a page in which nothing is done keeps its processes, %v to %v", labMinIdle, labMaxIdle))
	boolFlag(f, &o.inProcess, "in-process", "run the workers in this process; pause and kill are then imitated")
	f.StringVar(&o.page, "page", "", "serve the page's files from this `directory`")
	_ = f.MarkHidden("page") // for those who work on the page
	return cmd
}

// check refuses what lets others in without having been asked to.
func (o labFlags) check(ctx context.Context) error {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return usagef("--listen %q: %w", o.listen, err)
	}
	if local, err := server.OnLoopback(ctx, host); err == nil && !local && !o.insecure {
		return usagef("--listen %s: whoever reaches the lab's port can start and stop processes on this machine: want a loopback address such as %s, or --insecure if you accept that",
			o.listen, lab.DefaultListen)
	}
	return nil
}

// labConfig is what every lab that this program serves has in common.
func labConfig(log *slog.Logger) (lab.Config, error) {
	worker, err := ownCommand(workerCommand)
	if err != nil {
		return lab.Config{}, err
	}
	sweeper, err := ownCommand(sweeperCommand)
	return lab.Config{WorkerCommand: worker, SweeperCommand: sweeper, Logger: log, Version: readVersion().Version}, err
}

func runLab(cmd *cobra.Command, o labFlags) error {
	if err := o.check(cmd.Context()); err != nil {
		return err
	}
	signal.Ignore(syscall.SIGPIPE) // see devCmd
	ctx, _, stop := notifyEnd(cmd.Context())
	defer stop()
	cfg, err := labConfig(newLogger(cmd.ErrOrStderr(), &serveSettings{logLevel: "warn", logFormat: "text"}))
	if err != nil {
		return err
	}
	cfg.Listen, cfg.Insecure, cfg.Idle, cfg.InProcess = o.listen, o.insecure, o.idle, o.inProcess
	if o.page != "" {
		root, err := os.OpenRoot(o.page)
		if err != nil {
			return usagef("--page: %w", err)
		}
		defer root.Close()
		cfg.Page = root.FS()
	}
	l, err := lab.Start(ctx, cfg)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "holdfast: the lab is at %s\n", l.URL())
	told := unread(err)
	if told == nil {
		ended := make(chan error, 1)
		go func() { ended <- l.Wait() }()
		select {
		case <-ctx.Done():
		case err := <-ended:
			return withCode(exitFailure, fmt.Errorf("the lab has failed: %w", err))
		}
	}
	stop() // a second signal has its usual effect
	return errors.Join(told, stopLab(l))
}

// stopLab ends a lab and all that it runs.
func stopLab(l *lab.Lab) error {
	end, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := l.Stop(end); err != nil {
		return withCode(exitFailure, fmt.Errorf("stopping the lab: %w", err))
	}
	return nil
}

func init() { moreCommands = append(moreCommands, newLabCommand) }
