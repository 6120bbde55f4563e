package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// Append makes a batch durable: entries and hard state, and before them a
// snapshot that was received from a peer. When it returns nil all of it is
// synced, except that a batch which only raises the commit index may be
// written without a sync.
func (s *Store) Append(hs *raftpb.HardState, entries []*raftpb.Entry, received *raftpb.Snapshot) error {
	return s.do("append", func() error {
		if received.GetMetadata().GetIndex() > 0 {
			if err := s.writeSnapshot(received); err != nil {
				return err
			}
			md := received.GetMetadata()
			s.last.index, s.last.term = md.GetIndex(), md.GetTerm()
		}
		if err := s.step("append"); err != nil {
			return err
		}
		if err := s.wal.Save(hs, entries); err != nil {
			return err
		}
		synced := len(entries) > 0
		if n := len(entries); n > 0 {
			s.last.index, s.last.term = entries[n-1].GetIndex(), entries[n-1].GetTerm()
		}
		if hs != nil && (hs.Term != nil || hs.Vote != nil || hs.Commit != nil) {
			synced = synced || hs.GetTerm() != s.last.vterm || hs.GetVote() != s.last.vote
			s.last.vterm, s.last.vote = hs.GetTerm(), hs.GetVote()
			s.commit = max(s.commit, hs.GetCommit())
		}
		if received.GetMetadata().GetIndex() > 0 {
			if err := s.wal.Sync(); err != nil {
				return err
			}
			if err := s.purge(); err != nil {
				return err
			}
			synced = true
		}
		if !synced {
			return nil
		}
		return s.writeMark()
	})
}

func (s *Store) writeMark() error {
	if err := s.step("mark"); err != nil {
		return err
	}
	s.last.seq++
	return s.last.write(s.mark)
}

// SaveSnapshot makes a snapshot of this member's own state durable and then
// drops the log and the snapshots that are no longer needed: two snapshots
// are kept, and the log from the older one. A batch with a commit index at or
// above the snapshot's must have been appended before (D4).
func (s *Store) SaveSnapshot(sn *raftpb.Snapshot) error {
	return s.do("snapshot", func() error {
		md := sn.GetMetadata()
		if md.GetIndex() == 0 || md.GetIndex() > s.commit {
			return fmt.Errorf("store: snapshot of entry %d while only %d are known to be committed", md.GetIndex(), s.commit)
		}
		if n := len(s.kept); n > 0 && md.GetIndex() <= s.kept[n-1].GetIndex() {
			return fmt.Errorf("store: snapshot of entry %d after one of entry %d", md.GetIndex(), s.kept[n-1].GetIndex())
		}
		if err := s.writeSnapshot(sn); err != nil {
			return err
		}
		return s.purge()
	})
}

// writeSnapshot writes the file, its directory and the record, in this order.
func (s *Store) writeSnapshot(sn *raftpb.Snapshot) error {
	if err := s.step("snapshot file"); err != nil {
		return err
	}
	if err := s.placeSnapshot(sn); err != nil {
		return err
	}
	if err := s.step("snapshot directory"); err != nil {
		return err
	}
	if err := syncDir(s.snapDir()); err != nil {
		return err
	}
	if err := s.step("snapshot record"); err != nil {
		return err
	}
	rec := walSnapshot(sn)
	if err := s.wal.SaveSnapshot(rec); err != nil {
		return err
	}
	s.kept = append(s.kept, rec)
	s.snapBytes = uint64(len(sn.GetData()))
	return nil
}

// purge removes all but two snapshots, and the segments before the older.
func (s *Store) purge() error {
	for len(s.kept) > 2 {
		if err := s.step("purge"); err != nil {
			return err
		}
		err := os.Remove(filepath.Join(s.snapDir(), snapName(s.kept[0].GetTerm(), s.kept[0].GetIndex())))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		s.kept = slices.Delete(s.kept, 0, 1)
	}
	if len(s.kept) < 2 {
		return nil
	}
	oldest := s.kept[0].GetIndex()
	names, err := segments(s.walDir())
	if err != nil {
		return err
	}
	if err := s.wal.ReleaseLockTo(oldest); err != nil {
		return err
	}
	for i := 0; i+1 < len(names) && names[i+1].index <= oldest; i++ {
		if err := s.step("purge"); err != nil {
			return err
		}
		if err := os.Remove(filepath.Join(s.walDir(), names[i].file)); err != nil {
			return err
		}
	}
	return nil
}

// snapName is how etcd's package names the file of a snapshot.
func snapName(term, index uint64) string { return fmt.Sprintf("%016x-%016x.snap", term, index) }

// Probe writes something and syncs it: it returns nil if the disk works.
func (s *Store) Probe() error {
	return s.do("probe", func() error {
		if err := s.writeMark(); err != nil {
			return err
		}
		if err := s.step("probe"); err != nil {
			return err
		}
		return s.mark.Sync()
	})
}
