package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/server/core"
)

// TestRandomMembership lets members come and go while they crash, lose
// messages and take snapshots. At the end the members are equal, and nothing
// that was acknowledged is missing.
func TestRandomMembership(t *testing.T) {
	var sum tally
	for world := range 30 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			t.Logf("seed %d", seed)
			memberWorld(t, rand.New(rand.NewPCG(seed, 0)), &sum)
		})
	}
	t.Logf("%+v", sum)
	if sum.acked < 500 || sum.joined < 10 || sum.promoted < 2 || sum.removed < 10 || sum.leaders < 2 || sum.lagging < 5 || sum.pending < 5 {
		t.Errorf("%+v: the worlds are too quiet", sum)
	}
}

// tally counts what happened in worlds.
type tally struct{ acked, joined, promoted, removed, leaders, lagging, pending int }

func memberWorld(t *testing.T, rng *rand.Rand, sum *tally) {
	r := newRig(t, 3)
	var n uint64
	acked := map[uint64]Handle{}
	gone := map[uint64]bool{} // stopped for good
	for range 6000 {
		mb := r.members[rng.IntN(len(r.members))]
		if mb.m != nil && mb.m.Removed() {
			noteAcked(t, mb, acked)
			mb.crash()
			gone[mb.id] = true
		}
		if gone[mb.id] {
			continue
		}
		if mb.m != nil && mb.role.Leader == 0 && rng.IntN(10) == 0 {
			mb.m.Campaign()
			mb.advance()
		}
		if mb.m == nil {
			if rng.IntN(5) == 0 {
				mb.start()
				mb.advance()
			}
			continue
		}
		switch k := rng.IntN(200); {
		case k < 1 && mb.m.State().Index() > 0:
			noteAcked(t, mb, acked)
			mb.crash()
		case k < 4:
			mb.snapshot()
		case k < 8:
			mb.reshuffle(rng, sum)
		case k < 14:
			mb.m.Tick()
			mb.advance()
		case k < 16 && len(r.net) > 0:
			r.lose(rng.IntN(len(r.net)))
		case k < 50:
			_, _ = mb.work(rng, &n)
		case k < 120:
			mb.sync()
		default:
			r.deliver()
		}
	}
	r.endMemberWorld(acked, gone)
	sum.acked += len(acked)
}

// endMemberWorld heals all, and looks.
func (r *rig) endMemberWorld(acked map[uint64]Handle, gone map[uint64]bool) {
	t := r.t
	for _, mb := range r.members {
		if mb.m == nil && !gone[mb.id] {
			mb.start()
		}
		noteAcked(t, mb, acked)
	}
	r.tick(3)
	l := r.leader()
	for {
		if _, err := l.propose(core.Tick{}); err == nil {
			break
		}
		r.tick(1) // a transfer is under way
		l = r.leader()
	}
	r.tick(25)
	members, removed := l.m.State().Members()
	var all []*member
	for _, n := range members {
		if slices.Contains(removed, n.ID) {
			t.Errorf("member %d was removed and is back", n.ID)
		}
		if r.members[n.ID-1].m == nil {
			t.Errorf("member %d stopped as removed, and is none", n.ID)
			continue
		}
		all = append(all, r.members[n.ID-1])
	}
	r.members = all
	r.checkEqual()
	checkAcked(t, r, acked)
}

// snapshot takes one if it may.
func (mb *member) snapshot() {
	snap, err := mb.m.View().Encode()
	if err != nil || snap.GetMetadata().GetIndex() <= mb.disk.snap.GetMetadata().GetIndex() || mb.disk.hs.GetCommit() < snap.GetMetadata().GetIndex() {
		return
	}
	if err := mb.disk.SaveSnapshot(snap); err != nil {
		mb.rig.t.Fatal(err)
	}
	if err := mb.m.SnapshotSaved(snap); err != nil {
		mb.rig.t.Fatal(err)
	}
}

func (r *rig) lose(at int) {
	lost := r.net[at]
	r.net = slices.Delete(r.net, at, at+1)
	r.report(lost, false)
}

// reshuffle proposes a change of membership, or a transfer, at random.
func (mb *member) reshuffle(rng *rand.Rand, sum *tally) {
	if !mb.m.elected() {
		return
	}
	members, _ := mb.m.State().Members()
	voters, learner := 0, uint64(0)
	for _, n := range members {
		if n.Learner {
			learner = n.ID
		} else {
			voters++
		}
	}
	some := members[rng.IntN(len(members))].ID
	var err error
	switch k := rng.IntN(10); {
	case k < 1 && some != mb.id:
		mb.m.TransferTo(some)
		mb.advance()
	case k < 6 && learner != 0:
		if _, err = mb.change(Promote, learner); err == nil {
			sum.promoted++
		}
	case k < 6 && len(mb.rig.members) < 12:
		next := uint64(len(mb.rig.members)) + 1
		if _, err = mb.change(AddLearner, next); err == nil {
			mb.rig.join()
			sum.joined++
		}
	case voters > 2 || some == learner:
		// (One of two voters may stop before the other has on disk that it
		// is alone now.)
		if _, err = mb.change(Remove, some); err == nil {
			sum.removed++
			if some == mb.id {
				sum.leaders++
			}
		}
	}
	if errors.Is(err, ErrLagging) {
		sum.lagging++
	}
	if errors.Is(err, ErrChangePending) {
		sum.pending++
	}
}
