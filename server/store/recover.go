package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// recover reads a member's directory, checks it, renews what a failed sync may
// have left only in the page cache, and opens the log for writing.
func (s *Store) recover() error {
	sc, err := scanLog(s.walDir(), s.meta)
	if err != nil {
		return err
	}
	m, err := readMark(s.markPath())
	if err != nil {
		return err
	}
	if err := sc.reaches(m); err != nil {
		return err
	}
	chosen, err := s.chooseSnapshot(sc)
	if err != nil {
		return err
	}
	if err := checkContinues(sc, chosen); err != nil {
		return err
	}
	if err := s.step("renew"); err != nil {
		return err
	}
	if err := renewTail(sc); err != nil {
		return fmt.Errorf("%w: renewing %s: %w", ErrUnusable, sc.tail, err)
	}
	if sc.torn != nil {
		s.log.Warn("the end of the log was never synced, and is dropped", "file", sc.tail, "from_byte", sc.tailEnd, "cause", sc.torn)
	}
	if err := s.openLog(sc, chosen); err != nil {
		return err
	}
	s.last = mark{seq: m.seq + 1, index: sc.last, term: sc.terms[len(sc.terms)-1], vterm: sc.state.GetTerm(), vote: sc.state.GetVote()}
	s.commit = sc.state.GetCommit()
	s.snapBytes = uint64(len(chosen.GetData()))
	if s.mark, err = createMark(s.markPath(), s.last); err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return nil
}

// chooseSnapshot loads the newest snapshot that the log records. A damaged one
// is refused by name; a missing one is passed over if an older one is there,
// because the log is kept from the older one on, which checkContinues proves.
func (s *Store) chooseSnapshot(sc *scan) (*raftpb.Snapshot, error) {
	recorded := sc.recorded()
	var chosen *raftpb.Snapshot
	var missing string
	s.kept = nil
	for _, rec := range recorded {
		path := filepath.Join(s.snapDir(), snapName(rec.GetTerm(), rec.GetIndex()))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			if missing == "" {
				missing = path
			}
			continue
		}
		if chosen == nil {
			sn, err := s.loadSnapshot(path, rec)
			if err != nil {
				return nil, err
			}
			chosen = sn
			if missing != "" {
				s.log.Warn("the newest snapshot is missing: an older one and the log after it are used", "missing", missing, "used", path)
			}
		}
		s.kept = append(s.kept, rec)
		if len(s.kept) == 2 {
			break
		}
	}
	if chosen == nil && s.meta.Joined && len(recorded) == 0 && sc.first.index == 0 && sc.last == 0 {
		return nil, s.dropOrphans() // nothing was received yet
	}
	if chosen == nil {
		return nil, &CorruptError{File: s.snapDir(), What: fmt.Sprintf("none of the %d snapshots that the log records is there: restore this node from a backup or replace it", len(recorded))}
	}
	slices.Reverse(s.kept)
	return chosen, s.dropOrphans()
}

func (s *Store) loadSnapshot(path string, rec *walpb.Snapshot) (*raftpb.Snapshot, error) {
	sn, err := snap.Read(bridge(s.log), path)
	if err != nil {
		return nil, &CorruptError{File: path, What: "move it away to start from the snapshot before it, if there is one, or replace this node", Err: err}
	}
	if md := sn.GetMetadata(); md.GetIndex() != rec.GetIndex() || md.GetTerm() != rec.GetTerm() {
		return nil, &CorruptError{File: path, What: fmt.Sprintf("it holds a snapshot of entry %d in term %d", md.GetIndex(), md.GetTerm())}
	}
	return sn, nil
}

// dropOrphans removes snapshots that the log does not record, or that two
// newer ones made needless: a crash came before their record or removal.
func (s *Store) dropOrphans() error {
	if err := s.dropStaged(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	files, err := os.ReadDir(s.snapDir())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	for _, f := range files {
		isKept := slices.ContainsFunc(s.kept, func(k *walpb.Snapshot) bool {
			return f.Name() == snapName(k.GetTerm(), k.GetIndex())
		})
		if isKept || !strings.HasSuffix(f.Name(), ".snap") {
			continue
		}
		if err := os.Remove(filepath.Join(s.snapDir(), f.Name())); err != nil {
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	return nil
}

// checkContinues refuses a log that does not continue the snapshot.
func checkContinues(sc *scan, chosen *raftpb.Snapshot) error {
	md := chosen.GetMetadata()
	if sc.first.index > md.GetIndex() {
		return &CorruptError{File: filepath.Join(filepath.Dir(sc.tail), sc.first.file), What: fmt.Sprintf("it begins with entry %d, and the segment before it, with the entries from snapshot %d on, is missing", sc.first.index, md.GetIndex())}
	}
	switch {
	case len(sc.terms) == 0:
		// No entry, and no received snapshot: a purged log whose kept
		// segments are empty.
		sc.base, sc.last, sc.terms = md.GetIndex(), md.GetIndex(), []uint64{md.GetTerm()}
	case md.GetIndex() < sc.base || md.GetIndex() > sc.last:
		return &CorruptError{File: filepath.Dir(sc.tail), What: fmt.Sprintf("the log has the entries %d to %d, which do not continue the snapshot of entry %d: restore this node from a backup or replace it", sc.base+1, sc.last, md.GetIndex())}
	}
	if term := sc.terms[md.GetIndex()-sc.base]; term != 0 && term != md.GetTerm() {
		return &CorruptError{File: filepath.Dir(sc.tail), What: fmt.Sprintf("entry %d is of term %d, and the snapshot of it of term %d", md.GetIndex(), term, md.GetTerm())}
	}
	if c := sc.committed(); c > sc.last || c < md.GetIndex() {
		return &CorruptError{File: sc.tail, What: fmt.Sprintf("the commit index is %d, the snapshot's %d, and the last entry %d", c, md.GetIndex(), sc.last)}
	}
	return nil
}

// renewTail replaces the last segment by a synced copy of its good records:
// what is read from it may never have reached the disk, if a sync failed
// before the last stop (D3).
func renewTail(sc *scan) error {
	dir := filepath.Dir(sc.tail)
	if err := removeUnfinished(dir); err != nil {
		return err
	}
	from, err := os.Open(sc.tail)
	if err != nil {
		return err
	}
	defer from.Close()
	path := filepath.Join(dir, "renew.tmp")
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(to, from, sc.tailEnd)
	if err == nil {
		err = fileutil.Preallocate(to, max(wal.SegmentSizeBytes, sc.tailEnd), true)
	}
	if err == nil {
		err = to.Sync()
	}
	if cerr := to.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path, sc.tail)
	}
	if err == nil {
		err = syncDir(dir)
	}
	return err
}

// removeUnfinished drops segments that were being prepared.
func removeUnfinished(dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tmp") {
			if err := os.Remove(filepath.Join(dir, f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// openLog opens the log for writing and reads what follows the snapshot.
func (s *Store) openLog(sc *scan, chosen *raftpb.Snapshot) error {
	w, err := wal.Open(bridge(s.log), s.walDir(), walSnapshot(chosen))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	_, hs, entries, err := w.ReadAll()
	if err == nil {
		entries = current(sc, chosen, entries)
		err = sameAsScan(sc, chosen, hs, entries)
	}
	if err == nil {
		hs = sc.learned(hs)
		// The log writes the hard state again at the head of each new
		// segment, but only one that it was given since it was opened.
		err = w.Save(hs, nil)
	}
	if err != nil {
		w.Close()
		return &CorruptError{File: s.walDir(), What: "reading it", Err: err}
	}
	s.wal = w
	s.found = Recovered{Snapshot: chosen, HardState: hs, Entries: entries}
	if sc.torn != nil {
		s.found.TornBytes = sc.tailSize - sc.tailEnd
	}
	return nil
}

// learned gives the hard state that goes with the entries. A new leader's come
// in one batch with its term, those behind a received snapshot with its commit
// index, and both before the hard state: a crash may leave them alone. Their
// term is then the newest that this member knows, and it has not voted in it,
// because a vote is synced before it is told; and all that a snapshot is of was
// committed.
func (s *scan) learned(hs *raftpb.HardState) *raftpb.HardState {
	term, vote := hs.GetTerm(), hs.GetVote()
	if n := len(s.terms); n > 0 && s.terms[n-1] > term {
		term, vote = s.terms[n-1], 0
	}
	if term != hs.GetTerm() || s.committed() != hs.GetCommit() {
		hs = &raftpb.HardState{Term: new(term), Vote: new(vote), Commit: new(s.committed())}
		s.state = hs
	}
	return hs
}

// current drops entries that were replaced. etcd's package passes over an entry
// that the snapshot is of, and so keeps those behind it that this entry replaced
// when it was written, if no other came after it.
func current(sc *scan, chosen *raftpb.Snapshot, entries []*raftpb.Entry) []*raftpb.Entry {
	return entries[:min(uint64(len(entries)), sc.last-chosen.GetMetadata().GetIndex())]
}

// sameAsScan compares what etcd's package read with what was checked.
func sameAsScan(sc *scan, chosen *raftpb.Snapshot, hs *raftpb.HardState, entries []*raftpb.Entry) error {
	last := chosen.GetMetadata().GetIndex()
	for _, e := range entries {
		if e.GetIndex() != last+1 || e.GetTerm() != sc.terms[e.GetIndex()-sc.base] {
			return fmt.Errorf("entry %d of term %d follows entry %d", e.GetIndex(), e.GetTerm(), last)
		}
		last++
	}
	if last != sc.last || hs.GetTerm() != sc.state.GetTerm() || hs.GetVote() != sc.state.GetVote() || hs.GetCommit() != sc.state.GetCommit() {
		return fmt.Errorf("it ends with entry %d: want %d", last, sc.last)
	}
	return nil
}
