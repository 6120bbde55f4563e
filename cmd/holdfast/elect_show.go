package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"holdfast/elect"
)

// primaryJSON is what --show prints. Field names are stable, as in lock_json.go.
type primaryJSON struct {
	Election    string  `json:"election"`
	Primary     bool    `json:"primary"` // somebody is in office
	Label       string  `json:"label,omitempty"`
	Host        string  `json:"host,omitempty"`
	Token       string  `json:"token,omitempty"`
	TokenNumber string  `json:"token_number,omitempty"`
	Value       *[]byte `json:"value,omitempty"` // base64
}

// showPrimary prints who is in office, once or with each change.
func (f *electFlags) showPrimary(cmd *cobra.Command, args []string) error {
	name, err := checkShow(cmd, args)
	if err != nil {
		return err
	}
	line := &outage{w: cmd.ErrOrStderr(), silent: !f.follow}
	client, err := dialBy(cmd, line.dial)
	if err != nil {
		return err
	}
	defer closeClient(client)
	defer line.end()
	ctx, interrupted, stop := notifyEnd(cmd.Context())
	defer stop()
	if !f.follow {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		ctx = bounded
	}
	for p, err := range elect.Observe(ctx, client.Board(), name) {
		switch {
		case err != nil && f.follow && interrupted() != 0:
			return nil
		case err != nil:
			return plain(err)
		case f.follow:
			if err := printChange(cmd.OutOrStdout(), name, p, *f.format); err != nil {
				return withCode(exitFailure, err)
			}
			continue
		case p.None():
			return withCode(exitMissing, fmt.Errorf("nobody is in office in election %q", name))
		}
		return printPrimary(cmd.OutOrStdout(), name, p, *f.format)
	}
	return nil
}

func toPrimaryJSON(name string, p elect.Primary) primaryJSON {
	out := primaryJSON{Election: name}
	if !p.None() {
		out = primaryJSON{
			Election: name, Primary: true, Label: p.Label, Host: p.Host,
			Token: p.Token.String(), TokenNumber: number(p.Token.Number), Value: bytesIf(p.Value != nil, p.Value),
		}
	}
	return out
}

// printPrimary shows the one in office.
func printPrimary(w io.Writer, name string, p elect.Primary, format string) error {
	if format == formatJSON {
		return printJSON(w, toPrimaryJSON(name, p))
	}
	out := &page{w: w}
	out.line("election", quoted(name))
	out.line("primary", holderText(p.Label, p.Host, "unnamed"))
	out.line("token", p.Token.String())
	if p.Value != nil {
		out.line("value", valueText(p.Value))
	}
	return out.err
}

// printChange shows one change on one line.
func printChange(w io.Writer, name string, p elect.Primary, format string) error {
	if format == formatJSON {
		return printJSON(w, toPrimaryJSON(name, p))
	}
	var b strings.Builder
	if p.None() {
		b.WriteString("nobody")
	} else {
		fmt.Fprintf(&b, "%d  %s", p.Token.Number, holderText(p.Label, p.Host, "unnamed"))
		if p.Value != nil {
			fmt.Fprintf(&b, "  value %s", valueText(p.Value))
		}
	}
	_, err := fmt.Fprintln(w, b.String())
	return err
}
