package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"holdfast/engine/cluster"
)

// compareAhead is how long after they are asked the members come to the entry
// whose states are compared, at the pace that they had, try by try. A quiet
// cluster stands at that entry; while it is at work, the question must come
// first. A member waits for the entry for 5 s.
var compareAhead = []time.Duration{0, time.Second / 2, time.Second, 2 * time.Second, 3 * time.Second, 2 * time.Second}

// compare asks all that answered for the hash of their state as of one entry.
func (s *survey) compare(cmd *cobra.Command) {
	began, first := time.Now(), s.seen.Applied
	for _, ahead := range compareAhead {
		now, err := s.furthest(cmd)
		if err != nil {
			s.differ = withCode(exitFailure, fmt.Errorf("the states could not be compared: %w", err))
			return
		}
		pace := float64(now-min(first, now)) / time.Since(began).Seconds()
		if s.hashes(cmd, now+uint64(pace*ahead.Seconds())) {
			return
		}
	}
	s.differ = withCode(exitFailure, errors.New("the states could not be compared: the members did not come to the same entry in time; try again"))
}

// furthest is the last entry that any member has applied.
func (s *survey) furthest(cmd *cobra.Command) (index uint64, err error) {
	s.each(cmd, func(ctx context.Context, m *surveyed) func() {
		st, failed := askMember(cmd, ctx, m.at(), cluster.ClusterStatusOptions{})
		return func() {
			if failed != nil {
				err = fmt.Errorf("%s: %w", memberName(m.Member), failed)
			} else {
				index = max(index, st.Applied)
			}
		}
	})
	return index, err
}

// hashes compares the states right after one entry; false if a member did not
// tell it.
func (s *survey) hashes(cmd *cobra.Command, index uint64) bool {
	s.each(cmd, func(ctx context.Context, m *surveyed) func() {
		st, err := askMember(cmd, ctx, m.at(), cluster.ClusterStatusOptions{WithHash: true, HashIndex: index})
		return func() {
			if m.hash = ""; err == nil {
				m.hash = st.StateHash
			}
		}
	})
	return s.judge(index)
}

// each asks all that answered at once; what ask returns is called by one at a
// time.
func (s *survey) each(cmd *cobra.Command, ask func(ctx context.Context, m *surveyed) func()) {
	ctx, cancel := context.WithTimeout(cmd.Context(), callTimeout)
	defer cancel()
	var asked sync.WaitGroup
	var mu sync.Mutex
	for i := range s.members {
		m := &s.members[i]
		if m.own == nil {
			continue
		}
		asked.Go(func() {
			take := ask(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			take()
		})
	}
	asked.Wait()
}

// at is the member at the address at which it has answered.
func (m *surveyed) at() cluster.Member {
	at := m.Member
	at.ClientAddr = m.own.Server
	return at
}

// judge looks at the hashes; false if one is missing.
func (s *survey) judge(index uint64) bool {
	first := ""
	for _, m := range s.members {
		switch {
		case m.own == nil:
		case m.hash == "":
			return false
		case first == "":
			first = m.hash
		case m.hash != first:
			s.differ = withCode(exitFailure, fmt.Errorf("the states of the members differ at entry %d: stop what writes, take a backup, and report this as a bug", index))
		}
	}
	s.hashAt = index
	return true
}
