//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A strike is one fault that happened.
type strike struct {
	kind     string
	from, to int64
	next     int64         // when the next one began, or the run ended
	served   time.Duration // from its end until every task had a grant again
}

// rounds break things until the time is over: one fault at a time, and in one
// of four rounds a second one while the first lasts. After each round everybody
// must be served again.
func (r *run) rounds(ctx context.Context) {
	rng := rand.New(rand.NewPCG(r.seed, uint64(r.settings.servers)))
	var all []fault
	for _, f := range faults {
		if (r.real || !f.root) && (r.only == nil || slices.Contains(r.only, f.kind)) {
			all = append(all, f)
		}
	}
	end := now() + int64(r.lasts)
	for now() < end && ctx.Err() == nil && !r.broken() {
		n := 1
		if rng.IntN(4) == 0 {
			n = 2
		}
		var group sync.WaitGroup
		var chosen []fault
		for range n {
			chosen = append(chosen, draw(rng, all))
		}
		first := len(r.strikes)
		for i, f := range chosen {
			own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
			group.Go(func() {
				pause(ctx, time.Duration(i)*time.Duration(own.IntN(2000))*time.Millisecond)
				r.strike(ctx, f, own)
			})
		}
		group.Wait()
		r.calm(ctx, first)
		pause(ctx, time.Duration(rng.IntN(1000))*time.Millisecond)
	}
}

// broken reports whether something is wrong already, so that going on would
// only bury it.
func (r *run) broken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.judge.violations) > 0 || len(r.view.wrong) > 0
}

// strike does one fault.
func (r *run) strike(ctx context.Context, f fault, rng *rand.Rand) {
	b := &blow{run: r, rng: rng}
	s := strike{kind: f.kind, from: now()}
	err := f.do(ctx, b)
	b.over()
	s.to = now()
	if errors.Is(err, errTaken) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.judge.object("harness", "%s: %v", f.kind, err)
	}
	r.strikes = append(r.strikes, s)
}

// calm waits after faults until everybody is served.
func (r *run) calm(ctx context.Context, first int) {
	r.mu.Lock()
	since, struck := now(), len(r.strikes) > first
	r.mu.Unlock()
	if !struck || ctx.Err() != nil {
		return
	}
	took, err := r.served(ctx, since, patience)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		r.judge.object("service returns", "after %s: %v", r.strikes[len(r.strikes)-1].kind, err)
	}
	kinds := ""
	for i := first; i < len(r.strikes); i++ {
		r.strikes[i].served = took
		kinds += ", " + r.strikes[i].kind
	}
	fmt.Fprintf(r.out, "%6.1fs  %d grants, all served %v after: %s\n", float64(now()-r.began)/1e9, len(r.history.grants), took.Round(time.Millisecond), kinds[2:])
}

// finish ends the clients in order, compares the servers and judges.
func (r *run) finish(ctx context.Context) error {
	end := now()
	r.mu.Lock()
	for i := range r.strikes {
		r.strikes[i].next = end
		for _, later := range r.strikes[i+1:] {
			if later.from > r.strikes[i].to {
				r.strikes[i].next = later.from
				break
			}
		}
	}
	r.mu.Unlock()
	for _, c := range r.clients {
		c.process().signal(syscall.SIGTERM)
	}
	for _, c := range r.clients {
		if err := c.process().end(syscall.SIGTERM, 40*time.Second); err != nil {
			r.judge.object("processes", "client %s: %v", c.name, err)
		} else if code := c.process().cmd.ProcessState.ExitCode(); code != 0 {
			r.judge.object("processes", "client %s ended with %d: %s", c.name, code, lastLines(c.process().said))
		}
	}
	r.look()
	if err := r.sameStates(ctx); err != nil {
		r.judge.object("equal states", "%v", err)
	}
	e := evidence{history: r.history, ledgers: map[string][]entry{}, problems: r.view.wrong}
	var err error
	if e.events, err = r.watcher.end(ctx); err != nil {
		r.judge.object("grants", "the watcher: %v", err)
	}
	if err := readPostgres(ctx, r.db, e.ledgers); err != nil {
		return err
	}
	r.view.ledgers(e.ledgers)
	e.judgeAll(&r.judge)
	r.tells = r.tellsOf()
	r.history.linearizable(&r.judge, r.unlock)
	return nil
}

// sameStates asks the servers for the hashes of their states.
func (r *run) sameStates(ctx context.Context) error {
	argv := []string{r.binary, "cluster", "status", "--hash", "-o", "json", "--server", r.endpoints(),
		"--ca", r.ca.path("ca.pem"), "--cert", r.ca.path("hub.pem"), "--key", r.ca.path("hub.key")}
	if r.net.hub != "" {
		argv = append([]string{"ip", "netns", "exec", r.net.hub}, argv...)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return err
	}
	var seen struct {
		HashesEqual *bool `json:"hashes_equal"`
		Members     []struct {
			Hash string `json:"state_hash"`
		} `json:"members"`
	}
	if err := json.Unmarshal(out, &seen); err != nil {
		return err
	}
	hashes := 0
	for _, m := range seen.Members {
		if m.Hash != "" {
			hashes++
		}
	}
	if seen.HashesEqual == nil || !*seen.HashesEqual || hashes != len(r.servers) {
		return fmt.Errorf("%d servers, %d hashes: %s", len(r.servers), hashes, out)
	}
	return nil
}
