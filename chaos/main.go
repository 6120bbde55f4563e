//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	err := errors.New("chaos worker SPEC: one argument")
	switch {
	case len(os.Args) < 2 || os.Args[1] != "worker":
		err = chaos()
	case len(os.Args) == 3:
		err = runWorker(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

// chaos reads the flags and runs each size of cluster for its share of the time.
func chaos() error {
	lasts := flag.Duration("for", 3*time.Minute, "how long, in all")
	sizes := flag.String("servers", "3,5", "sizes of the clusters, one after the other")
	clients := flag.Int("clients", 4, "client processes")
	seed := flag.Uint64("seed", rand.Uint64N(1e9), "chooses the faults and their lengths")
	binary := flag.String("holdfast", "bin/holdfast", "the server's program")
	noGate := flag.Bool("no-gate", false, "write past the gates, and only stop clients: succeeds if the damage is seen")
	keep := flag.Bool("keep", false, "keep the directories of the runs")
	only := flag.String("only", "", "only faults whose names contain this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := sweep(); err != nil {
		return fmt.Errorf("what an earlier run left behind: %w", err)
	}
	path, err := filepath.Abs(*binary)
	if err != nil {
		return err
	}
	s := settings{
		binary: path, prefix: prefixOf(os.Getpid()), clients: *clients, seed: *seed, gated: !*noGate, real: os.Getuid() == 0,
		out: os.Stdout, unlock: 10 * time.Second,
	}
	fmt.Printf("chaos: %v, seed %d\n", *lasts, *seed)
	for _, f := range faults {
		if *only != "" && strings.Contains(f.kind, *only) {
			s.only = append(s.only, f.kind)
		}
	}
	if *only != "" && s.only == nil {
		return fmt.Errorf("no fault's name contains %q", *only)
	}
	if !s.real {
		fmt.Println("this is not root: no namespaces, and no faults of the network and the disk")
	}
	if *noGate {
		s.only = []string{halfOfClients}
	}
	list := strings.Split(*sizes, ",")
	var t table
	for _, text := range list {
		if s.servers, err = strconv.Atoi(text); err != nil {
			return err
		}
		s.lasts = *lasts / time.Duration(len(list))
		r, err := once(ctx, s, *keep)
		if err != nil {
			return err
		}
		t.add(r)
		if r.broken() {
			break
		}
	}
	t.print(os.Stdout)
	return t.verdict(*noGate)
}

// once is one cluster from its start to its end.
func once(ctx context.Context, s settings, keep bool) (*run, error) {
	fmt.Fprintf(s.out, "%d servers, %d clients, for %v\n", s.servers, s.clients, s.lasts)
	r, err := newRun(ctx, s)
	if err == nil {
		err = r.live(ctx)
	}
	err = errors.Join(err, r.close())
	was := r.dir
	if ctx.Err() == nil && (err != nil || len(r.judge.violations) > 0 && r.gated || keep) {
		r.dir = strings.Replace(r.dir, allPrefix, allPrefix+"kept-", 1) // not to be swept
		err = errors.Join(err, os.Rename(was, r.dir))
		fmt.Fprintln(s.out, "kept for a look:", r.dir)
		return r, err
	}
	return r, errors.Join(err, os.RemoveAll(r.dir))
}

// live breaks things for as long as it is to last, and judges.
func (r *run) live(ctx context.Context) error {
	observing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); r.observe(observing) }()
	_, err := r.served(ctx, r.began, patience)
	if err == nil {
		r.rounds(ctx)
	}
	stop()
	<-done
	if ctx.Err() != nil {
		return errors.New("told to stop")
	}
	if err != nil {
		return err
	}
	return r.finish(ctx)
}
