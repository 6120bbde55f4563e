package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"holdfast/driver"
	"holdfast/engine/cluster"
	"holdfast/fence"
)

// A revokedJSON is what lock revoke -o json prints.
type revokedJSON struct {
	Lock            string `json:"lock"`
	Grant           string `json:"grant"`
	Now             bool   `json:"now"`
	Revision        string `json:"revision"`
	RevocationToken string `json:"revocation_token"`
	Note            string `json:"note,omitempty"`
}

func lockRevokeCmd() *cobra.Command {
	var token string
	var now bool
	cmd := &cobra.Command{
		Use:   "revoke NAME --token N",
		Short: "Take a lock back from its holder",
		Long: `Takes back the grant with number N, as 'holdfast lock get' shows it (the token in
its full form is accepted too). If that grant is no longer held, nothing
happens, and the present holder is shown: a late revoke never hits the next
holder.

The holder is told to stop, and the lock is free when it has, or when its lease
would have run out. --now frees the lock at once: the holder may still be at
work, and only a gate stops its writes.

` + exitTable,
		Args: exactArgs("NAME"),
	}
	cmd.Flags().StringVar(&token, "token", "", "`N`, the number of the grant, as 'holdfast lock get' shows it (required)")
	boolFlag(cmd.Flags(), &now, "now", "free the lock at once, without waiting for the holder to stop")
	operatorFlag(cmd)
	format := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkLockName(args[0]); err != nil {
			return err
		}
		grant, err := parseGrant(args[0], token)
		if err != nil {
			return err
		}
		return revoke(cmd, args[0], grant, now, *format)
	}
	return cmd
}

// parseGrant reads --token: a grant's number, or an exclusive token.
func parseGrant(name, text string) (uint64, error) {
	if text == "" {
		return 0, usagef("--token N is missing: see the grant's number with 'holdfast lock get %s'", shellQuote(name))
	}
	if n, err := strconv.ParseUint(text, 10, 63); err == nil && n > 0 {
		return n, nil
	}
	t, err := fence.ParseToken(text)
	switch {
	case err != nil:
		return 0, usagef("--token %q: want the number of a grant (1 to %d), or its token, as 'holdfast lock get' shows them", text, uint64(fence.MaxNumber))
	case t.Lock != name:
		return 0, usagef("--token is one of lock %q, not of %q", t.Lock, name)
	case t.Mode != fence.Exclusive:
		return 0, usagef("--token is %s: several grants share it; want the number of the grant, as 'holdfast lock get' shows it", t.Mode)
	}
	return t.Number, nil
}

func revoke(cmd *cobra.Command, name string, grant uint64, now bool, format string) error {
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
	res, err := client.Revoke(ctx, name, grant, cluster.RevokeOptions{Now: now, By: operatorName()})
	if err != nil {
		return explainRevoke(ctx, cmd.ErrOrStderr(), client, name, servers, grant, err)
	}
	if format == formatJSON {
		return printJSON(cmd.OutOrStdout(), revokedJSON{
			Lock: name, Grant: number(grant), Now: now, Revision: number(res.Revision), RevocationToken: res.Token.String(), Note: res.Note,
		})
	}
	what := "the holder is told to stop; the lock is free when it has, or when its lease has run out"
	if now {
		what = "it holds no more"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "grant %d of lock %q revoked: %s\nrevocation token, to arm gates with: %s\n", grant, name, what, res.Token)
	if err == nil && res.Note != "" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "note: %s\n", res.Note)
	}
	return err
}

// explainRevoke shows who holds the lock now, if the grant does not. (Invalid is
// a number that no grant ever had.)
func explainRevoke(ctx context.Context, stderr io.Writer, client *cluster.Client, name, servers string, grant uint64, err error) error {
	kind := driver.KindOf(err)
	if kind != driver.NotHeld && kind != driver.NotFound && kind != driver.Invalid {
		return err
	}
	l, getErr := client.Get(ctx, name, cluster.GetOptions{QueueLimit: 10})
	switch {
	case isNotFound(getErr):
		return withCode(exitMissing, fmt.Errorf("nothing revoked: lock %q is free; grant %d no longer holds it", name, grant))
	case getErr != nil:
		return err
	case len(l.Holders) == 0:
		return withCode(exitFailure, fmt.Errorf("nothing revoked: grant %d does not hold lock %q, and nobody does", grant, name))
	}
	if err := printLock(stderr, l, servers); err != nil {
		return err
	}
	h := l.Holders[0]
	return withCode(exitFailure, fmt.Errorf("nothing revoked: grant %d does not hold lock %q; it is held by %s (grant %d)",
		grant, name, holderName(h.Label, h.Host, h.SessionID), h.Grant))
}
