package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"holdfast"
	"holdfast/engine/cluster"
)

// A guarded is a command that is run under a lock, as run and elect ask for it.
type guarded struct {
	name    string
	argv    []string
	servers string
	tls     func() *tls.Config // nil: without TLS
	tlsSay  *lateSay           // what tls says
	options holdfast.Options   // of the lease
	grace   time.Duration
	value   []byte // to publish; nil for none
	label   string
}

// guardedFlags are the flags that run and elect have in common, as they stand
// on the command line.
type guardedFlags struct {
	ttl, grace   time.Duration
	value, label string
}

// durationFlag adds a flag for a duration; max 0 is no limit.
func durationFlag(cmd *cobra.Command, d *time.Duration, name string, min, max time.Duration, usage string) {
	cmd.Flags().Var(&durationValue{d: d, min: min, max: max}, name, usage)
}

func (f *guardedFlags) register(cmd *cobra.Command) {
	durationFlag(cmd, &f.ttl, "ttl", holdfast.MinTTL, holdfast.MaxTTL, "how long the lock outlives its last renewal, 1s to 24h (default 15s)")
	durationFlag(cmd, &f.grace, "grace", time.Millisecond, 0, "time between SIGTERM and SIGKILL, at most half of --ttl (default: the smaller of 5s and ttl/3)")
	cmd.Flags().StringVar(&f.value, "value", "", "`text` to publish with the lock while it is held, at most 4096 bytes")
	cmd.Flags().StringVar(&f.label, "label", "", "who holds the lock, for people, at most 256 bytes (default: user and command)")
	serverFlag(cmd)
}

// splitCommand finds the lock's name and the command in the arguments.
func splitCommand(cmd *cobra.Command, args []string) (name string, argv []string, err error) {
	this := cmd.CommandPath()
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) > 1:
		return "", nil, usagef("the command must stand after '--': %s %s -- %s", this, printable(args[0]), printable(strings.Join(args[1:], " ")))
	case dash < 0 || len(args) == dash:
		return "", nil, usagef("no command: want %s NAME [flags] -- CMD [ARG…]", this)
	case dash == 0:
		return "", nil, usagef("no lock name: want %s NAME [flags] -- CMD [ARG…]", this)
	case dash > 1:
		return "", nil, usagef("%d arguments before '--', want one, the lock's name: %s NAME [flags] -- CMD [ARG…]", dash, this)
	}
	return args[0], args[dash:], checkLockName(args[0])
}

// request checks the command line as far as run and elect have it in common.
func (f *guardedFlags) request(cmd *cobra.Command, args []string) (g guarded, err error) {
	if g.name, g.argv, err = splitCommand(cmd, args); err != nil {
		return g, err
	}
	switch {
	case len(f.value) > maxValue:
		return g, usagef("--value has %d bytes: want at most %d", len(f.value), maxValue)
	case len(f.label) > holdfast.MaxLabel:
		return g, usagef("--label has %d bytes: want at most %d", len(f.label), holdfast.MaxLabel)
	case f.label != clean(f.label):
		return g, usagef("--label %q: want UTF-8 without control characters", f.label)
	}
	if g.options, g.grace, err = holdfast.RunTiming(f.ttl, f.grace); err != nil {
		return g, withCode(exitUsage, fmt.Errorf("--ttl and --grace: %w", err))
	}
	if g.servers, err = serverList(cmd); err != nil {
		return g, err
	}
	g.tlsSay = &lateSay{say: saying(cmd)}
	if g.tls, err = clientTLS(cmd, g.tlsSay.now); err != nil {
		return g, err
	}
	if cmd.Flags().Changed("value") {
		g.value = []byte(f.value)
	}
	if g.label = f.label; g.label == "" {
		g.label = clean(userName() + ": " + filepath.Base(g.argv[0]))
	}
	return g, nil
}

// A dialFunc opens a connection; nil stands for the usual way.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// connect dials the service with the settings of the lease. renewed gets a
// value after each renewal.
func (g *guarded) connect(ctx context.Context, renewed chan<- struct{}, log slog.Handler, open dialFunc) (*cluster.Client, error) {
	client, err := cluster.Dial(ctx, g.servers, &cluster.Options{
		TTL: g.options.TTL, Margin: g.options.Margin,
		KeepaliveInterval: g.options.KeepaliveInterval, CallTimeout: g.options.CallTimeout,
		Label: g.label, Host: hostName(), Logger: slog.New(log), TLSNow: g.tls, Dialer: open,
		OnPulse: func(p holdfast.PulseInfo) {
			if p.Err != nil {
				return
			}
			select {
			case renewed <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		return nil, unreachable(g.servers, err)
	}
	return client, nil
}

// survivors names the processes that left the command's group, if there are.
func (w *wrapper) survivors(end commandEnd) {
	if len(end.survivors) > 0 {
		w.say("these processes left the command's group and live on, without the lock: %s", listed(end.survivors))
	}
}
