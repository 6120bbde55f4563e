package memlock

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"sync"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/fence"
	"holdfast/server/core"
	"holdfast/server/lease"
)

// Options are the settings of a service. The zero Options are good.
type Options struct {
	// Domain is the fence domain of all tokens; zero draws one at random.
	// Two services of one domain mint equal numbers, which gates report as
	// a fork.
	Domain fence.Domain
	// Incarnation tells apart the services that ever had Domain; zero draws
	// one at random.
	Incarnation fence.Incarnation
}

// A Service is one lock service. It is safe for use by several goroutines. It
// has no goroutine of its own, only a timer, which stops when nothing is held
// and no session lives.
type Service struct {
	start time.Time

	mu struct {
		sync.Mutex
		state  *core.State
		lease  *lease.Machine
		index  uint64
		timer  *time.Timer
		closed bool
		broken error // a broken invariant: nothing is answered any more

		pulses  map[lease.Handle]pulseWait
		handles lease.Handle
		waits   map[waitKey]chan<- core.Result
	}
}

// waitKey names an acquire that waits.
type waitKey struct {
	session core.SessionID
	request core.Request
}

// pulseWait is a keepalive that has no answer yet.
type pulseWait struct {
	session core.SessionID
	answer  chan<- pulseAnswer // holds one
}

type pulseAnswer struct {
	pulse driver.Pulse
	err   error
}

// replaced answers an acquire whose place another call of the same request took.
var replaced = core.Result{}

// New returns a service on which nothing is held. A nil o means all defaults.
func New(o *Options) *Service {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Domain == (fence.Domain{}) {
		rand.Read(opts.Domain[:])
	}
	if opts.Incarnation == 0 {
		opts.Incarnation = fence.Incarnation(randomID())
	}
	s := &Service{start: time.Now()}
	s.mu.state = core.New(core.Config{
		Domain: opts.Domain, Incarnation: uint64(opts.Incarnation),
		Members: []core.Member{{ID: 1, Name: "memlock"}},
	})
	s.mu.lease = lease.New(lease.Config{})
	s.mu.lease.Lead(s.now(), 1, s.mu.state)
	s.mu.pulses = make(map[lease.Handle]pulseWait)
	s.mu.waits = make(map[waitKey]chan<- core.Result)
	return s
}

// Driver returns the driver of one more client, independent of all others.
func (s *Service) Driver() driver.Fenced { return &client{s: s} }

// Locker returns a locker of one more client; see [holdfast.NewFencedLocker].
func (s *Service) Locker(o *holdfast.Options) (*holdfast.FencedLocker, error) {
	return holdfast.NewFencedLocker(s.Driver(), o)
}

// Close ends the service: every later call is answered "unavailable", and
// every waiting one at once. It is idempotent.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	s.disconnect()
}

// disconnect answers everybody who waits that nothing is known.
func (s *Service) disconnect() {
	if s.mu.timer != nil {
		s.mu.timer.Stop()
	}
	for h := range s.mu.pulses {
		s.answer(h, lease.NotLeader)
	}
	for k, c := range s.mu.waits {
		c <- replaced
		delete(s.mu.waits, k)
	}
}

// now is the service's monotonic clock; it must be positive.
func (s *Service) now() lease.Instant { return time.Since(s.start) + 1 }

func randomID() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:])>>1 | 1
}

// check refuses a call when there is nobody to answer it; s.mu is held.
func (s *Service) check(ctx context.Context) error {
	switch {
	case s.mu.broken != nil:
		return &driver.Error{Kind: driver.Internal, Outcome: driver.No, Msg: "the service has stopped", Err: s.mu.broken}
	case s.mu.closed:
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "the service is closed"}
	case ctx.Err() != nil:
		return &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Err: ctx.Err()}
	}
	return nil
}

// apply applies one command as an entry of its own, and does all that follows.
// s.mu is held.
func (s *Service) apply(cmd core.Command) core.Result {
	now := s.now()
	s.mu.lease.Proposed([]core.Command{cmd})
	r := s.commit(now, cmd)
	s.turn()
	return r
}

// commit applies one command and tells those whose requests it settled.
func (s *Service) commit(now lease.Instant, cmd core.Command) core.Result {
	if s.mu.broken != nil {
		return core.Result{}
	}
	s.mu.index++
	e := core.Entry{
		Index: s.mu.index, Term: 1,
		Header: core.Header{Clock: s.mu.lease.Clock(now)}, Commands: []core.Command{cmd},
	}
	a, err := s.mu.state.Apply(e)
	if err != nil {
		s.mu.broken = err
		s.disconnect()
		return core.Result{}
	}
	s.mu.lease.Applied(now, s.mu.state, e, a)
	for _, n := range a.Notices {
		k := waitKey{n.Session, n.Request}
		if c := s.mu.waits[k]; c != nil {
			c <- n.Result
			delete(s.mu.waits, k)
		}
	}
	return a.Results[0]
}

// turn runs the lease machine until it wants nothing more now, and sets the
// timer. What it proposes is committed at once, leadership needs no
// confirmation, and there is no connection to drain. s.mu is held.
func (s *Service) turn() {
	for s.mu.broken == nil && !s.mu.closed {
		now := s.now()
		eff := s.mu.lease.Turn(now)
		for _, a := range eff.Answers {
			s.answer(a.Handle, a.Status)
		}
		for _, cmd := range eff.Propose {
			s.commit(now, cmd)
		}
		if eff.Drain {
			s.mu.lease.Drained(now)
		}
		if eff.Confirm {
			s.mu.lease.Confirmed(now)
		}
		if len(eff.Propose) == 0 && !eff.Drain && !eff.Confirm {
			s.wakeAt(eff.Wake)
			return
		}
	}
}

func (s *Service) wakeAt(at lease.Instant) {
	if s.mu.timer != nil {
		s.mu.timer.Stop()
	}
	if at == 0 {
		return
	}
	s.mu.timer = time.AfterFunc(max(at-s.now(), 0), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.turn()
	})
}

// What operators do is refused with these.
var (
	// ErrNotHeld: the named grant is not held.
	ErrNotHeld = errors.New("memlock: that grant is not held; look up who holds the lock now")
	// ErrNoSession: there is no such session.
	ErrNoSession = errors.New("memlock: there is no such session")
)
