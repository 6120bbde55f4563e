package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/driver"
	"holdfast/engine/cluster"
)

// callTimeout bounds what an operator's command waits for an answer, and
// searchTimeout how long it looks for a server.
const (
	callTimeout   = 10 * time.Second
	searchTimeout = 2 * time.Second
)

// dial connects an operator's command to the service.
func dial(cmd *cobra.Command) (*cluster.Client, error) { return dialBy(cmd, nil) }

// dialBy is dial with another way to open connections.
func dialBy(cmd *cobra.Command, open func(ctx context.Context, network, address string) (net.Conn, error)) (*cluster.Client, error) {
	servers, err := serverList(cmd)
	if err != nil {
		return nil, err
	}
	secure, err := clientTLS(cmd, saying(cmd))
	if err != nil {
		return nil, err
	}
	token, err := operatorToken(cmd)
	if err != nil {
		return nil, err
	}
	c, err := cluster.Dial(cmd.Context(), servers, &cluster.Options{
		Label: "holdfast " + cmd.Name(), Host: hostName(), OpenTimeout: searchTimeout, Dialer: open, TLSNow: secure, OperatorToken: token,
	})
	if err != nil {
		return nil, unreachable(servers, err)
	}
	return c, nil
}

// unreachable says which servers were tried and how to name others.
func unreachable(servers string, err error) error {
	switch exitCode(err) {
	case exitUsage, exitConflict:
		return plain(err)
	}
	if errors.Is(err, holdfast.ErrInvalid) {
		return withCode(exitUsage, plain(err))
	}
	return withCode(exitUnreachable, fmt.Errorf("no lock service reachable at %s: %w; start one with 'holdfast serve', or name it with --server or %s",
		servers, oneLine{plain(err)}, serverVariable))
}

// oneLine joins the lines of an error's text.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.ReplaceAll(e.error.Error(), "\n", "; ") }
func (e oneLine) Unwrap() error { return e.error }

// hostName is this machine's name, for people.
func hostName() string {
	h, err := os.Hostname()
	if err != nil {
		return ""
	}
	return clean(h)
}

// userName is who runs this process, for people and the audit.
func userName() string {
	if u, err := user.Current(); err == nil {
		return clean(u.Username)
	}
	return "uid " + strconv.Itoa(os.Getuid())
}

// operatorName says who does an operator's call.
func operatorName() string { return clean(userName() + "@" + hostName()) }

// clean makes a text fit for a label: valid, without control characters, at
// most 256 bytes.
func clean(s string) string {
	s = escaped(strings.ToValidUTF8(s, "\uFFFD"), isControl)
	for len(s) > holdfast.MaxLabel {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// isNotFound reports whether the service does not know what was asked for.
func isNotFound(err error) bool { return driver.KindOf(err) == driver.NotFound }

// closeClient ends the client's connection. An operator's command opened no
// session, so there is nothing to wait for.
func closeClient(c *cluster.Client) { _ = c.Close(context.Background()) }
