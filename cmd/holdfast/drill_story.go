package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"holdfast/engine/cluster"
	"holdfast/fence"
	"holdfast/lab/stage"
)

// A story is one play: two fresh workers and a fresh ledger at the one lock
// service.
type story struct {
	flags   drillFlags
	fencing bool
	dir     string
	addr    string
	worker  []string // how a worker's process is started
	watcher *cluster.Client
	out     *teller
	nodes   *drillCluster // nil: the service is in this process
	dead    *drillNode    // the node that was killed

	a, b    *player
	ledger  *stage.Ledger
	said    chan heard
	service chan cluster.Event // expiries, as the service tells them
	writes  []attempt
	early   []heard  // told already, and not yet awaited
	wrong   []string // what the acts saw that is not as the theory says
}

// A player is one worker process of the play.
type player struct {
	name, value string
	queued      bool // it said so, and has not got the lock yet
	*stage.Process
}

// A heard is one thing that a player said.
type heard struct {
	from *player
	said stage.Said
}

// An attempt is one write that a worker tried, as the ledger table shows it.
type attempt struct {
	at      time.Duration
	worker  string
	value   string
	offered fence.Token
	seen    fence.Token // refused: the gate's mark
}

func (t attempt) refused() bool { return !t.seen.IsZero() }

func (s *story) play(ctx context.Context) (ok bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.out.begin(s.fencing)
	s.said = make(chan heard)
	s.service = make(chan cluster.Event)
	place, remove, err := s.place(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if s.ledger, err = stage.OpenLedger(ctx, place, drillLock); err != nil {
		return false, err
	}
	defer s.ledger.Close()
	if s.a, err = s.hire(ctx, "A", s.flags.a, place); err != nil {
		return false, err
	}
	defer s.a.Kill()
	if s.b, err = s.hire(ctx, "B", s.flags.b, place); err != nil {
		return false, err
	}
	defer s.b.Kill()
	go s.listen(ctx)
	acts := []func(context.Context) error{s.goodDay, s.pausedBefore}
	if s.fencing {
		acts = append(acts, s.pausedInside)
	}
	if s.nodes != nil {
		acts = append(acts, s.together)
	}
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return false, err
		}
	}
	return s.judge(ctx)
}

// place makes room for the story's ledger. remove takes away what the removal
// of the drill's directory does not.
func (s *story) place(ctx context.Context) (place string, remove func() error, err error) {
	path := filepath.Join(s.dir, fmt.Sprintf("ledger-fencing-%t", s.fencing))
	nothing := func() error { return nil }
	switch s.flags.gate {
	case gateFile:
		return stage.TextPlace(path + ".txt"), nothing, nil
	case gatePostgres:
		schema, owner := drillSchema(s.dir)
		if err := stage.MakeSchema(ctx, schema, owner); err != nil {
			return "", nil, fmt.Errorf("making the schema %s in the database of --dsn: %w", schema, err)
		}
		return stage.PostgresPlace(schema), func() error { return stage.DropSchema(context.WithoutCancel(ctx), schema, owner) }, nil
	}
	return path + ".sqlite", nothing, nil
}

// hire starts a worker process and waits until it is ready.
func (s *story) hire(ctx context.Context, name, value, place string) (*player, error) {
	how := stage.Never
	if s.fencing {
		how = stage.Always
	}
	ttl := s.flags.ttl
	if s.flags.killLeader && name == "B" {
		ttl = drillWaiterTTL
	}
	process, err := stage.StartProcess(ctx, s.worker, stage.WorkerSpec{
		Name: name, Value: value, TTL: ttl, Server: s.addr, Lock: drillLock, Ledger: place, Fencing: how,
	})
	if err != nil {
		return nil, err
	}
	p := &player{name: name, value: value, Process: process}
	go func() {
		for said := range p.Said() {
			select {
			case s.said <- heard{p, said}:
			case <-ctx.Done():
			}
		}
	}()
	s.out.tell(event{Event: "started", Worker: name, Value: value, PID: p.PID(),
		Text: fmt.Sprintf("worker process, pid %d; it wants to write %q", p.PID(), value)})
	if _, err := s.await(ctx, p, stage.SaidReady); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// listen passes on what the service tells of the lock.
func (s *story) listen(ctx context.Context) {
	for batch, err := range s.watcher.Watch(ctx, cluster.WatchOptions{Lock: drillLock}) {
		if err != nil {
			return // the play is over, or the service is gone: the workers tell
		}
		for _, ev := range batch.Events {
			if ev.Kind != "released" || ev.Cause != "expired" {
				continue
			}
			select {
			case s.service <- ev:
			case <-ctx.Done():
				return
			}
		}
	}
}

// patience is how long the story waits for what must come.
func (s *story) patience() time.Duration {
	if s.nodes != nil {
		return 10*s.flags.ttl + drillPatience
	}
	return 10*s.flags.ttl + 20*time.Second
}

// await tells what is heard until worker p says what; it fails when a worker
// reports an error or ends, or when nothing comes for long.
func (s *story) await(ctx context.Context, p *player, what ...string) (stage.Said, error) {
	for i, h := range s.early {
		if h.from == p && slices.Contains(what, h.said.Event) {
			s.early = slices.Delete(s.early, i, i+1)
			return h.said, nil
		}
	}
	patience := time.NewTimer(s.patience())
	defer patience.Stop()
	for {
		select {
		case h := <-s.said:
			if err := s.hear(h); err != nil {
				return stage.Said{}, err
			}
			if h.from == p && slices.Contains(what, h.said.Event) {
				return h.said, nil
			}
			if h.from != p {
				s.keep(h)
			}
		case ev := <-s.service:
			s.expired(ev)
		case <-patience.C:
			return stage.Said{}, fmt.Errorf("worker %s did not come to %q in time", p.name, what)
		case <-ctx.Done():
			return stage.Said{}, context.Cause(ctx)
		}
	}
}

// meanwhile tells what is heard until do has returned. What a worker says
// meanwhile can still be awaited.
func (s *story) meanwhile(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- do(ctx) }()
	for {
		select {
		case h := <-s.said:
			if err := s.hear(h); err != nil {
				cancel()
				<-done
				return err
			}
			s.keep(h)
		case ev := <-s.service:
			s.expired(ev)
		case err := <-done:
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
	}
}

// keep keeps what a player said before it was awaited, until the player is told
// its next word.
func (s *story) keep(h heard) {
	if h.said.Event != stage.SaidPulse {
		s.early = append(s.early, h)
	}
}

// hear tells what a player said; it returns an error if that is none of the
// story.
func (s *story) hear(h heard) error {
	switch h.said.Event {
	case stage.SaidEnded:
		return fmt.Errorf("before it was done: %s", h.said.Text)
	case stage.SaidError:
		return fmt.Errorf("worker %s: %s", h.from.name, h.said.Text)
	}
	s.report(h)
	return nil
}

// expired tells that the service has given a holder up.
func (s *story) expired(ev cluster.Event) {
	s.out.tell(event{Event: "expired", Worker: "service", Token: ev.Token.String(),
		Text: fmt.Sprintf("has not heard of the holder of token %d for a whole TTL: the lease has run out", ev.Token.Number)})
}

// step tells worker p a word and awaits what it says.
func (s *story) step(ctx context.Context, p *player, until, word string) (stage.Said, error) {
	s.early = slices.DeleteFunc(s.early, func(h heard) bool { return h.from == p })
	if err := p.Tell(word); err != nil {
		return stage.Said{}, err
	}
	return s.await(ctx, p, until)
}

// run lets worker p play the steps of one honest run up to its release.
func (s *story) run(ctx context.Context, p *player) error {
	steps := []struct{ until, word string }{
		{stage.SaidRead, stage.DoRead},
		{stage.SaidWrote, stage.DoWrite},
		{stage.SaidReleased, stage.DoRelease},
	}
	for _, st := range steps {
		if _, err := s.step(ctx, p, st.until, st.word); err != nil {
			return err
		}
	}
	return nil
}

// goodDay is the first act: A acquires, renews, writes, releases.
func (s *story) goodDay(ctx context.Context) error {
	s.out.enter("good-day", "A good day")
	if _, err := s.step(ctx, s.a, stage.SaidAcquired, stage.DoAcquire); err != nil {
		return err
	}
	for range 2 {
		if _, err := s.await(ctx, s.a, stage.SaidPulse); err != nil {
			return err
		}
	}
	return s.run(ctx, s.a)
}

// pausedBefore is the disaster: A is stopped when it is about to write.
func (s *story) pausedBefore(ctx context.Context) error {
	title := "The disaster: A is paused just before its write"
	if s.flags.killLeader {
		title += ", and the leader is killed while B waits"
	}
	s.out.enter("paused-before", title)
	if _, err := s.step(ctx, s.a, stage.SaidAcquired, stage.DoAcquire); err != nil {
		return err
	}
	if _, err := s.step(ctx, s.a, stage.SaidRead, stage.DoRead); err != nil {
		return err
	}
	if _, err := s.step(ctx, s.a, stage.SaidLooked, stage.DoPoise); err != nil {
		return err
	}
	if err := s.freezeAndReplace(ctx, s.flags.killLeader); err != nil {
		return err
	}
	return s.wake(ctx)
}

// pausedInside is the last act: A is stopped inside the guarded step, after
// its reads. The gate's door must not be held by it.
func (s *story) pausedInside(ctx context.Context) error {
	s.out.enter("paused-inside", "The same, but A is paused inside the gate's guarded step, after its reads")
	if _, err := s.step(ctx, s.a, stage.SaidAcquired, stage.DoAcquire); err != nil {
		return err
	}
	if _, err := s.step(ctx, s.a, stage.SaidInside, stage.DoInside); err != nil {
		return err
	}
	if err := s.freezeAndReplace(ctx, false); err != nil {
		return err
	}
	s.out.tell(event{Event: "door-free", Worker: "gate", Text: "the door was not held: B armed the gate and wrote while A stood still inside"})
	return s.wake(ctx)
}

// freezeAndReplace stops A for real and lets B do a whole run. If the leader is
// to be killed, then while B waits: what must outlive it is the most just then.
func (s *story) freezeAndReplace(ctx context.Context, kill bool) error {
	if err := s.a.Freeze(ctx); err != nil {
		return err
	}
	s.out.tell(event{Event: "stopped", Worker: "A", Text: "stopped by SIGSTOP: it renews no more, and does not know that it stands still"})
	if kill {
		if _, err := s.step(ctx, s.b, stage.SaidQueued, stage.DoAcquire); err != nil {
			return err
		}
		if err := s.killLeader(ctx); err != nil {
			return err
		}
		if _, err := s.await(ctx, s.b, stage.SaidAcquired); err != nil {
			return err
		}
	} else if _, err := s.step(ctx, s.b, stage.SaidAcquired, stage.DoAcquire); err != nil {
		return err
	}
	return s.run(ctx, s.b)
}

// wake lets A go on with its next instruction: the write.
func (s *story) wake(ctx context.Context) error {
	if err := s.a.Tell(stage.DoGo); err != nil {
		return err
	}
	if !s.a.StandsStill() {
		return errors.New("worker A did not stand still until it was woken")
	}
	s.out.tell(event{Event: "continued", Worker: "A", Text: "woken by SIGCONT: for A no time has passed; its next instruction is the write"})
	if err := s.a.Thaw(); err != nil {
		return err
	}
	_, err := s.await(ctx, s.a, stage.SaidWrote, stage.SaidRefused)
	return err
}
