package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"holdfast/server/backup"
)

func backupVerifyCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a backup, without a server, and show what is in it",
		Long: `Reads all of FILE, decodes the state in it, and checks its invariants: what
passes can be restored by this release. It needs no server, and memory for the
state. A file that was cut, or has one bit that is not as it was written, is
refused by name. "-" reads standard input.

` + backupExitTable,
		Args: filledArg("FILE"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := openBackup(cmd, args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		h, s, err := backup.Read(in)
		if err != nil {
			return badBackup(args[0], err)
		}
		return printBackup(cmd.OutOrStdout(), args[0], h, s, *format)
	}
	return cmd
}

// openBackup opens a file, or standard input.
func openBackup(cmd *cobra.Command, path string) (io.ReadCloser, error) {
	if path == dash {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withCode(exitMissing, err)
	}
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err == nil && info.IsDir() {
		f.Close()
		return nil, usagef("%s is a directory: want a file that 'holdfast backup' wrote", path)
	}
	return f, nil
}

// badBackup says which file is not good.
func badBackup(path string, err error) error {
	err = fmt.Errorf("%s: %w", path, err)
	if errors.Is(err, backup.ErrDamaged) || errors.Is(err, backup.ErrTruncated) {
		err = fmt.Errorf("%w; use another copy or an older backup", err)
	}
	return withCode(exitFailure, err)
}
