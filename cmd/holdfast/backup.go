package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
	"holdfast/server/backup"
	"holdfast/server/core"
)

func init() { moreCommands = append(moreCommands, backupCmd) }

const backupExitTable = `Exit codes:
  0        done
  1        refused, or failed for another reason; stderr says why
  64       bad usage: flags, names
  66       no such file
  69       no server reachable`

// dash stands for standard input or output.
const dash = "-"

func backupCmd() *cobra.Command {
	var force, stale bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a backup of a running service to a file",
		Long: `Writes the whole state of a running service to FILE: locks, queues, values,
sessions (with hashes of their secrets), closings, the last events. It is the
state at one instant, and the service goes on meanwhile. What arrives is decoded
and checked while it is written; FILE appears only when it is complete, checked
and on the disk. It can be read by its owner only. "-" writes to standard output
instead.

'holdfast backup verify FILE' checks a file again at any time, without a server;
'holdfast restore' makes a new service of it.

` + backupExitTable,
		Args: filledArg("FILE"),
	}
	boolFlag(cmd.Flags(), &force, "force", "replace FILE if it exists")
	boolFlag(cmd.Flags(), &stale, "stale", "take what the server that answers has, though it may not lead: it may be older than what was answered")
	format := outputFlag(cmd)
	var servers cobra.Command // not for 'verify', which needs none
	serverFlag(&servers)
	operatorFlag(&servers)
	cmd.Flags().AddFlagSet(servers.PersistentFlags())
	cmd.AddCommand(backupVerifyCmd())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, _, stop := notifyEnd(cmd.Context())
		defer stop()
		take := func(w io.Writer) (backup.Header, *core.State, error) {
			client, err := dial(cmd)
			if err != nil {
				return backup.Header{}, nil, err
			}
			defer closeClient(client)
			return receiveBackup(ctx, client, w, cluster.BackupOptions{Stale: stale, By: operatorName()})
		}
		report := cmd.OutOrStdout()
		if args[0] == dash {
			h, s, err := take(cmd.OutOrStdout())
			if err != nil {
				return err
			}
			return printBackup(cmd.ErrOrStderr(), "standard output", h, s, *format)
		}
		h, s, err := writeBackup(args[0], force, take)
		if err != nil {
			return err
		}
		return printBackup(report, args[0], h, s, *format)
	}
	return cmd
}

// filledArg wants one argument that is not empty, as that of an unset variable
// is.
func filledArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := exactArgs(name)(cmd, args)
		if err == nil && args[0] == "" {
			err = usagef("%s is empty; see '%s --help'", name, cmd.CommandPath())
		}
		return err
	}
}

// receiveBackup takes a backup, writes it to w, and checks it meanwhile.
func receiveBackup(ctx context.Context, client *cluster.Client, w io.Writer, o cluster.BackupOptions) (backup.Header, *core.State, error) {
	r, pipe := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := client.Backup(ctx, io.MultiWriter(w, pipe), o)
		pipe.CloseWithError(err) // nil: the end
		sent <- err
	}()
	h, s, bad := backup.Read(r)
	r.CloseWithError(bad)
	err := <-sent
	switch {
	case bad == nil:
		return h, s, err
	case err == nil || errors.Is(err, bad):
		if backup.IsBad(bad) {
			return h, nil, fmt.Errorf("what the server sent is no good backup: %w", bad)
		}
		err = bad
	}
	if s, ok := errors.AsType[signalError](context.Cause(ctx)); ok {
		return h, nil, withCode(exitSignal+int(s.Signal), errors.New("ended by a signal; no backup was written"))
	}
	return h, nil, fmt.Errorf("no backup was written: %w", err)
}

// writeBackup writes a file under another name beside it, and gives it its own
// once it is complete and synced.
func writeBackup(path string, force bool, take func(io.Writer) (backup.Header, *core.State, error)) (h backup.Header, s *core.State, err error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return h, nil, err
	case !info.Mode().IsRegular():
		return h, nil, usagef("%s exists and is no ordinary file: want the name of a file, or - for standard output", path)
	case !force:
		return h, nil, withCode(exitFailure, fmt.Errorf("%s exists: choose another name, or replace it with --force", path))
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.part")
	if err != nil {
		if cause, ok := errors.AsType[*fs.PathError](err); ok {
			err = cause.Err // the name of the temporary file would only confuse
		}
		return h, nil, fmt.Errorf("no file can be made in %s: %w", filepath.Dir(path), err)
	}
	defer func() {
		f.Close()
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if h, s, err = take(f); err != nil {
		return h, nil, err
	}
	if err := f.Sync(); err != nil {
		return h, nil, err
	}
	return h, s, settle(f.Name(), path, force)
}

// settle gives a file its name, durably. Without force nothing is replaced,
// whatever came to be meanwhile.
func settle(from, to string, force bool) error {
	err := errors.ErrUnsupported
	if !force {
		if err = os.Link(from, to); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("%s was made meanwhile: choose another name, or replace it with --force", to)
		}
		if err == nil {
			err = os.Remove(from)
		}
	}
	if err != nil { // also where a file system has no links
		err = os.Rename(from, to)
	}
	if err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// A backupJSON is what backup and backup verify print with -o json.
type backupJSON struct {
	File string `json:"file"`
	backup.Header
	core.Size
}

func printBackup(w io.Writer, name string, h backup.Header, s *core.State, format string) error {
	size := s.Size()
	if format == formatJSON {
		return printJSON(w, backupJSON{name, h, size})
	}
	_, err := fmt.Fprintf(w, `%s: a whole backup, every byte as it was written
  taken        %s by holdfast %s (the wall clock there; nothing is decided by it)
  domain       %s, incarnation %s, epoch %d
  state        index %d, term %d, revision %d, cluster version %d
  last number  %d
  holds        %d locks (%d closed), %d sessions with %d grants and %d waits, %d events
  size         %d bytes of state, SHA-256 %s
`, printable(name), h.TakenAt.Format("2006-01-02 15:04:05Z"), printable(h.Server), h.Domain, h.Incarnation, h.Epoch,
		h.Index, h.Term, h.Revision, h.ClusterVersion, h.LastNumber,
		size.Locks, size.Closed, size.Sessions, size.Grants, size.Waits, size.Events, h.StateBytes, h.StateHash)
	return err
}
