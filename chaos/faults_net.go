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
	rules := map[string]ruleSet{v.name: {in: []string{fmt.Sprintf("ip saddr != %s ip protocol tcp reject with tcp reset", hubIP)}}}
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
