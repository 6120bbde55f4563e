package backup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/store"
)

// ErrNoData: the survivor's directory has no service's data.
var ErrNoData = errors.New("no data of a lock service")

// Survivor is what was found on the disk of a lone survivor.
type Survivor struct {
	Domain      [16]byte
	Incarnation uint64
	NodeID      uint64
	Epoch       uint16
	LastNumber  uint64
	// Committed is the last entry that this member knew to be committed, and
	// Last the last one that it has: what lies between is taken too, because
	// it may have been acknowledged.
	Committed, Last uint64
	// Others are the members that are lost. What only they had is lost with
	// them.
	Others []core.Member
}

// Recover makes a new service's data directory from the data of the only
// member that is left, in the directory from. That is only read (as a start of
// the server reads it) and stays as it is. No server may be using it.
func Recover(from string, o Options) (Survivor, Begun, error) {
	if strings.HasSuffix(filepath.Clean(from), unfinished) {
		return Survivor{}, Begun{}, fmt.Errorf("%w: %s is what an attempt to make a directory left: give the member's own directory", ErrNoData, from)
	}
	if _, err := os.Stat(filepath.Join(from, "META")); err != nil {
		return Survivor{}, Begun{}, fmt.Errorf("%w in %s: want the data directory of the member that is left: %w", ErrNoData, from, err)
	}
	old, err := store.Open(store.Options{Dir: from, Logger: o.Logger})
	if err != nil {
		return Survivor{}, Begun{}, err
	}
	defer old.Close() // no server starts there meanwhile
	if !old.Meta().Member {
		return Survivor{}, Begun{}, fmt.Errorf("%w in %s: it was never part of a service", ErrNoData, from)
	}
	if old.Recovered().Snapshot == nil {
		return Survivor{}, Begun{}, fmt.Errorf("%w in %s: the member had joined, and had not received the state yet", ErrNoData, from)
	}
	s, term, err := replay(old.Recovered())
	if err != nil {
		return Survivor{}, Begun{}, err
	}
	found := Survivor{
		Domain: s.Domain(), Incarnation: s.Incarnation(), NodeID: old.Meta().NodeID, Epoch: s.Epoch(), LastNumber: s.LastNumber(),
		Committed: max(old.Recovered().HardState.GetCommit(), old.Recovered().Snapshot.GetMetadata().GetIndex()), Last: s.Index(),
	}
	members, _ := s.Members()
	for _, m := range members {
		if m.ID != found.NodeID {
			found.Others = append(found.Others, m)
		}
	}
	b, err := begin(s, term, o, fmt.Sprintf("recover of the data of member %016x, up to entry %d", found.NodeID, found.Last))
	return found, b, err
}

// replay returns the state after all that a store holds, and the highest term
// that it knows.
func replay(found store.Recovered) (*core.State, uint64, error) {
	s, err := core.Decode(bytes.NewReader(found.Snapshot.GetData()))
	if err != nil {
		return nil, 0, fmt.Errorf("the snapshot: %w", err)
	}
	term := max(found.Snapshot.GetMetadata().GetTerm(), found.HardState.GetTerm())
	for _, e := range found.Entries {
		entry := core.Entry{Index: e.GetIndex(), Term: e.GetTerm()}
		// Changes of the membership do not matter: it is replaced. So do
		// raft's own entries (D9), which are empty.
		if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
			if entry, err = core.DecodeEntry(e.GetIndex(), e.GetTerm(), e.GetData()); err != nil {
				return nil, 0, err
			}
		}
		if _, err := s.Apply(entry); err != nil {
			return nil, 0, err
		}
		term = max(term, e.GetTerm())
	}
	return s, term, nil
}
