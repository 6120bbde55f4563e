package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/driver"
	"holdfast/engine/cluster"
	"holdfast/fence"
	"holdfast/lab/stage"
)

// A sight is what the service says of the drill's lock.
type sight struct {
	holder string // "" if nobody holds it
	token  fence.Token
	queue  []string // in order
}

func (v sight) String() string {
	text := "nobody holds the lock"
	if v.holder != "" {
		text = fmt.Sprintf("%s holds token %d", v.holder, v.token.Number)
	}
	switch len(v.queue) {
	case 0:
		return text + ", and nobody waits"
	case 1:
		return text + ", and " + v.queue[0] + " waits"
	}
	return text + ", and there wait, in order, " + strings.Join(v.queue, ", ")
}

// same reports whether both sights are of the same grant and the same queue.
func (v sight) same(w sight) bool {
	return v.holder == w.holder && v.token == w.token && slices.Equal(v.queue, w.queue)
}

// passed reports whether w is what v becomes when the holder's lease runs out:
// the first in the queue has the next number.
func (v sight) passed(w sight) bool {
	return len(v.queue) > 0 && w.holder == v.queue[0] && w.token.Lock == v.token.Lock &&
		w.token.Number == v.token.Number+1 && slices.Equal(v.queue[1:], w.queue)
}

// look asks the service for the lock; a cluster without a leader answers when
// it has one.
func (s *story) look(ctx context.Context) (v sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, drillPatience)
	defer cancel()
	lock, err := s.watcher.Get(ctx, drillLock, cluster.GetOptions{})
	var refused *driver.Error
	if errors.As(err, &refused) && refused.Kind == driver.NotFound {
		return v, nil
	}
	if err != nil {
		return v, fmt.Errorf("asking for the lock: %w", err)
	}
	for _, h := range lock.Holders {
		v.holder, v.token = whose(h.Label), h.Token
	}
	for _, w := range lock.Queue {
		v.queue = append(v.queue, whose(w.Label))
	}
	return v, nil
}

func whose(label string) string { return strings.TrimPrefix(label, "worker ") }

// missed notes what is not as the theory says; the judge tells.
func (s *story) missed(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// killLeader kills the node that leads, while A stands still and B waits, and
// looks at what the next leader knows.
func (s *story) killLeader(ctx context.Context) error {
	var before, after sight
	var dead, lead *drillNode
	var term uint64
	err := s.meanwhile(ctx, func(ctx context.Context) (err error) {
		if before, err = s.look(ctx); err == nil {
			dead, term, err = s.nodes.leader(ctx, 0)
		}
		return err
	})
	if err != nil {
		return err
	}
	pid, began := dead.PID(), time.Now()
	dead.Kill()
	dead.Node, s.dead = nil, dead
	s.out.tell(event{Event: "killed", Worker: dead.name, PID: pid,
		Text: fmt.Sprintf("led in term %d, and is killed by SIGKILL while %s", term, before)})
	err = s.meanwhile(ctx, func(ctx context.Context) (err error) {
		lead, term, err = s.nodes.leader(ctx, term)
		return err
	})
	if err != nil {
		return err
	}
	s.out.tell(event{Event: "elected", Worker: lead.name,
		Text: fmt.Sprintf("leads in term %d, %v after the kill; it gives each session a whole TTL from now on", term, time.Since(began).Round(10*time.Millisecond))})
	err = s.meanwhile(ctx, func(ctx context.Context) (err error) {
		after, err = s.look(ctx)
		return err
	})
	if err != nil {
		return err
	}
	s.out.tell(event{Event: "kept", Worker: lead.name, Token: tokenText(after.token), Text: s.compareSights(before, after, true)})
	return nil
}

// compareSights tells what a node knows, after another one died or while it
// leads again, and notes what was lost.
func (s *story) compareSights(before, after sight, mayPass bool) string {
	switch {
	case before.same(after):
		return fmt.Sprintf("knows what the dead leader knew: %s", after)
	case mayPass && before.passed(after):
		return fmt.Sprintf("the lease has run out meanwhile, and the queue has moved on: %s", after)
	}
	s.missed("before, %s; after, %s", before, after)
	return fmt.Sprintf("DOES NOT KNOW what the dead leader knew: %s", after)
}

// together is the last act on a cluster: the dead node, if there is one,
// comes back, and all nodes must have the same state while A holds the lock
// and B waits. Then the node that was dead hands out the next token.
func (s *story) together(ctx context.Context) error {
	if s.dead != nil {
		s.out.enter("return", fmt.Sprintf("%s, which was killed, comes back", s.dead.name))
	} else {
		s.out.enter("agree", "All nodes know the same")
	}
	held, err := s.step(ctx, s.a, stage.SaidAcquired, stage.DoAcquire)
	if err != nil {
		return err
	}
	if _, err := s.step(ctx, s.b, stage.SaidQueued, stage.DoAcquire); err != nil {
		return err
	}
	if s.dead != nil {
		if err := s.revive(ctx); err != nil {
			return err
		}
	}
	if err := s.agree(ctx); err != nil {
		return err
	}
	if s.dead != nil {
		if err := s.crown(ctx, sight{holder: "A", token: held.Token, queue: []string{"B"}}); err != nil {
			return err
		}
	}
	if _, err := s.step(ctx, s.a, stage.SaidReleased, stage.DoRelease); err != nil {
		return err
	}
	next, err := s.await(ctx, s.b, stage.SaidAcquired)
	if err != nil {
		return err
	}
	if next.Token.Number != held.Token.Number+1 {
		s.missed("B's token %d is not one above A's %d", next.Token.Number, held.Token.Number)
	}
	_, err = s.step(ctx, s.b, stage.SaidReleased, stage.DoRelease)
	return err
}

// revive starts the dead node again, with the data that it had.
func (s *story) revive(ctx context.Context) error {
	var commit, applied uint64
	err := s.meanwhile(ctx, func(ctx context.Context) (err error) {
		commit, err = s.nodes.commit(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.nodes.start(s.dead); err != nil {
		return err
	}
	s.out.tell(event{Event: "restarted", Worker: s.dead.name, PID: s.dead.PID(), Text: fmt.Sprintf("starts again, pid %d, with the data that it had", s.dead.PID())})
	err = s.meanwhile(ctx, func(ctx context.Context) (err error) {
		applied, err = s.nodes.caughtUp(ctx, s.dead, commit)
		return err
	})
	if err != nil {
		return err
	}
	s.out.tell(event{Event: "caught-up", Worker: s.dead.name, Text: fmt.Sprintf("has caught up: entry %d of the log", applied)})
	return nil
}

// agree compares the states of all nodes.
func (s *story) agree(ctx context.Context) error {
	var hashes []string
	var entry uint64
	err := s.meanwhile(ctx, func(ctx context.Context) (err error) {
		hashes, entry, err = s.nodes.states(ctx)
		return err
	})
	if err != nil {
		return err
	}
	s.out.tell(event{Event: "states", Worker: "nodes", Hashes: hashes, Text: s.compareStates(hashes, entry)})
	return nil
}

// compareStates tells whether all nodes have the same state.
func (s *story) compareStates(hashes []string, entry uint64) string {
	if len(slices.Compact(slices.Clone(hashes))) == 1 && hashes[0] != "" {
		return fmt.Sprintf("%s have the same state at entry %d: its hash is %.16s", s.nodes.names(), entry, hashes[0])
	}
	s.missed("the nodes have different states at entry %d", entry)
	var each []string
	for i, node := range s.nodes.nodes {
		each = append(each, fmt.Sprintf("%s %.16s", node.name, hashes[i]))
	}
	return fmt.Sprintf("THE STATES DIFFER at entry %d: %s", entry, strings.Join(each, ", "))
}

// crown lets the node that was dead lead again: it goes on from its own log.
func (s *story) crown(ctx context.Context, before sight) error {
	var term uint64
	var after sight
	err := s.meanwhile(ctx, func(ctx context.Context) (err error) {
		if term, err = s.nodes.giveTo(ctx, s.watcher, s.dead); err == nil {
			after, err = s.look(ctx)
		}
		return err
	})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("leads in term %d, and knows: %s", term, after)
	if !before.same(after) {
		s.missed("before, %s; after, %s", before, after)
		text = fmt.Sprintf("leads in term %d, and DOES NOT KNOW that %s: %s", term, before, after)
	}
	s.out.tell(event{Event: "leads-again", Worker: s.dead.name, Token: tokenText(after.token), Text: text})
	return nil
}
