package sim

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/fence"
	"holdfast/internal/planted"
	"holdfast/server/core"
	"holdfast/server/replica"
)

// The planted bugs of the shell that need more than a line where they are.

// unknown is the answer to a call whose entry may yet be committed.
func unknown() answer {
	if planted.On("C4-unknown-is-no") {
		return answer{result: core.Result{Status: core.Refused, Refusal: &core.Refusal{Reason: core.Busy}}}
	}
	return answer{retry: true}
}

// grantEarly answers acquires by what they would do if they were committed.
func (s *server) grantEarly(cmds []core.Command, items []proposal) {
	st := s.m.State().Clone()
	did, err := st.Apply(core.Entry{Index: st.Index() + 1, Term: s.m.Role().Term, Commands: cmds})
	for i, p := range items {
		if _, ok := p.cmd.(core.Acquire); ok && err == nil && did.Results[i].Status == core.Granted {
			s.reply(*p.call, s.about(*p.call, did.Results[i]))
		}
	}
}

// answerEarly says of a batch that it is durable, before it is; what is left to
// do is to write it.
func (d *disk) answerEarly(j job) job {
	if j.append.Snapshot == nil {
		d.done = append(d.done, j)
		d.s.outstanding = append(d.s.outstanding, j.since)
		d.s.wake()
		j.nothing = true
	}
	return j
}

// kept is the hard state that a batch leaves on the disk.
func (d *disk) kept(a *replica.Append) *raftpb.HardState {
	if planted.On("D1-vote-not-stored") && len(a.Entries) == 0 && a.Snapshot == nil {
		return &raftpb.HardState{Term: new(d.soft.GetTerm()), Vote: new(d.soft.GetVote()), Commit: new(a.HardState.GetCommit())}
	}
	return a.HardState
}

// cutEarly is a death between the cut of the log and the snapshot for which it
// was cut.
func (d *disk) cutEarly() {
	for _, j := range d.jobs {
		i, have := j.snapshot.GetMetadata().GetIndex(), d.snap.GetMetadata().GetIndex()
		if j.snapshot != nil && i > have && i-have <= uint64(len(d.entries)) {
			d.entries, d.jobs = d.entries[i-have:], nil
			return
		}
	}
}

// readAndArm reads, and then raises the mark.
func (h *hold) readAndArm() {
	fail := func() { h.release(true) }
	h.at(writes, func(r *resource) answer { return answer{version: r.version} }, func(read answer) {
		h.at(armings, func(r *resource) answer { return r.arm(h) }, func(a answer) {
			if a.retry {
				fail()
				return
			}
			h.base = read.version
			h.next()
		}, fail)
	}, fail)
}

// writeLater has checked, and writes after a while.
func (r *resource) writeLater(h *hold, base int) answer {
	r.w.after(between(r.w.net.rng, 0, 20*time.Millisecond), func() {
		if h.token.Mode == fence.Exclusive {
			r.w.judge.wrote(r, h, base)
			r.writes = append(r.writes, written{h.token, h.s.c.id})
			r.version++
		}
	})
	if h.token.Mode == fence.Exclusive {
		return answer{version: r.version + 1}
	}
	return answer{version: r.version}
}
