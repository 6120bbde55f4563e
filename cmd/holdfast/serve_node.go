package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"holdfast/server"
)

// A runningServer is what serve needs of a server.
type runningServer interface {
	Addr() string
	// Beat rises as long as the node is at work.
	Beat() uint64
	// Wait returns when the server has stopped: nil if it was asked to.
	Wait() error
	Stop(ctx context.Context) error
}

// endCode is the exit code of a server that cannot start, or has failed. One
// that was removed from its cluster has that of a setting that cannot work:
// starting it again does not help.
func endCode(err error) int {
	if errors.Is(err, server.ErrRemoved) {
		return exitUsage
	}
	return exitFailure
}

// startServer starts a server with the settings.
func startServer(ctx context.Context, s *serveSettings, log *slog.Logger) (runningServer, error) {
	if info, err := os.Stat(s.data); err == nil && !info.IsDir() {
		return nil, usagef("--data %s is not a directory", s.data)
	}
	srv, err := server.Start(ctx, server.Config{
		Listen: s.listen, TLS: s.tls.files(),
		OperatorTokenFile: s.tls.tokens, OperatorCertNames: s.tls.operatorNames(), Dir: s.data, Insecure: s.insecure, Pprof: s.pprof,
		Cluster: s.cluster.config(), MaxSessions: s.maxSessions, SnapshotEntries: uint64(s.snapshotEvery), Logger: log, Version: readVersion().Version,
	})
	if err != nil {
		return nil, withCode(endCode(err), fmt.Errorf("starting the server: %w", err))
	}
	return srv, nil
}
