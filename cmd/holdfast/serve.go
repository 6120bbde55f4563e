package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// serveSettings are what a server needs to know, from flags, environment or
// file.
type serveSettings struct {
	data, listen        string
	logLevel, logFormat string
	pprof, insecure     bool
	maxSessions         int
	snapshotEvery       int // entries; 0: the server's default
	tls                 tlsSettings
	cluster             clusterSettings
}

const (
	defaultData        = "./holdfast-data"
	defaultMaxSessions = 100_000
	highestMaxSessions = 10_000_000

	defaultSnapshotEvery = 100_000
	lowestSnapshotEvery  = 100
	highestSnapshotEvery = 10_000_000
)

func (s *serveSettings) register(fs *pflag.FlagSet, listen string) {
	s.listen, s.logLevel, s.logFormat, s.maxSessions = listen, "info", "text", defaultMaxSessions
	fs.Var(&addressValue{&s.listen}, "listen", "`host:port` to listen on; port 0 picks a free one")
	fs.Var(&choiceValue{&s.logLevel, []string{"debug", "info", "warn", "error"}}, "log-level", "the least level that is logged")
	fs.Var(&choiceValue{&s.logFormat, []string{"text", "json"}}, "log-format", "format of the log, which goes to stderr")
	boolFlag(fs, &s.pprof, "pprof", "serve Go's profiles under /debug/pprof/")
	boolFlag(fs, &s.insecure, "insecure", "allow to listen, without TLS, where others than this machine can connect")
	fs.Var(&intValue{&s.maxSessions, 1, highestMaxSessions}, "max-sessions", "sessions beyond this number are refused")
}

// addressValue is a flag for an address to listen on.
type addressValue struct{ s *string }

func (v *addressValue) String() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}
func (v *addressValue) Type() string { return "address" }
func (v *addressValue) Set(s string) error {
	if err := checkAddress(s, true); err != nil {
		return err
	}
	*v.s = s
	return nil
}

func serveCmd() *cobra.Command {
	s := &serveSettings{snapshotEvery: defaultSnapshotEvery}
	var config string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the lock service",
		Long: `Runs one node of the lock service. Alone it needs no flags.

Each setting comes from its flag, else from the environment (HOLDFAST_DATA,
HOLDFAST_LISTEN, HOLDFAST_LOG_LEVEL, …; an empty variable counts as not set),
else from the YAML file that --config names, whose keys are the flags' names.

With --cert and --key the port speaks TLS, and may be reached by others; with
--ca clients must show a certificate too. The files are read again when they
change; see docs/certificates.md. With --operator-token-file or
--operator-cert-name only operators may take locks from others and the like,
and not everybody on this machine.

Several nodes are one cluster: each is started with its --name and the same
--initial-cluster, a list of all names with the addresses that --peer-listen
opens. The cluster is founded when all of them have answered, and not before;
later each node finds the others by itself. A node that stops hands leadership
over first.

SIGTERM and SIGINT stop it cleanly; a second one stops it at once. What was
acknowledged survives both, and kill -9.

` + serveExitTable,
		Args: exactArgs(),
	}
	cmd.Flags().StringVar(&s.data, "data", defaultData, "`directory` of the node's data; created if missing")
	cmd.Flags().StringVar(&config, "config", "", "YAML `file` with settings")
	cmd.Flags().Var(&intValue{&s.snapshotEvery, lowestSnapshotEvery, highestSnapshotEvery}, "snapshot-every", "`entries` of the log after which a snapshot is written; 64 MiB of log are enough for one, too")
	s.register(cmd.Flags(), defaultServer)
	s.tls.register(cmd.Flags())
	s.cluster.register(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := layerConfig(cmd.Flags(), os.LookupEnv); err != nil {
			return err
		}
		return serve(cmd, s, func(w io.Writer, address string) error {
			_, err := fmt.Fprintf(w, "holdfast: serving on %s, data in %s\n", address, printable(s.data))
			return unread(err)
		})
	}
	return cmd
}

// check refuses settings that are each allowed, but not together.
func (s *serveSettings) check() error {
	if err := s.tls.check(); err != nil {
		return err
	}
	if err := s.cluster.check(s.listen, s.insecure); err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return usagef("--listen %q: %w", s.listen, err)
	}
	ip, err := netip.ParseAddr(host)
	if others := host == "" || err == nil && !ip.Unmap().IsLoopback(); others && !s.insecure && s.tls.cert == "" {
		return usagef("--listen %s: without TLS only this machine may connect: want --cert and --key, a loopback address such as %s, or --insecure if you accept that whoever reads the network can take locks over",
			s.listen, defaultServer)
	}
	return nil
}

// stopTimeout bounds a clean stop.
const stopTimeout = 15 * time.Second

// serve runs a server until a signal or its own failure ends it, or ready
// fails, which is called when it can be used.
func serve(cmd *cobra.Command, s *serveSettings, ready func(w io.Writer, address string) error) error {
	if err := s.check(); err != nil {
		return err
	}
	ctx, interrupted, stop := notifyEnd(cmd.Context())
	defer stop()
	log := newLogger(cmd.ErrOrStderr(), s)
	warnOfStrangers(log, cmd.Flags(), os.Environ())
	srv, err := startServer(ctx, s, log)
	if err != nil {
		if interrupted() != 0 {
			return nil
		}
		return err
	}
	notes := openNotes(log)
	defer notes.close()
	told := ready(cmd.OutOrStdout(), srv.Addr())
	if told == nil {
		notes.ready(srv.Addr(), srv.Beat)
		ended := make(chan error, 1)
		go func() { ended <- srv.Wait() }()
		select {
		case <-ctx.Done():
		case err := <-ended:
			return withCode(endCode(err), fmt.Errorf("the server has failed: %w", err))
		}
		log.Info("stopping", "reason", context.Cause(ctx).Error(), "at_most", stopTimeout.String())
	}
	notes.stopping()
	stop() // a second signal has its usual effect
	end, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := srv.Stop(end); err != nil {
		return withCode(exitFailure, fmt.Errorf("stopping: %w", err))
	}
	log.Info("stopped")
	return told
}

// unread is how a command ends that could not print where it serves: nobody
// can use it, so it stops.
func unread(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return withCode(exitSignal+int(syscall.SIGPIPE), errors.New("nobody reads the output; stopped, and nothing is left behind"))
	}
	return withCode(exitFailure, fmt.Errorf("the address cannot be printed: %w", err))
}

// newLogger makes the server's logger as the settings say.
func newLogger(w io.Writer, s *serveSettings) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(s.logLevel)) // one of the flag's choices
	o := &slog.HandlerOptions{Level: level}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
