package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

// queuePlaces is how much of a queue lock get shows.
const queuePlaces = 1000

func lockGetCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Show one lock: who holds it, since when, who waits, and how to free it",
		Long: `Shows the holders of a lock with the grant's number and token, the last renewal,
the queue with its places, and the command that would take the lock back. A
lock that is free, open and without a value does not exist: exit code 66.

` + exitTable,
		Args: exactArgs("NAME"),
	}
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLockName(args[0]); err != nil {
			return err
		}
		servers, err := serverList(cmd)
		if err != nil {
			return err
		}
		client, err := dial(cmd)
		if err != nil {
			return err
		}
		defer closeClient(client)
		ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
		defer cancel()
		l, err := client.Get(ctx, args[0], cluster.GetOptions{QueueLimit: queuePlaces})
		if isNotFound(err) {
			return withCode(exitMissing, fmt.Errorf("no lock %q: nobody holds it or waits for it, and it has no value", args[0]))
		}
		if err != nil {
			return err
		}
		if *format == formatJSON {
			return printJSON(cmd.OutOrStdout(), toLockJSON(l, servers))
		}
		return printLock(cmd.OutOrStdout(), l, servers)
	}
	return cmd
}

// printLock shows a lock to a person.
func printLock(w io.Writer, l *cluster.Lock, servers string) error {
	p := &page{w: w}
	p.line("lock", quoted(l.Name))
	if l.Limit > 1 {
		p.line("permits", fmt.Sprintf("%d of %d in use", len(l.Holders), l.Limit))
	}
	if l.Sealed {
		p.line("sealed", "a holder was revoked: nobody joins this shared run, who comes waits until its last holder has gone")
	}
	if l.Closed {
		p.line("closed", fmt.Sprintf("by %s, opens in %s, at %s", l.ClosedCause, brief(l.OpensIn), time.Now().Add(l.OpensIn).Format(time.DateTime)))
	}
	if l.HasValue {
		p.line("value", valueText(l.Value))
	}
	if len(l.Holders) == 0 {
		p.line("held by", "nobody")
	}
	for _, h := range l.Holders {
		p.holder(l.Name, h, servers)
	}
	p.line("waiting", number(uint64(l.Waiters)))
	for _, q := range l.Queue {
		mode := ""
		if q.Shared {
			mode = ", shared"
		}
		p.line(fmt.Sprintf("  place %d", q.Place), fmt.Sprintf("%s, session %d, for %s%s",
			holderName(q.Label, q.Host, q.SessionID), q.SessionID, brief(q.Waited), mode))
	}
	if rest := l.Waiters - len(l.Queue); rest > 0 {
		p.line("  …", fmt.Sprintf("and %d more", rest))
	}
	return p.err
}

// page prints labelled lines, and keeps the first error.
type page struct {
	w   io.Writer
	err error
}

func (p *page) line(label, text string) {
	if _, err := fmt.Fprintf(p.w, "%-14s %s\n", label+":", text); err != nil && p.err == nil {
		p.err = err
	}
}

func (p *page) holder(name string, h cluster.Holder, servers string) {
	mode := "exclusive"
	if h.Shared {
		mode = "shared"
	}
	p.line("held by", holderName(h.Label, h.Host, h.SessionID)+", "+mode)
	p.line("  label", printable(h.Label))
	p.line("  host", printable(h.Host))
	p.line("  session", number(h.SessionID))
	p.line("  grant", number(h.Grant))
	p.line("  token", h.Token.String())
	p.line("  since", fmt.Sprintf("%s (%s)", since(h.Held).Format(time.DateTime), brief(h.Held)))
	p.line("  last renewal", fmt.Sprintf("%s; lease good for %s", agoText(h.LastHeard), brief(h.TTLLeft)))
	if h.Revoked {
		p.line("  revoked", fmt.Sprintf("%s, by %s: free when the holder has stopped, or its lease has run out", h.RevokeWhy, printable(h.RevokeBy)))
	}
	p.line("  to free it", freeCommand(name, h.Grant, servers))
}
