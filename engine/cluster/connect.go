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
	next := rand.IntN(len(l.endpoints)) // clients spread over the servers
	for l.ctx.Err() == nil {
		c, err := l.connect(&next)
		if err != nil {
			back.wait(l.ctx)
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
			next++ // it is there, and of no use now
		}
		if hint != "" && hint != c.addr && back.hop(len(l.endpoints)) {
			continue
		}
		back.wait(l.ctx)
	}
}

// steady is how long a stream must have stood to count as one that worked, if
// its server then refused to serve.
const steady = time.Second

// connect tries the leader that was named, then every endpoint in turn, from
// *next on, and returns the first connection to a lock service. The error
// names each server and why it did not answer.
func (l *link) connect(next *int) (*conn, error) {
	l.mu.Lock()
	hint := l.mu.hint
	l.mu.hint = ""
	l.mu.Unlock()
	var candidates []string
	if hint != "" {
		candidates = append(candidates, hint)
	}
	for i := range l.endpoints {
		if e := l.endpoints[(*next+i)%len(l.endpoints)]; e != hint {
			candidates = append(candidates, e)
		}
	}
	timeout := l.attemptTimeout(len(candidates))
	var failures []error
	for _, addr := range candidates {
		ctx, cancel := context.WithTimeout(l.ctx, timeout)
		c, err := dialConn(ctx, addr, l.dial, l.tls(), l.token)
		cancel()
		if err == nil {
			if i := slices.Index(l.endpoints, addr); i >= 0 {
				*next = i // where a broken line is sought again first
			}
			return c, nil
		}
		if l.ctx.Err() != nil {
			return nil, l.ctx.Err()
		}
		failures = append(failures, fmt.Errorf("%s: %w", addr, err))
		l.failed(errors.Join(failures...)) // for those whose time ends meanwhile
	}
	return nil, errors.Join(failures...)
}

// backoff spaces the tries to connect: a short random wait after a stream that
// worked, so that the clients of a restarted server do not all come at once,
// then doubling up to a second, and less for short leases.
type backoff struct {
	l     *link
	tries int
	hops  int
}

func (b *backoff) reset() { b.tries, b.hops = 0, 0 }

// hop reports whether to follow a leader's address without a wait. Servers
// that point at each other must not be asked in a tight loop.
func (b *backoff) hop(endpoints int) bool {
	b.hops++
	return b.hops <= endpoints+1
}

// wait sleeps for the next interval, or until ctx ends.
func (b *backoff) wait(ctx context.Context) {
	b.hops = 0
	most := time.Second
	b.l.mu.Lock()
	least := b.l.mu.least
	b.l.mu.Unlock()
	if least > 0 {
		most = min(most, max(least/8, 50*time.Millisecond))
	}
	d := min(25*time.Millisecond<<min(b.tries, 10), most)
	b.tries++
	t := time.NewTimer(d/4 + rand.N(d))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
