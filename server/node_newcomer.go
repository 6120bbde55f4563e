package server

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"holdfast/server/peer"
)

// newcomer is a node without a state that asks others, round by round, until
// it knows of which cluster it is a member: one that it founds with them, or
// one that it joins.
type newcomer struct {
	cfg   NodeConfig
	log   *slog.Logger
	me    *identity
	dial  peer.Config
	task  string                     // for the error, if ctx ends it
	news  string                     // for the log, as long as it waits
	state string                     // likewise, for whoever asks the port
	gist  func(reason string) string // what must change to be told anew; nil: all
	said  string
	told  int // rounds since that was said
}

func newNewcomer(cfg NodeConfig, me *identity) newcomer {
	n := newcomer{cfg: cfg, log: cfg.Logger, me: me, dial: cfg.Peers.dialing()}
	if cfg.hooks.dial != nil {
		n.dial.Dial = cfg.hooks.dial
	}
	return n
}

// until asks round after round. A round without a plan and without an error
// says for what it waits.
func (n *newcomer) until(ctx context.Context, round func(context.Context) (plan *peer.Plan, waits string, err error)) (*peer.Plan, error) {
	every := time.NewTicker(min(electionTicks*n.cfg.Tick/2, time.Second))
	defer every.Stop()
	for {
		plan, waits, err := round(ctx)
		if plan != nil || err != nil {
			return plan, err
		}
		n.wait(waits)
		select {
		case <-every.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %s: %w", n.task, waits, context.Cause(ctx))
		}
	}
}

// wait says what the node waits for, when that changes and now and then.
func (n *newcomer) wait(reason string) {
	if n.cfg.Peers.Waits != nil {
		n.cfg.Peers.Waits(n.state + ": " + reason)
	}
	what := reason
	if n.gist != nil {
		what = n.gist(reason)
	}
	if n.told++; what == n.said && n.told < 20 {
		return
	}
	n.said, n.told = what, 0
	n.log.Info(n.news, "waits", reason)
}
