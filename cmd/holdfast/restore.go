package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"holdfast/fence"
	"holdfast/server/backup"
)

func init() { moreCommands = append(moreCommands, restoreCmd, recoverCmd) }

const beginExitTable = `Exit codes:
  0        done; the service can be started
  1        refused, or failed; stderr says why, and nothing was changed
  64       bad usage: flags, names
  66       no such file`

// epochRule is the part of the help that restore and recover share.
const epochRule = `Either --keep-domain or --new-domain must be given:

  --keep-domain  this is the one service that goes on. Gates accept its tokens,
                 which are above every token of the lost run, and refuse that
                 run's late writers. Never let two services keep one domain.
  --new-domain   this is a copy beside the service that lives on, for a test.
                 No existing gate accepts its tokens.

Tokens are above those of the lost run because the new service begins with a
raised epoch, which is the upper part of every number: the highest of the
data's epoch + 1, the days since 2025-01-01 UTC, and the epoch of --above + 1.
So this machine's clock must be right to the day. A SECOND RESTORE OF ONE BACKUP
ON ONE DAY NEEDS --above with a token (or its number) of the first: without it
both services give out the same numbers, and a gate that sees both reports a
forked domain. What is printed at the end has the line to use.

All sessions of the data are void: what they held is free, after the lock-delay
where there is one. Values that belong to no session stay, and so do closings
(lock-delay, once-per), whose time stood still meanwhile. The new service has
this node as its only member; others join afterwards, with empty directories.

DIR must not exist, or be empty. It is made under another name beside it and
then renamed: whatever dies in between, DIR is as it was, or complete.`

// beginning are the flags that restore and recover share.
type beginning struct {
	data, above string
	keep, fresh bool
	format      *string
}

func (b *beginning) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&b.data, "data", "", "the new service's data `directory` (required)")
	boolFlag(fs, &b.keep, "keep-domain", "go on as the one service of the domain")
	boolFlag(fs, &b.fresh, "new-domain", "begin a domain of its own, which no existing gate accepts")
	fs.StringVar(&b.above, "above", "", "a `TOKEN`, or its number, that must be below every new one")
	b.format = outputFlag(cmd)
}

// options checks the flags.
func (b *beginning) options(cmd *cobra.Command) (backup.Options, error) {
	o := backup.Options{Dir: b.data, NewDomain: b.fresh, Today: time.Now(), By: operatorName()}
	o.Logger = newLogger(cmd.ErrOrStderr(), &serveSettings{logLevel: "warn", logFormat: formatText})
	switch {
	case b.data == "":
		return o, usagef("--data DIR is missing: the directory of the new service's data; see '%s --help'", cmd.CommandPath())
	case b.keep == b.fresh:
		return o, usagef("want one of --keep-domain (the one service that goes on) and --new-domain (a copy that no gate accepts): there is no default, because a wrong guess loses data; see '%s --help'", cmd.CommandPath())
	case b.fresh && b.above != "":
		return o, usagef("--above goes with --keep-domain: numbers of a new domain have no order with those before")
	case cmd.Flags().Changed("above") && b.above == "":
		// A script's variable was empty. As if it were not given, a second
		// restore of the day would give out the first one's numbers.
		return o, usagef("nothing is given with --above: want a token or a number, or the flag left out, which is right for the first restore of a day only")
	}
	return o, b.parseAbove(&o)
}

// parseAbove reads a token, or a number alone.
func (b *beginning) parseAbove(o *backup.Options) error {
	if b.above == "" {
		return nil
	}
	if n, err := strconv.ParseUint(b.above, 10, 63); err == nil && n > 0 {
		o.Above = n
		return nil
	}
	t, err := fence.ParseToken(b.above)
	if err != nil {
		return usagef("--above %q: want a fencing token as the service or a gate printed it, or its number (1 to %d)", b.above, uint64(fence.MaxNumber))
	}
	o.Above, o.AboveDomain = t.Number, t.Domain
	return nil
}

func restoreCmd() *cobra.Command {
	var b beginning
	cmd := &cobra.Command{
		Use:   "restore FILE --data DIR (--keep-domain [--above TOKEN] | --new-domain)",
		Short: "Make a new service from a backup",
		Long: `Makes the data directory of a new service from FILE, which 'holdfast backup'
wrote ("-" is standard input). All of FILE is checked before anything is made.
What happened after the backup was taken is lost: that is what the raised epoch
is for. Stop what is left of the old service first.

` + epochRule + `

` + beginExitTable,
		Args:                  filledArg("FILE"),
		DisableFlagsInUseLine: true,
	}
	b.register(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := b.options(cmd)
		if err != nil {
			return err
		}
		in, err := openBackup(cmd, args[0])
		if err != nil {
			return err
		}
		defer in.Close()
		h, begun, err := backup.Restore(in, o)
		if backup.IsBad(err) {
			return badBackup(args[0], fmt.Errorf("nothing was restored: %w", err))
		}
		if err != nil {
			return cannotBegin(err)
		}
		return b.print(cmd.OutOrStdout(), "restored", begunJSON{From: args[0], Index: h.Index, LastNumber: h.LastNumber, TakenAt: &h.TakenAt}, begun,
			"holdfast restore "+shellQuote(args[0]))
	}
	return cmd
}

// cannotBegin gives an error of restore and recover its exit code.
func cannotBegin(err error) error {
	if errors.Is(err, backup.ErrOtherDomain) {
		return withCode(exitUsage, fmt.Errorf("--above: %w", err))
	}
	return withCode(exitFailure, err)
}

// A begunJSON is what restore and recover print with -o json.
type begunJSON struct {
	From        string         `json:"from"`
	TakenAt     *time.Time     `json:"taken_at,omitempty"`
	Index       uint64         `json:"index,string"`
	LastNumber  uint64         `json:"last_number,string"`
	Survivor    *survivorJSON  `json:"survivor,omitempty"`
	Data        string         `json:"data"`
	NodeID      string         `json:"node_id"`
	Domain      string         `json:"domain"`
	NewDomain   bool           `json:"new_domain"`
	Incarnation string         `json:"incarnation"`
	Epoch       uint16         `json:"epoch"`
	Lowest      uint64         `json:"lowest_number,string"`
	Ended       map[string]int `json:"ended"`
	Left        map[string]int `json:"left"`
	Next        string         `json:"next_on_this_day,omitempty"`
}

// print tells what was made, what is lost, and what to do next.
func (b *beginning) print(w io.Writer, done string, j begunJSON, begun backup.Begun, again string) error {
	j.Data, j.NodeID, j.Domain = begun.Dir, fmt.Sprintf("%016x", begun.NodeID), fence.Domain(begun.Domain).String()
	j.NewDomain, j.Incarnation = b.fresh, fence.Incarnation(begun.Incarnation).String()
	j.Epoch, j.Lowest = begun.Epoch, begun.Lowest
	j.Ended = map[string]int{"sessions": begun.Ended.Sessions, "grants": begun.Ended.Grants, "waits": begun.Ended.Waits}
	j.Left = map[string]int{"locks": begun.Left.Locks, "closed": begun.Left.Closed}
	if !b.fresh {
		j.Next = again + " --data DIR --keep-domain --above " + strconv.FormatUint(begun.Lowest, 10)
	}
	if *b.format == formatJSON {
		return printJSON(w, j)
	}
	domain, tokens := "kept: gates go on with it", "every token from now on is above all that the service of the data knew of"
	if b.fresh {
		domain, tokens = "new: no existing gate accepts its tokens", "tokens are of another domain than before, and have no order with those"
	}
	_, err := fmt.Fprintf(w, `%s from %s
  data         %s
  domain       %s (%s)
  epoch        %d: %s
  lowest       %d is the lowest number that it can give out; %d was the highest in the data
  incarnation  %s, node %s: the only member; others join afterwards
  void         %d sessions, with %d grants and %d waits
  left         %d locks with a value or a closing (%d closed)
start it with:
  holdfast serve --data %s
`, done, printable(j.From), printable(j.Data), j.Domain, domain, j.Epoch, tokens, j.Lowest, j.LastNumber, j.Incarnation, j.NodeID,
		begun.Ended.Sessions, begun.Ended.Grants, begun.Ended.Waits, begun.Left.Locks, begun.Left.Closed, shellQuote(j.Data))
	if err == nil && j.Next != "" {
		_, err = fmt.Fprintf(w, `if this is done once more today, the other service would give out the same numbers,
and a gate that sees both reports a forked domain; stop this one first, and use:
  %s
`, j.Next)
	}
	return err
}
