package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"

	"go.etcd.io/etcd/server/v3/etcdserver/api/snap"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
)

// DefaultSegmentBytes is the size at which a segment of the log is closed and
// the next one begun.
const DefaultSegmentBytes = 16 << 20

func init() { wal.SegmentSizeBytes = DefaultSegmentBytes }

// SetSegmentBytes changes the size of the log's segments for all stores of
// the process; at least 4,096. It must be called before the first Open.
func SetSegmentBytes(n int64) { wal.SegmentSizeBytes = max(n, 4096) }

// Options say what to open.
type Options struct {
	// Dir is the data directory; it is created if it does not exist.
	Dir string
	// Group is the raft group; 0 means 1.
	Group uint64
	// Logger gets warnings of the log; default slog.Default().
	Logger *slog.Logger

	// Fault, if set, is called before each step of the store that can fail,
	// with the step's name; an error from it is taken for the step's own.
	Fault func(step string) error
}

// Store is the open store of one member. Its methods are called by one
// goroutine at a time, but for [Store.StageSnapshot]. After the first error every call returns a
// [*PoisonError] and does not touch the disk.
type Store struct {
	dir   string // of the group
	root  string
	log   *slog.Logger
	fault func(step string) error
	meta  Meta
	found Recovered

	lock   *os.File
	mark   *os.File
	wal    *wal.WAL
	staged staged
	poison error

	// How far the log goes.
	last mark
	// commit is the highest commit index that was saved.
	commit uint64
	// kept are the snapshots that the log records and the directory has, in
	// rising order; at most two.
	kept []*walpb.Snapshot
	// snapBytes is the size of the last snapshot.
	snapBytes uint64
}

// Recovered is what a store held when it was opened.
type Recovered struct {
	// Snapshot is the newest complete snapshot; nil on a member that joined
	// and has not received one yet.
	Snapshot *raftpb.Snapshot
	// HardState is the last that was saved.
	HardState *raftpb.HardState
	// Entries continue Snapshot without a gap. Those above the commit index
	// may still be replaced.
	Entries []*raftpb.Entry
	// TornBytes is how much of the log's tail was dropped because it was
	// never synced.
	TornBytes int64
}

// Open opens the store in a directory. For a new directory, or one whose
// set-up was cut short, Meta().Member is false and [Store.Bootstrap] comes
// next; else what was found is in [Store.Recovered]. Its errors are
// [ErrInUse], [ErrNotOurs], [ErrNewerFormat], [ErrUnusable] and
// [*CorruptError].
func Open(o Options) (*Store, error) {
	if o.Group == 0 {
		o.Group = 1
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Dir == "" {
		return nil, fmt.Errorf("%w: its name is empty", ErrUnusable)
	}
	lock, err := prepare(o.Dir)
	if err != nil {
		return nil, err
	}
	s := &Store{
		root: o.Dir, dir: filepath.Join(o.Dir, fmt.Sprintf("group-%016x", o.Group)),
		log: o.Logger, fault: o.Fault, lock: lock,
	}
	if err := s.open(o.Group); err != nil {
		s.closeFiles()
		return nil, err
	}
	return s, nil
}

func (s *Store) open(group uint64) (err error) {
	defer s.recoverPanic("open", &err)
	if s.meta, err = loadMeta(s.root, group); err != nil {
		return err
	}
	if !s.meta.Member {
		// A set-up that was cut short left nothing that anybody was told of.
		if err := os.RemoveAll(s.dir); err != nil {
			return fmt.Errorf("%w: %w", ErrUnusable, err)
		}
		return nil
	}
	return s.recover()
}

// Meta says whose data this is.
func (s *Store) Meta() Meta { return s.meta }

// Recovered returns what was found by Open, or written by Bootstrap.
func (s *Store) Recovered() Recovered { return s.found }

// Bootstrap sets the store up with a cluster's incarnation and first snapshot.
// It is for a store whose Meta().Member is false. A crash in it leaves a store
// that is still new.
func (s *Store) Bootstrap(incarnation uint64, first *raftpb.Snapshot) error {
	return s.do("bootstrap", func() error {
		if first == nil {
			return fmt.Errorf("store: bootstrap without a snapshot")
		}
		return s.setUp(incarnation, first)
	})
}

// Join sets the store up for a member of a cluster that runs already: with its
// incarnation, an empty log and no snapshot, which the leader sends. It is for
// a store whose Meta().Member is false, like Bootstrap.
func (s *Store) Join(incarnation uint64) error {
	return s.do("join", func() error { return s.setUp(incarnation, nil) })
}

// setUp makes the store a member's; first is nil for one that joins.
func (s *Store) setUp(incarnation uint64, first *raftpb.Snapshot) error {
	if s.meta.Member || incarnation == 0 {
		return fmt.Errorf("store: bootstrap of a member, or without an incarnation")
	}
	meta := s.meta
	meta.Member, meta.Incarnation, meta.Joined = true, incarnation, first == nil
	if err := s.create(meta, first); err != nil {
		return err
	}
	if err := s.step("meta"); err != nil {
		return err
	}
	if err := writeFileSync(filepath.Join(s.root, metaFile), meta.encode()); err != nil {
		return err
	}
	s.meta = meta
	return s.recover()
}

// create writes the first log and, unless the member joins, the first snapshot
// of a group.
func (s *Store) create(meta Meta, first *raftpb.Snapshot) error {
	if err := os.MkdirAll(s.snapDir(), 0o700); err != nil {
		return err
	}
	md := first.GetMetadata()
	if err := s.step("snapshot file"); err != nil {
		return err
	}
	if first != nil {
		if err := snap.New(bridge(s.log), s.snapDir()).SaveSnap(first); err != nil {
			return err
		}
	}
	if err := syncDir(s.snapDir()); err != nil {
		return err
	}
	w, err := wal.Create(bridge(s.log), s.walDir(), meta.walMetadata())
	if err != nil {
		return err
	}
	hs := &raftpb.HardState{Term: new(md.GetTerm()), Vote: new(uint64(0)), Commit: new(md.GetIndex())}
	err = w.Save(hs, nil)
	if err == nil && first != nil {
		err = w.SaveSnapshot(walSnapshot(first))
	}
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	f, err := createMark(s.markPath(), mark{index: md.GetIndex(), term: md.GetTerm(), vterm: md.GetTerm()})
	if err != nil {
		return err
	}
	f.Close()
	return syncDir(s.root)
}

func (s *Store) walDir() string   { return filepath.Join(s.dir, "wal") }
func (s *Store) snapDir() string  { return filepath.Join(s.dir, "snap") }
func (s *Store) markPath() string { return filepath.Join(s.dir, "mark") }

// walSnapshot is the record of a snapshot in the log.
func walSnapshot(s *raftpb.Snapshot) *walpb.Snapshot {
	md := s.GetMetadata()
	return &walpb.Snapshot{Index: new(md.GetIndex()), Term: new(md.GetTerm()), ConfState: md.GetConfState()}
}

// step gives tests the chance to fail the next step.
func (s *Store) step(name string) error {
	if s.fault == nil {
		return nil
	}
	return s.fault(name)
}

// do runs one call of the store. Its first error, or panic, poisons the store.
func (s *Store) do(op string, call func() error) (err error) {
	if s.poison != nil {
		return s.poison
	}
	defer func() {
		if err != nil {
			s.poison = &PoisonError{Op: op, Err: err}
			err = s.poison
		}
	}()
	defer s.recoverPanic(op, &err)
	return call()
}

// recoverPanic turns a panic of etcd's packages into an error.
func (s *Store) recoverPanic(op string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic in %s: %v", op, p)
	}
}

// Close flushes and closes the store. A poisoned one is only let go of: its
// log is not touched again.
func (s *Store) Close() error {
	defer s.closeFiles()
	if s.poison != nil || s.wal == nil {
		return s.poison
	}
	return s.do("close", func() error {
		w := s.wal
		s.wal = nil
		if err := w.Close(); err != nil {
			return err
		}
		return s.mark.Sync()
	})
}

func (s *Store) closeFiles() {
	if s.mark != nil {
		s.mark.Close()
		s.mark = nil
	}
	if s.lock != nil {
		s.lock.Close() // gives the lock back
		s.lock = nil
	}
}

// Space returns how many bytes are free in the file system for this user, and
// below how many the log must not be let (D3): room for three segments and
// two snapshots.
func (s *Store) Space() (free, reserve uint64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.root, &st); err != nil {
		return 0, 0, fmt.Errorf("asking for the free space of %s: %w", s.root, err)
	}
	return st.Bavail * uint64(st.Bsize), 3*uint64(wal.SegmentSizeBytes) + 2*s.snapBytes, nil
}
