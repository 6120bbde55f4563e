package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"holdfast/server/tlsfiles"
)

// tlsClientFlags adds --ca, --cert and --key to a command and, below it, to its
// children.
func tlsClientFlags(cmd *cobra.Command) {
	fs := cmd.PersistentFlags()
	for _, f := range []struct{ name, usage string }{
		{"ca", "speak TLS; PEM `file` with the CA that signed the server's certificate, or \"system\" for those that this machine trusts"},
		{"cert", "PEM `file` with the certificate to show to the server"},
		{"key", "PEM `file` with the key of --cert"},
	} {
		fs.String(f.name, "", f.usage+" (default $"+environmentName(f.name)+")")
	}
}

// flagOrVariable is what a flag says, else its variable.
func flagOrVariable(cmd *cobra.Command, name string) string {
	if f := cmd.Flag(name); f != nil && f.Changed {
		return f.Value.String()
	}
	return os.Getenv(environmentName(name))
}

// clientTLS is how a command speaks to servers: nil means without TLS. What is
// worth a word later on, such as files that were replaced and cannot be used,
// goes to say.
func clientTLS(cmd *cobra.Command, say func(format string, args ...any)) (func() *tls.Config, error) {
	f := tlsfiles.Files{Cert: flagOrVariable(cmd, "cert"), Key: flagOrVariable(cmd, "key"), CA: flagOrVariable(cmd, "ca")}
	switch {
	case f.IsZero():
		return nil, nil
	case f.CA == "":
		return nil, usagef("--cert and --key are given without --ca: give the file with the CA that signed the server's certificate, or --ca %s", tlsfiles.SystemCA)
	case (f.Cert == "") != (f.Key == ""):
		return nil, usagef("of --cert and --key only one is given: give both, or neither")
	}
	set, err := tlsfiles.Open(f, tlsfiles.Options{Role: tlsfiles.Client, Logger: slog.New(sayHandler{say})})
	if err != nil {
		return nil, withCode(exitUsage, err)
	}
	return set.Client, nil
}

// saying is how a command that has no other way speaks.
func saying(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "holdfast: %s\n", printableLines(fmt.Sprintf(format, args...)))
	}
}

// lateSay speaks in one way, and from some moment on in another.
type lateSay struct {
	mu  sync.Mutex
	say func(format string, args ...any)
}

func (l *lateSay) become(say func(format string, args ...any)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.say = say
}

func (l *lateSay) now(format string, args ...any) {
	l.mu.Lock()
	say := l.say
	l.mu.Unlock()
	say(format, args...)
}

// sayHandler is a log whose warnings are for the person at the command.
type sayHandler struct {
	say func(format string, args ...any)
}

// Enabled implements slog.Handler, as the other methods do.
func (h sayHandler) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle says the record on one line.
func (h sayHandler) Handle(_ context.Context, r slog.Record) error {
	var more []string
	r.Attrs(func(a slog.Attr) bool {
		more = append(more, a.Key+" "+a.Value.String())
		return true
	})
	h.say("%s (%s)", r.Message, strings.Join(more, ", "))
	return nil
}

// WithAttrs and WithGroup change nothing: only the record's own are said.
func (h sayHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup is like WithAttrs.
func (h sayHandler) WithGroup(string) slog.Handler { return h }
