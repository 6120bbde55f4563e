package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdfast/driver"
	"holdfast/engine/cluster"
)

func init() { moreCommands = append(moreCommands, auditCmd) }

// maxAudits is how many records the service keeps.
const maxAudits = 1000

// An auditJSON is one record in the form of audit -o json.
type auditJSON struct {
	Revision   string `json:"revision"`
	ClockMS    int64  `json:"clock_ms"` // of the log
	Told       string `json:"told"`     // time of day at the node that wrote it
	Call       string `json:"call"`
	On         string `json:"on,omitempty"`
	By         string `json:"by,omitempty"`
	Credential string `json:"credential,omitempty"`
	Peer       string `json:"peer,omitempty"`
	Outcome    string `json:"outcome"`
	Kind       string `json:"kind,omitempty"`
	Count      uint32 `json:"count"`
}

func auditCmd() *cobra.Command {
	limit, following := 100, false
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Show what operators have done, by which credential, and what came of it",
		Long: `Shows the newest records of operators' calls, oldest first: locks taken back,
sessions ended, members changed, backups taken, and calls that were denied. They
are in the replicated log, so every node has them; the service keeps 1000.
A record "begun" was made before the call was done, because the node might not
be able to write it after; if the call then failed, another record says so. Of
denied calls at most one a minute is recorded, with their number; each of them
is in the log of the node that was asked.

--follow goes on with each further one, until interrupted (then it exits
with 0). -o json prints one object a line.

` + exitTable,
		Args: exactArgs(),
	}
	cmd.Flags().Var(&intValue{&limit, 1, maxAudits}, "limit", "how many to show at most, 1 to 1000")
	boolFlag(cmd.Flags(), &following, "follow", "go on with each further one")
	format := outputFlag(cmd)
	serverFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		line := &outage{w: cmd.ErrOrStderr()}
		client, err := dialBy(cmd, line.dial)
		if err != nil {
			return err
		}
		defer closeClient(client)
		defer line.end()
		ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
		defer cancel()
		records, revision, err := client.Audit(ctx, uint32(limit))
		if err != nil {
			return err
		}
		if err := printAudits(cmd.OutOrStdout(), records, *format, following); err != nil || !following {
			return err
		}
		return followAudits(cmd, client, revision, *format)
	}
	return cmd
}

// printAudits prints records: as a table, or one a line if more are to come.
func printAudits(w io.Writer, records []cluster.AuditRecord, format string, more bool) error {
	var rows [][]string
	for i := range records {
		r := &records[i]
		switch {
		case format == formatJSON:
			if err := printJSON(w, toAuditJSON(r)); err != nil {
				return err
			}
		case more:
			if err := printAudit(w, r); err != nil {
				return err
			}
		default:
			rows = append(rows, []string{toldText(r.Told), r.Call, r.On, r.By, r.Credential, r.Peer, outcomeText(&r.AuditCall)})
		}
	}
	if format == formatJSON || more {
		return nil
	}
	return table(w, []string{"TIME", "CALL", "ON", "BY", "CREDENTIAL", "FROM", "OUTCOME"}, rows)
}

func printAudit(w io.Writer, r *cluster.AuditRecord) error {
	_, err := fmt.Fprintf(w, "%d  %s  by %s  %s\n", r.Revision, toldText(r.Told), printable(r.By), auditText(&r.AuditCall))
	return err
}

// auditText is what was done, by whom it was known to be done, and what came of
// it.
func auditText(c *cluster.AuditCall) string {
	text := fmt.Sprintf("%s: %s", c.Call, printable(c.On))
	if c.Credential != "" {
		text += fmt.Sprintf("  (%s)", printable(c.Credential))
	}
	return text + "  " + outcomeText(c)
}

func outcomeText(c *cluster.AuditCall) string {
	text := c.Outcome
	if c.Outcome == "refused" && c.Kind != driver.Internal {
		text += ": " + c.Kind.String()
	}
	if c.Count > 1 {
		text += fmt.Sprintf(" (%d times)", c.Count)
	}
	return text
}

func toldText(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func toAuditJSON(r *cluster.AuditRecord) auditJSON {
	out := auditJSON{
		Revision: number(r.Revision), ClockMS: millis(r.Clock), Told: toldText(r.Told), Call: r.Call, On: r.On, By: r.By,
		Credential: r.Credential, Peer: r.Peer, Outcome: r.Outcome, Count: r.Count,
	}
	if r.Kind != driver.Internal {
		out.Kind = r.Kind.String()
	}
	return out
}

// followAudits prints each record as it is made. It watches everything, as
// records are of no lock.
func followAudits(cmd *cobra.Command, client *cluster.Client, after uint64, format string) error {
	ctx, interrupted, stop := notifyEnd(cmd.Context())
	defer stop()
	broken := false
	for {
		for batch, err := range client.Watch(ctx, cluster.WatchOptions{After: &after}) {
			if err != nil {
				if interrupted() != 0 {
					return nil
				}
				if finalForWatch(err) {
					return err
				}
				if !broken {
					fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: the watch broke (%s); trying again\n", printable(plainText(err)))
				}
				broken = true
				break
			}
			broken = false
			for i := range batch.Events {
				if err := printAuditEvent(cmd.OutOrStdout(), &batch.Events[i], format); err != nil {
					return withCode(exitFailure, err)
				}
			}
			after = batch.Revision
		}
		if interrupted() != 0 {
			return nil
		}
		pause(ctx, watchRetry)
	}
}

func printAuditEvent(w io.Writer, e *cluster.Event, format string) error {
	if e.Audit == nil {
		return nil
	}
	r := &cluster.AuditRecord{Revision: e.Revision, Clock: e.Clock, AuditCall: *e.Audit}
	if format == formatJSON {
		return printJSON(w, toAuditJSON(r))
	}
	return printAudit(w, r)
}
