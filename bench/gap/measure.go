package gap

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"time"
)

// Options say how much is measured.
type Options struct {
	// Kills is how many times the leader is killed with SIGKILL, Stops how
	// many times it is then asked to end with SIGTERM.
	Kills, Stops int
	// Workers is how many take and release a lock of their own at the same
	// time, all through one client.
	Workers int
	// Attempt is how long one try of a worker may take before it is given up
	// and made anew.
	Attempt time.Duration
	// Dir is where the nodes' data is, in a folder that is removed afterwards.
	Dir string
	// Progress gets a line for each round.
	Progress io.Writer
}

// A Result is what was measured of one service.
type Result struct {
	Service      string
	PerSecond    float64 // acquires while nothing was wrong
	Kills, Stops []Outage
	// Failed counts the tries that failed, by what the client said.
	Failed map[string]int
}

// window is how long a round is watched at least after the leader's death, so
// that a second gap in its wake is seen.
const window = 3 * time.Second

// Measure starts three nodes of s, lets workers take locks, and kills the
// leader again and again, each time when all nodes are there and have what was
// written.
func Measure(ctx context.Context, s Service, o Options) (r Result, err error) {
	r.Service = s.Name()
	dir, err := os.MkdirTemp(o.Dir, "holdfast-gap-")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	cluster, err := newTrio(ctx, s, dir)
	if err != nil {
		return r, err
	}
	defer cluster.end()
	open, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := s.Open(open, cluster.nodes)
	if err != nil {
		return r, fmt.Errorf("%s: a client: %w", s.Name(), err)
	}
	m := &measuring{trio: cluster, line: newTimeline(o.Workers)}
	defer load(ctx, client, o.Attempt, m.line)()
	if r.PerSecond, err = m.rate(ctx); err != nil {
		return r, err
	}
	for i := range o.Kills + o.Stops {
		sig, what, n, of := syscall.SIGKILL, "kill -9", i, o.Kills
		if i >= o.Kills {
			sig, what, n, of = syscall.SIGTERM, "SIGTERM", i-o.Kills, o.Stops
		}
		out, err := m.round(ctx, sig)
		if err != nil {
			return r, fmt.Errorf("%s, %s %d: %w", s.Name(), what, n+1, err)
		}
		fmt.Fprintf(o.Progress, "%s: %s %d of %d: gap %s, leader after %s, every worker after %s\n", s.Name(), what, n+1, of,
			millis(out.Gap), millis(out.Leader), millis(out.All))
		if i < o.Kills {
			r.Kills = append(r.Kills, out)
		} else {
			r.Stops = append(r.Stops, out)
		}
	}
	m.line.mu.Lock()
	defer m.line.mu.Unlock()
	r.Failed = m.line.failed
	return r, nil
}

// measuring is the state of one Measure.
type measuring struct {
	*trio
	line *timeline
}

// rate waits until all workers are served and counts their grants for a
// second.
func (m *measuring) rate(ctx context.Context) (float64, error) {
	if err := m.lively(ctx); err != nil {
		return 0, err
	}
	_, before := m.line.since()
	began := m.line.now()
	if !pause(ctx, time.Second) {
		return 0, ctx.Err()
	}
	_, after := m.line.since()
	return float64(after-before) / (m.line.now() - began).Seconds(), nil
}

// lively waits until every worker was served within the last second.
func (m *measuring) lively(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if longest, _ := m.line.since(); longest < lively {
			return nil
		}
		if !pause(ctx, statusEvery) {
			return fmt.Errorf("a worker gets no lock: %w", context.Cause(ctx))
		}
	}
}

// watch waits until an outage is over, and the window past.
func (m *measuring) watch(ctx context.Context, killed, gone time.Duration) (Outage, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		out, err := m.line.judge(killed, gone)
		if err == nil && m.line.now() > killed+window {
			return out, nil
		}
		if !pause(ctx, statusEvery) {
			return out, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// round ends the leader by a signal, watches what comes of it, and starts the
// node again.
func (m *measuring) round(ctx context.Context, sig syscall.Signal) (Outage, error) {
	if !pause(ctx, 300*time.Millisecond+rand.N(time.Second)) {
		return Outage{}, ctx.Err()
	}
	if err := m.lively(ctx); err != nil {
		return Outage{}, err
	}
	dead, _, err := m.leader(ctx, nil)
	if err != nil {
		return Outage{}, err
	}
	m.line.forget()
	killed := m.line.now()
	elected := make(chan time.Duration, 1)
	go func() {
		if _, _, err := m.leader(ctx, dead); err == nil {
			elected <- m.line.now() - killed
		}
		close(elected)
	}()
	if err := dead.signal(sig); err != nil {
		return Outage{}, err
	}
	gone := killed // one that is stopped in order serves for a while
	if sig == syscall.SIGKILL {
		gone = m.line.now()
	}
	out, err := m.watch(ctx, killed, gone)
	if err != nil {
		return out, err
	}
	var known bool
	if out.Leader, known = <-elected; !known {
		return out, errNoLeader
	}
	_, st, err := m.leader(ctx, dead)
	if err != nil {
		return out, err
	}
	if err := dead.start(); err != nil {
		return out, err
	}
	return out, m.serves(ctx, dead, st.Applied)
}
