package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast/driver"
	"holdfast/engine/cluster"
)

func lockWatchCmd() *cobra.Command {
	var prefix, after string
	cmd := &cobra.Command{
		Use:   "watch [NAME]",
		Short: "Follow what happens to locks, until interrupted",
		Long: `Prints each change of a lock (or of all, or of those with --prefix) as it
happens, until it is interrupted (then it exits with 0). It goes on without a
gap when the service restarts or cannot be reached for a while, and says so on
stderr. --after REV begins after a revision that was seen before; if the service
no longer keeps the events since, it says so and exits with 1. -o json prints
one object a line.

` + exitTable,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exactArgs("[NAME]")(cmd, args)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "watch the locks whose names begin with `PREFIX`")
	cmd.Flags().StringVar(&after, "after", "", "begin after this `revision` (default: now)")
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o := cluster.WatchOptions{Prefix: prefix}
		if len(args) == 1 {
			o.Lock = args[0]
			if err := checkLockName(o.Lock); err != nil {
				return err
			}
		}
		if prefix != "" {
			if err := checkLockName(prefix); err != nil {
				return err
			}
		}
		if o.Lock != "" && prefix != "" {
			return usagef("NAME and --prefix exclude each other: give one of them")
		}
		if cmd.Flags().Changed("after") {
			n, err := strconv.ParseUint(after, 10, 64)
			if err != nil {
				return usagef("--after %q: want a revision, a whole number from 0, as an event shows it", after)
			}
			o.After = &n
		}
		return watchLocks(cmd, o, *format)
	}
	return cmd
}

// watchRetry spaces the tries of a watch while no server answers.
const watchRetry = 500 * time.Millisecond

func watchLocks(cmd *cobra.Command, o cluster.WatchOptions, format string) error {
	line := &outage{w: cmd.ErrOrStderr()}
	client, err := dialBy(cmd, line.dial)
	if err != nil {
		return err
	}
	defer closeClient(client)
	defer line.end()
	ctx, interrupted, stop := notifyEnd(cmd.Context())
	defer stop()
	broken := false
	for {
		err := follow(ctx, cmd.OutOrStdout(), client, &o, format, func() { broken = false })
		switch {
		case interrupted() != 0:
			return nil
		case errors.Is(err, cluster.ErrCompacted):
			return withCode(exitFailure, fmt.Errorf("events after revision %s are no longer kept: look at the present state with 'holdfast lock list', and watch without --after", revisionText(o.After)))
		case finalForWatch(err):
			return err
		}
		if !broken {
			broken = true
			fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: the watch broke (%s); trying again\n", printable(plainText(err)))
		}
		pause(ctx, watchRetry)
	}
}

// finalForWatch reports whether trying again cannot help. A line that breaks in
// the middle of a message may look like any other error.
func finalForWatch(err error) bool {
	switch driver.KindOf(err) {
	case driver.Invalid, driver.Unsupported, driver.Denied, driver.NotFound:
		return true
	}
	return false
}

func revisionText(r *uint64) string {
	if r == nil {
		return "now"
	}
	return number(*r)
}

// pause waits for d, or for ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// follow prints events until the watch breaks, and keeps in o where it was.
func follow(ctx context.Context, w io.Writer, client *cluster.Client, o *cluster.WatchOptions, format string, stands func()) error {
	for batch, err := range client.Watch(ctx, *o) {
		if err != nil {
			return err
		}
		for i := range batch.Events {
			if err := printEvent(w, &batch.Events[i], format); err != nil {
				return withCode(exitFailure, err)
			}
		}
		revision := batch.Revision
		o.After = &revision
		stands()
	}
	return ctx.Err()
}

func printEvent(w io.Writer, e *cluster.Event, format string) error {
	if format == formatJSON {
		return printJSON(w, toEventJSON(e))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d  %-9s %s", e.Revision, e.Kind, quoted(e.Lock))
	if e.Grant != 0 {
		fmt.Fprintf(&b, "  grant %d", e.Grant)
	}
	if e.SessionID != 0 {
		fmt.Fprintf(&b, "  %s", holderName(e.Label, e.Host, e.SessionID))
	}
	if e.Cause != "" {
		fmt.Fprintf(&b, "  (%s)", e.Cause)
	}
	if e.By != "" {
		fmt.Fprintf(&b, "  by %s", printable(e.By))
	}
	if e.Audit != nil {
		fmt.Fprintf(&b, "  %s", auditText(e.Audit))
	}
	if e.HasValue {
		fmt.Fprintf(&b, "  value %s", valueText(e.Value))
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}
