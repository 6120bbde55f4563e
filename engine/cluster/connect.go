package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"holdfast/wire"
)

// connectLoop keeps one stream until the link is closed: it finds a server,
// drives the stream, and when that breaks looks for the next one at once,
// backing off only while nothing useful comes of it.
func (l *link) connectLoop() {
	defer close(l.ended)
	back := backoff{l: l}
	at := search{l: l, next: rand.IntN(len(l.endpoints)), absent: make(map[string]time.Time)}
	for l.ctx.Err() == nil {
		c, err := at.connect()
		if err != nil {
			back.wait(l.ctx, false)
			continue
		}
		st, began := newStream(l, c), time.Now()
		l.log.Debug("connected", "server", c.addr)
		st.run()
		if l.ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		// A server that answers some calls and refuses others is not asked
		// again and again at full speed.
		useful := st.useful && (!st.refused || time.Since(began) > steady)
		why, hint := l.mu.why, l.mu.hint
		l.mu.Unlock()
		l.log.Debug("left the server", "server", c.addr, "useful", useful, "reason", why, "leader", hint)
		if useful {
			back.reset()
		}
		if errors.Is(why, errSilent) || wire.RemoteOf(why) != nil {
			at.next++ // it is there, and of no use now
		}
		if hint != "" && hint != c.addr && !at.isAbsent(hint) && back.hop(len(l.endpoints)) {
			continue
		}
		back.wait(l.ctx, electing(why))
	}
}

// electing reports whether a server was left because it does not lead: it is
// there, and will soon know who does.
func electing(why error) bool {
	r := wire.RemoteOf(why)
	if r == nil {
		return false
	}
	_, term := r.Leader()
	return term > 0
}

// steady is how long a stream must have stood to count as one that worked, if
// its server then refused to serve.
const steady = time.Second

// A search knows where the link looks for a server.
type search struct {
	l    *link
	next int // endpoint to begin with; clients spread over the servers
	// absent are the servers that could not be reached, and until when others
	// are tried before them. Followers name a dead leader until they have
	// elected another one: each look at its address would cost as much as a
	// whole attempt may take, if its machine is gone too.
	absent map[string]time.Time
}

// leastAbsence is how long a server counts as absent at least.
const leastAbsence = 300 * time.Millisecond

// missed notes that a server could not be reached. It counts as absent for
// twice as long as it took to find out.
func (s *search) missed(addr string, took time.Duration) {
	now := time.Now()
	for a, until := range s.absent {
		if !now.Before(until) {
			delete(s.absent, a)
		}
	}
	s.absent[addr] = now.Add(max(leastAbsence, 2*took))
}

func (s *search) isAbsent(addr string) bool {
	return time.Now().Before(s.absent[addr])
}

// candidates are the leader that was named, and every endpoint in turn, from
// next on; but absent ones come last.
func (s *search) candidates(hint string) []string {
	var here, gone []string
	add := func(addr string) {
		if s.isAbsent(addr) {
			gone = append(gone, addr)
		} else {
			here = append(here, addr)
		}
	}
	if hint != "" {
		add(hint)
	}
	for i := range s.l.endpoints {
		if e := s.l.endpoints[(s.next+i)%len(s.l.endpoints)]; e != hint {
			add(e)
		}
	}
	return append(here, gone...)
}

// connect tries the candidates and returns the first connection to a lock
// service. The error names each server and why it did not answer.
func (s *search) connect() (*conn, error) {
	l := s.l
	l.mu.Lock()
	hint := l.mu.hint
	l.mu.hint = ""
	l.mu.Unlock()
	candidates := s.candidates(hint)
	timeout := l.attemptTimeout(len(candidates))
	var failures []error
	for _, addr := range candidates {
		began := time.Now()
		ctx, cancel := context.WithTimeout(l.ctx, timeout)
		c, err := dialConn(ctx, addr, l.dial, l.tls(), l.token)
		cancel()
		if err == nil {
			delete(s.absent, addr)
			if i := slices.Index(l.endpoints, addr); i >= 0 {
				s.next = i // where a broken line is sought again first
			}
			return c, nil
		}
		if l.ctx.Err() != nil {
			return nil, l.ctx.Err()
		}
		s.missed(addr, time.Since(began))
		failures = append(failures, fmt.Errorf("%s: %w", addr, err))
		l.failed(errors.Join(failures...)) // for those whose time ends meanwhile
	}
	return nil, errors.Join(failures...)
}

// backoff spaces the tries to connect: a short random wait after a stream that
// worked, so that the clients of a restarted server do not all come at once,
// then doubling up to a second, and less for short leases. While the servers
// say that they do not lead, it grows less at first: an election takes a second
// or two, and who waits longer than it adds to the time without a grant.
type backoff struct {
	l     *link
	tries int
	hops  int
}

// The longest wait during an election, before its random part, and after how
// many tries (some four seconds) it is taken for an outage.
const (
	electionPause = 150 * time.Millisecond
	electionTries = 40
)

func (b *backoff) reset() { b.tries, b.hops = 0, 0 }

// hop reports whether to follow a leader's address without a wait. Servers
// that point at each other must not be asked in a tight loop.
func (b *backoff) hop(endpoints int) bool {
	b.hops++
	return b.hops <= endpoints+1
}

// pause is the next interval; the wait is a quarter to five quarters of it.
func (b *backoff) pause(electing bool) time.Duration {
	most := time.Second
	b.l.mu.Lock()
	least := b.l.mu.least
	b.l.mu.Unlock()
	if least > 0 {
		most = min(most, max(least/8, 50*time.Millisecond))
	}
	if electing && b.tries < electionTries {
		most = min(most, electionPause)
	}
	d := min(25*time.Millisecond<<min(b.tries, 10), most)
	b.tries++
	return d
}

// wait sleeps for the next interval, or until ctx ends.
func (b *backoff) wait(ctx context.Context, electing bool) {
	b.hops = 0
	d := b.pause(electing)
	t := time.NewTimer(d/4 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
