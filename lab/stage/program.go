package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"holdfast"
	"holdfast/driver"
	"holdfast/engine/cluster"
	"holdfast/fence"
)

// RunWorker is the program of a worker: it reads words from in, one a line,
// and writes a [Said] a line to out. It ends when in ends, giving back what it
// holds, or when ctx does; a word that does not fit, or fails, is answered
// with [SaidError] and changes nothing. It returns an error if it could not
// begin, after saying so.
func RunWorker(ctx context.Context, spec WorkerSpec, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	words := make(chan string)
	go func() {
		defer close(words)
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			select {
			case words <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	to := json.NewEncoder(out)
	return perform(ctx, spec, surroundings{
		out: func(s Said) { _ = to.Encode(s) }, // whoever listened is gone, and in ends too
	}, words)
}

// surroundings are what differs between a worker with a process of its own and
// one without.
type surroundings struct {
	out   func(Said) // never called by two goroutines at once
	still *stillness // nil: the kernel makes the whole process stand still
	clock func() time.Duration
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
}

// A program is the worker that holds the lock and writes. It does as it is
// told and nothing to protect itself: between the look and the write there is
// nothing, as in most programs.
type program struct {
	spec   WorkerSpec
	ledger *Ledger
	locker *holdfast.FencedLocker
	words  <-chan string
	around surroundings
	queued atomic.Pointer[func()] // of the acquire that is under way

	// Only the loop touches these.
	value     string
	acquiring *acquiring      // nil: it does not wait
	grant     *holdfast.Grant // nil: it holds nothing, and has lost nothing
	basis     int64           // the last line that it knows
	poised    *Line           // the write before which it stands

	mu    sync.Mutex  // orders what is said; guards token
	token fence.Token // what it believes to hold
}

// acquiring is one acquire that is under way.
type acquiring struct {
	cancel context.CancelFunc
	queued chan struct{}
	done   chan acquired
	gaveUp bool // a release was asked for meanwhile
}

// acquired is what came of it.
type acquired struct {
	grant *holdfast.Grant
	basis int64
	took  time.Duration
	err   error
}

// perform opens what the worker needs, and does the words until they end.
func perform(ctx context.Context, spec WorkerSpec, around surroundings, words <-chan string) (err error) {
	p := &program{spec: spec, value: spec.Value, words: words, around: around}
	defer func() {
		if err != nil {
			p.say(Said{Event: SaidError, Text: err.Error()})
		}
	}()
	if err := spec.check(); err != nil {
		return err
	}
	if p.ledger, err = OpenLedger(ctx, spec.Ledger, spec.Lock); err != nil {
		return err
	}
	defer p.ledger.Close()
	client, err := cluster.Dial(ctx, spec.Server, &cluster.Options{TTL: spec.TTL, Dialer: around.dial})
	if err != nil {
		return err
	}
	// A locker of its own on the client's line, to hear when it is queued.
	p.locker, err = holdfast.NewFencedLocker(attentive{client.Engine(), p.wasQueued}, &holdfast.Options{
		TTL: spec.TTL, Label: "worker " + spec.Name, Clock: around.clock, OnPulse: p.pulse,
	})
	if err != nil {
		return errors.Join(err, client.Close(ctx))
	}
	leave := func() {
		_ = p.locker.Close(context.WithoutCancel(ctx)) // unconfirmed, it ends with its TTL
		_ = client.Close(context.WithoutCancel(ctx))
	}
	defer func() {
		if around.still.dead() {
			go leave() // it reaches nobody any more
			return
		}
		leave()
	}()
	p.loop(ctx)
	return nil
}

func (p *program) loop(ctx context.Context) {
	p.say(Said{Event: SaidReady})
	for {
		var queued chan struct{}
		var done chan acquired
		if p.acquiring != nil {
			queued, done = p.acquiring.queued, p.acquiring.done
		}
		select {
		case word, ok := <-p.words:
			if !ok || !p.around.still.pass(ctx) {
				return
			}
			p.do(ctx, word)
		case <-queued:
			p.say(Said{Event: SaidQueued})
		case r := <-done:
			p.answered(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// say tells one thing. What is told of the lock is in step with the token that
// pulses carry.
func (p *program) say(s Said) {
	if !p.around.still.enter() {
		return
	}
	defer p.around.still.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch s.Event {
	case SaidAcquired:
		p.token = s.Token
	case SaidLost, SaidReleased:
		if p.token == s.Token {
			p.token = fence.Token{}
		}
	case SaidPulse:
		s.Token = p.token
	}
	s.Text = clip(s.Text)
	p.around.out(s)
}

// maxText is the longest text that a worker says, in bytes.
const maxText = 4096

func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "…"
	}
	return s
}

func (p *program) complain(format string, args ...any) {
	p.say(Said{Event: SaidError, Text: fmt.Sprintf(format, args...)})
}

func (p *program) pulse(i holdfast.PulseInfo) {
	if i.Err == nil {
		p.say(Said{Event: SaidPulse, Left: i.Left})
	}
}

// acquire starts an acquire; the loop hears of its end.
func (p *program) acquire(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	a := &acquiring{cancel: cancel, queued: make(chan struct{}, 1), done: make(chan acquired, 1)}
	var told atomic.Bool
	queued := func() { // must not wait
		if told.CompareAndSwap(false, true) {
			a.queued <- struct{}{}
		}
	}
	p.queued.Store(&queued)
	p.acquiring = a
	go func() { a.done <- p.wait(ctx) }()
}

func (p *program) wasQueued() {
	if f := p.queued.Load(); f != nil {
		(*f)()
	}
}

// wait waits for the lock, with the gate armed, and then reads the ledger, in
// this order: nobody with an older token writes after the read.
func (p *program) wait(ctx context.Context) acquired {
	var opts []holdfast.AcquireOption
	if p.spec.Fencing != Never {
		opts = append(opts, holdfast.Arm(p.ledger.Gate()))
	}
	start := time.Now()
	grant, err := p.locker.Acquire(ctx, p.spec.Lock, opts...)
	if err != nil {
		return acquired{err: err}
	}
	took := time.Since(start)
	basis, err := p.ledger.Last(ctx)
	if err != nil {
		return acquired{err: errors.Join(err, grant.Release(ctx))}
	}
	return acquired{grant: grant, basis: basis, took: took}
}

// answered takes the end of an acquire.
func (p *program) answered(ctx context.Context, r acquired) {
	a := p.acquiring
	p.acquiring = nil
	a.cancel()
	select {
	case <-a.queued: // both came at once
		p.say(Said{Event: SaidQueued})
	default:
	}
	if r.err != nil {
		if a.gaveUp {
			p.say(Said{Event: SaidGaveUp})
			return
		}
		p.complain("%v", r.err)
		p.say(Said{Event: SaidGaveUp, Text: r.err.Error()})
		return
	}
	p.grant, p.basis = r.grant, r.basis
	token := r.grant.Token()
	s := Said{Event: SaidAcquired, Token: token, Took: r.took, Left: r.grant.Deadline(), Line: r.basis}
	if p.spec.Fencing != Never {
		s.Mark = token.Number // it was armed with it just now
	}
	p.say(s)
	grant := r.grant
	context.AfterFunc(grant.Context(), func() {
		if loss := grant.Cause(); loss != nil {
			p.say(Said{Event: SaidLost, Token: token, Text: loss.Error()})
		}
	})
	if a.gaveUp { // granted at the moment at which it gave up
		p.release(ctx)
	}
}

// attentive is an engine that tells when a request was queued, which the
// locker keeps to itself.
type attentive struct {
	driver.Driver
	queued func()
}

// Fenced implements driver.Fenced, as the engine below does.
func (attentive) Fenced() {}

func (e attentive) Open(ctx context.Context, req driver.OpenRequest) (driver.Session, error) {
	s, err := e.Driver.Open(ctx, req)
	if err != nil {
		return nil, err
	}
	return attentiveSession{s, e.queued}, nil
}

type attentiveSession struct {
	driver.Session
	queued func()
}

func (s attentiveSession) Acquire(ctx context.Context, req driver.AcquireRequest) (driver.Grant, error) {
	inner := req.Queued
	req.Queued = func() {
		if inner != nil {
			inner()
		}
		s.queued()
	}
	return s.Session.Acquire(ctx, req)
}

// OnNewLeader implements driver.Prompter for sessions that do.
func (s attentiveSession) OnNewLeader(f func()) {
	if p, ok := s.Session.(driver.Prompter); ok {
		p.OnNewLeader(f)
	}
}
