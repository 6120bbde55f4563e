//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// loss has each site lose some of what comes in.
func loss(ctx context.Context, b *blow) error {
	rules := map[string]ruleSet{}
	for _, s := range b.net.sites {
		rules[s.name] = ruleSet{in: []string{fmt.Sprintf("ip saddr != %s numgen random mod 100 < %d drop", hubIP, 3+b.rng.IntN(28))}}
	}
	return b.impose(ctx, rules)
}

// resets breaks all connections of a server, again and again.
func resets(ctx context.Context, b *blow) error {
	v := b.servers[b.rng.IntN(len(b.servers))]
	rules := resetAll(v)
	for range 3 + b.rng.IntN(6) {
		undo, err := b.net.impose(rules)
		if err == nil {
			pause(ctx, b.between(20*time.Millisecond, 200*time.Millisecond))
		}
		if err := errors.Join(err, undo()); err != nil {
			return err
		}
		if !pause(ctx, b.between(50*time.Millisecond, 700*time.Millisecond)) {
			break
		}
	}
	return nil
}

// resetAll answers each packet of a connection with a reset.
func resetAll(v *server) map[string]ruleSet {
	return map[string]ruleSet{v.name: {in: []string{fmt.Sprintf("ip saddr != %s ip protocol tcp reject with tcp reset", hubIP)}}}
}

// late delays what some sites send and get, so much that it may look like an
// outage; overtaken has frames overtake each other, and some come twice.
func late(ctx context.Context, b *blow) error {
	most := b.between(20*time.Millisecond, 400*time.Millisecond)
	return b.cables(ctx, most/2, most, 0)
}

func overtaken(ctx context.Context, b *blow) error {
	return b.cables(ctx, 0, b.between(5*time.Millisecond, 80*time.Millisecond), 10)
}

func (b *blow) cables(ctx context.Context, least, most time.Duration, twice int) error {
	var all []*site
	for _, i := range b.rng.Perm(len(b.net.sites)) {
		if s := b.net.sites[i]; len(all) == 0 || b.rng.IntN(2) == 0 {
			all = append(all, s)
		}
	}
	if !b.cabling.TryLock() {
		return errTaken
	}
	defer b.cabling.Unlock()
	var undos []func() error
	var err error
	for _, s := range all {
		undo, failed := b.net.layCable(s, least, most, twice)
		if failed != nil {
			err = failed
			break
		}
		undos = append(undos, undo)
	}
	if err == nil {
		pause(ctx, b.between(ttl/2, 4*ttl))
	}
	for _, undo := range undos {
		err = errors.Join(err, undo())
	}
	return err
}
