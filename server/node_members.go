package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast/server/core"
	"holdfast/server/replica"
)

// The reasons for which a change of membership, a transfer or a question about
// the cluster is refused, beside those of [replica.Machine.ProposeChange].
var (
	// ErrRemoved: this node was removed from its cluster, for good. It ends.
	ErrRemoved = errors.New("this node was removed from its cluster")
	// ErrNoTransfer: leadership cannot be, or was not, handed over.
	ErrNoTransfer = errors.New("leadership was not handed over")
	// ErrTooNew: the command needs a newer cluster version (invariant 9).
	ErrTooNew = errors.New("the cluster's version is too low for this")
	// ErrPassed: the node has applied more than the entry that was asked for.
	ErrPassed = errors.New("the node is past that entry")
)

// removedAdvice says how a machine whose node was removed can come back.
const removedAdvice = "its data is of no use any more: to let this machine take part again, choose a new, empty data directory and add it as a new member (holdfast cluster add)"

// asking is a question or an order to the loop that is no command: done is
// called exactly once, on the loop.
type asking struct {
	fn       func(l *loop, done func(error))
	anywhere bool // also on a node that does not lead
	done     func(error)
}

// membership is what the loop knows about its cluster beyond the state.
type membership struct {
	// changes are those that were proposed and not yet applied.
	changes map[replica.Handle]func(error)
	// transfer is the hand-over that was asked for, nil if none is under way.
	transfer *transfer
	// supports tells the newest cluster version that another member can apply;
	// false if it has not said so yet.
	supports func(id uint64) (uint32, bool)
	raising  bool // a SetVersion is under way
	passing  []passing
	// addresses is for the list of members to have them right.
	addresses addressing
}

type transfer struct {
	to    uint64
	until time.Duration
	done  func(error)
}

// passing waits for the state right after an entry, as long as ctx has not
// ended.
type passing struct {
	ctx   context.Context
	index uint64
	got   func(*core.State, error)
}

// maxPassing is how many may wait for an entry at a time.
const maxPassing = 256

// MemberView is one member as a node sees it.
type MemberView struct {
	core.Member
	// Progress is known to the leader only; elsewhere it is nil.
	Progress *replica.Progress
	Supports uint32 // newest cluster version that it can apply; 0: unknown
}

// ClusterView is the cluster as one node sees it.
type ClusterView struct {
	NodeID, Leader, Term, Applied, Commit uint64
	Domain                                [16]byte
	Incarnation                           uint64
	Version, Supports                     uint32
	Members                               []MemberView
	Removed                               []uint64
}

// ask puts a question or an order to the loop and waits for it. If ctx ends
// first the outcome is unknown.
func (n *Node) ask(ctx context.Context, anywhere bool, fn func(l *loop, done func(error))) error {
	got := make(chan error, 1)
	n.in.put(request{ask: &asking{fn: fn, anywhere: anywhere, done: func(err error) { got <- err }}}, true)
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: no answer in time: %w", ErrUnknownOutcome, context.Cause(ctx))
	}
}

// question is ask for one with an answer, which the loop may also give when
// nobody waits for it any more.
func question[T any](ctx context.Context, n *Node, anywhere bool, fn func(l *loop, done func(T, error))) (T, error) {
	got := make(chan T, 1)
	err := n.ask(ctx, anywhere, func(l *loop, done func(error)) {
		fn(l, func(v T, err error) {
			got <- v
			done(err)
		})
	})
	select {
	case v := <-got:
		return v, err
	default: // it was refused, or ctx has ended
		var none T
		return none, err
	}
}

// Cluster says what this node knows of its cluster; it need not lead.
func (n *Node) Cluster(ctx context.Context) (ClusterView, error) {
	return question(ctx, n, true, func(l *loop, done func(ClusterView, error)) { done(l.cluster(), nil) })
}

// ChangeMembers changes the membership by one step; this node must lead. Its
// errors are those of [replica.Machine.ProposeChange] and of [Node.Do].
func (n *Node) ChangeMembers(ctx context.Context, c replica.Change) error {
	err := n.ask(ctx, false, func(l *loop, done func(error)) { l.change(c, done) })
	if err != nil || c.Kind != replica.Remove {
		return err
	}
	// A removal that was answered must not be undone by a crash of the one
	// voter that is left and knows it: an entry behind it makes it durable.
	_, _ = n.Do(ctx, core.Tick{})
	return nil
}

// TransferLeadership hands leadership to a voter, 0 for the one that is best
// suited, and returns the ID of who leads now.
func (n *Node) TransferLeadership(ctx context.Context, to uint64) (uint64, error) {
	return question(ctx, n, false, func(l *loop, done func(uint64, error)) {
		to := cmp.Or(to, l.successor())
		l.startTransfer(to, func(err error) { done(to, err) })
	})
}

// StateAt returns the state right after an entry, which may be applied later,
// within ctx. index 0 is now. A node that is past it says [ErrPassed].
func (n *Node) StateAt(ctx context.Context, index uint64) (*core.State, error) {
	st, err := question(ctx, n, true, func(l *loop, done func(*core.State, error)) {
		now := l.m.State().Index()
		switch {
		case index == 0 || index == now:
			done(l.m.State().Clone(), nil)
		case index < now:
			done(nil, fmt.Errorf("%w: it has applied entry %d: ask for a later one than %d", ErrPassed, now, index))
		default:
			l.await(passing{ctx, index, done})
		}
	})
	if errors.Is(err, ErrUnknownOutcome) {
		return nil, fmt.Errorf("waiting for entry %d: %w", index, context.Cause(ctx))
	}
	return st, err
}

// await lets p wait. Those who have gone leave their place: their entry may
// never come.
func (l *loop) await(p passing) {
	waiting := slices.DeleteFunc(l.members.passing, passing.leave)
	if l.members.passing = waiting; len(waiting) >= maxPassing {
		p.got(nil, fmt.Errorf("%w: %d wait for the state after an entry: try again later", ErrOverloaded, len(waiting)))
		return
	}
	l.members.passing = append(waiting, p)
}

// leave reports whether nobody waits any more, and then lets go.
func (p passing) leave() bool {
	if p.ctx.Err() == nil {
		return false
	}
	p.got(nil, context.Cause(p.ctx))
	return true
}

// cluster is what the loop knows.
func (l *loop) cluster() ClusterView {
	st, role := l.m.State(), l.m.Role()
	v := ClusterView{
		NodeID: l.id, Leader: role.Leader, Term: role.Term, Applied: st.Index(), Commit: l.m.Commit(),
		Domain: st.Domain(), Incarnation: st.Incarnation(), Version: st.Version(), Supports: l.supports(),
	}
	var members []core.Member
	members, v.Removed = st.Members()
	progress := l.m.Progress()
	for _, m := range members {
		out := MemberView{Member: m}
		if p, ok := progress[m.ID]; ok {
			out.Progress = &p
		}
		out.Supports, _ = l.supportsOf(m.ID)
		v.Members = append(v.Members, out)
	}
	return v
}

// supports is the newest cluster version that this node can apply.
func (l *loop) supports() uint32 { return l.m.State().Supports() }

func (l *loop) supportsOf(id uint64) (uint32, bool) {
	switch {
	case id == l.id:
		return l.supports(), true
	case l.members.supports == nil:
		return 0, false
	}
	return l.members.supports(id)
}

// change proposes a change of membership; done gets its outcome.
func (l *loop) change(c replica.Change, done func(error)) {
	l.handles++
	err := l.m.ProposeChange(l.handles, core.Header{Clock: l.lease.Clock(l.n.now())}, c)
	switch {
	case errors.Is(err, replica.ErrDropped):
		err = fmt.Errorf("%w: the log takes no more at the moment: try again", ErrOverloaded)
	case errors.Is(err, replica.ErrNotLeader):
		err = l.notLeader()
	}
	if err != nil {
		done(err)
		return
	}
	if l.members.changes == nil {
		l.members.changes = map[replica.Handle]func(error){}
	}
	l.members.changes[l.handles] = done
	l.moved = true
}

// memberApplied looks at an applied entry for what concerns members.
func (l *loop) memberApplied(a replica.Applied) {
	if done, ok := l.members.changes[a.Proposal]; ok && a.Proposal != 0 {
		delete(l.members.changes, a.Proposal)
		done(nil)
	}
	for i, c := range a.Entry.Commands {
		if _, ok := c.(core.Members); !ok {
			continue
		}
		if a.Did.Results[i].Status == core.Refused {
			l.fail(&replica.HaltError{Index: a.Entry.Index, Err: fmt.Errorf("the list of members after a change was refused: %s", a.Did.Results[i].Refusal.Msg)})
			continue
		}
		members, removed := l.m.State().Members()
		l.log.Info("members changed", "members", memberNames(members), "removed", len(removed))
	}
	l.passed()
	l.checkRemoved()
}

// passed hands out the state to who waits for this entry.
func (l *loop) passed() {
	if len(l.members.passing) == 0 {
		return
	}
	now := l.m.State().Index()
	l.members.passing = slices.DeleteFunc(l.members.passing, func(p passing) bool {
		switch {
		case p.leave():
			return true
		case p.index == now:
			p.got(l.m.State().Clone(), nil)
		case p.index < now: // a snapshot jumped over it
			p.got(nil, fmt.Errorf("%w: it has applied entry %d: ask for a later one than %d", ErrPassed, now, p.index))
		}
		return p.index <= now
	})
}

// checkRemoved ends a node that is no member any more.
func (l *loop) checkRemoved() {
	if l.m.Removed() {
		l.wasRemoved("its log says so")
	}
}

func (l *loop) wasRemoved(how string) {
	l.fail(fmt.Errorf("%w (%s): %s", ErrRemoved, how, removedAdvice))
}

// memberUnknown ends a change whose leader lost its office.
func (l *loop) memberUnknown(h replica.Handle) {
	if done, ok := l.members.changes[h]; ok {
		delete(l.members.changes, h)
		done(fmt.Errorf("%w: leadership was lost before the change was applied: look at the members first (holdfast cluster status)", ErrUnknownOutcome))
	}
}

// endMembers answers who still waits when the node ends.
func (l *loop) endMembers(err error) {
	for h, done := range l.members.changes { // each is another caller: the order does not matter
		delete(l.members.changes, h)
		done(fmt.Errorf("%w: %w", ErrUnknownOutcome, err))
	}
	if t := l.members.transfer; t != nil {
		l.members.transfer = nil
		t.done(err)
	}
	for _, p := range l.members.passing {
		p.got(nil, err)
	}
	l.members.passing = nil
}

// startTransfer begins to hand leadership over; done gets the outcome.
func (l *loop) startTransfer(to uint64, done func(error)) {
	members, _ := l.m.State().Members()
	i := slices.IndexFunc(members, func(m core.Member) bool { return m.ID == to })
	var err error
	switch {
	case l.members.transfer != nil && l.members.transfer.to == to:
		first := l.members.transfer.done // who lost the line asks again
		l.members.transfer.done = func(err error) { first(err); done(err) }
		return
	case l.members.transfer != nil:
		err = fmt.Errorf("%w: a transfer is under way: look at the members in a moment (holdfast cluster status)", ErrNoTransfer)
	case to == 0:
		err = fmt.Errorf("%w: no other voter can be reached: add one, or bring one back", ErrNoTransfer)
	case i < 0:
		err = fmt.Errorf("%w: nobody has the ID %016x", replica.ErrNoMember, to)
	case members[i].Learner:
		err = fmt.Errorf("%w: %s has no vote yet: wait until it has caught up", ErrNoTransfer, replica.Called(members[i]))
	case to == l.id:
		done(nil) // it leads
		return
	case !l.m.Progress()[to].Active:
		err = fmt.Errorf("%w: %s has not been heard for an election timeout: choose another, or bring it back", ErrNoTransfer, replica.Called(members[i]))
	case l.net.port != nil && !l.net.port.Fit(to):
		err = fmt.Errorf("%w: %s says that it should not lead now, or has just gone: its /readyz says why; choose another", ErrNoTransfer, replica.Called(members[i]))
	}
	if err != nil {
		done(err)
		return
	}
	l.net.handed = l.n.now()
	l.members.transfer = &transfer{to: to, until: l.net.handed + 2*electionTicks*l.n.cfg.Tick, done: done}
	l.m.TransferTo(to)
	l.moved = true
}

// successor is the reachable voter, other than this one, that has most of the
// log; 0 if there is none.
func (l *loop) successor() (best uint64) {
	members, _ := l.m.State().Members()
	progress := l.m.Progress()
	for _, m := range members {
		p := progress[m.ID]
		if m.ID == l.id || m.Learner || !p.Active || l.net.port != nil && !l.net.port.Fit(m.ID) {
			continue
		}
		if best == 0 || p.Match > progress[best].Match {
			best = m.ID
		}
	}
	return best
}

// memberRole looks whether a transfer has come to its end.
func (l *loop) memberRole(r replica.Role) {
	t := l.members.transfer
	if t == nil || r.Elected || r.Leader == 0 {
		return
	}
	l.members.transfer = nil
	if r.Leader != t.to {
		t.done(fmt.Errorf("%w: %016x leads now instead of %016x", ErrNoTransfer, r.Leader, t.to))
		return
	}
	t.done(nil)
}

// tickMembers does what a leader does about its members from time to time.
func (l *loop) tickMembers() {
	if t := l.members.transfer; t != nil && l.n.now() >= t.until {
		l.members.transfer = nil
		t.done(fmt.Errorf("%w: %016x did not take it over in time: try again, or choose another", ErrNoTransfer, t.to))
	}
	if l.health.stopping {
		return
	}
	l.readdress()
	if !l.leading {
		return
	}
	members, _ := l.m.State().Members()
	for _, m := range members {
		if m.Learner && len(l.members.changes) == 0 {
			l.promote(m)
		}
	}
	l.raiseVersion(members)
}

// promote gives a learner that has caught up its vote.
func (l *loop) promote(m core.Member) {
	l.change(replica.Change{Kind: replica.Promote, Member: m}, func(err error) {
		if err == nil {
			l.log.Info("a member has caught up and has a vote now", "member", replica.Called(m))
		}
	})
}

// tooNew refuses a command that not every member can apply, before it enters
// the log (invariant 9).
func (l *loop) tooNew(cmd core.Command) error {
	versionOf := core.VersionOf
	if l.n.cfg.hooks.versionOf != nil {
		versionOf = l.n.cfg.hooks.versionOf
	}
	if need, have := versionOf(cmd), l.m.State().Version(); need > have {
		return fmt.Errorf("%w: it needs version %d, and the cluster is at %d until every member runs a release that knows %d (holdfast cluster status shows which do not)", ErrTooNew, need, have, need)
	}
	return nil
}

// raiseVersion proposes the newest cluster version that every member can
// apply, once each has said what it can (invariant 9).
func (l *loop) raiseVersion(members []core.Member) {
	newest := l.supports()
	for _, m := range members {
		v, ok := l.supportsOf(m.ID)
		if !ok {
			return
		}
		newest = min(newest, v)
	}
	if newest <= l.m.State().Version() || l.members.raising {
		return
	}
	l.members.raising = true
	l.urgent = append(l.urgent, proposal{cmd: core.SetVersion{Version: newest}, sink: func(a Answer) {
		l.members.raising = false
		if a.Err == nil && a.Result.Status == core.Done {
			l.log.Info("every member can apply a newer cluster version: it is raised", "version", newest)
		}
	}})
}

func memberNames(members []core.Member) []string {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = replica.Called(m)
		if m.Learner {
			names[i] += " (learner)"
		}
	}
	return names
}
