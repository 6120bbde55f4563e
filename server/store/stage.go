package store

import (
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// stagedSuffix is that of a snapshot's file that does not count yet.
const stagedSuffix = ".staged"

// pieceBytes is how much of a snapshot is written between two syncs. A sync of
// the log that comes meanwhile may have to wait for one piece, not for all.
const pieceBytes = 4 << 20

// staged is what lies ready for SaveSnapshot.
type staged struct {
	sync.Mutex
	name string
}

// StageSnapshot writes a snapshot of this member's own state beside the others,
// under a name that means nothing to a start, and syncs it. A large one takes
// seconds, so unlike all other calls this one may be made beside them, by one
// goroutine at a time; [Store.SaveSnapshot] then has little left to do. It does
// not poison the store: whoever calls it must stop using it after an error, as
// after any other (D3).
func (s *Store) StageSnapshot(sn *raftpb.Snapshot) (err error) {
	defer s.recoverPanic("stage", &err)
	s.staged.set("")
	md := sn.GetMetadata()
	name := snapName(md.GetTerm(), md.GetIndex())
	if err := s.dropStaged(); err != nil { // one that was overtaken
		return err
	}
	if err := writeSnapshotFile(filepath.Join(s.snapDir(), name+stagedSuffix), sn); err != nil {
		return err
	}
	s.staged.set(name)
	return nil
}

func (st *staged) set(name string) {
	st.Lock()
	defer st.Unlock()
	st.name = name
}

// placeSnapshot puts a snapshot's file in its place: the staged one, or else it
// is written now. Its directory is not synced.
func (s *Store) placeSnapshot(sn *raftpb.Snapshot) error {
	md := sn.GetMetadata()
	name := snapName(md.GetTerm(), md.GetIndex())
	path := filepath.Join(s.snapDir(), name)
	s.staged.Lock()
	defer s.staged.Unlock()
	if s.staged.name == name {
		s.staged.name = ""
		return os.Rename(path+stagedSuffix, path)
	}
	return writeSnapshotFile(path, sn)
}

// dropStaged removes what was staged, and never put in its place: its process
// ended, or another member's snapshot overtook it.
func (s *Store) dropStaged() error {
	files, err := os.ReadDir(s.snapDir())
	if err != nil {
		return err
	}
	for _, f := range files {
		if strings.HasSuffix(f.Name(), stagedSuffix) {
			if err := os.Remove(filepath.Join(s.snapDir(), f.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSnapshotFile writes and syncs a file as etcd's package snap does, which
// reads it: a snappb.Snapshot, that is a checksum and an encoded
// raftpb.Snapshot. That package copies the state twice on the way; this does
// not.
func writeSnapshotFile(path string, sn *raftpb.Snapshot) error {
	meta, err := proto.Marshal(sn.GetMetadata())
	if err != nil {
		return err
	}
	var head []byte
	if sn.Data != nil {
		head = protowire.AppendTag(head, 1, protowire.BytesType)
		head = protowire.AppendVarint(head, uint64(len(sn.Data)))
	}
	tail := protowire.AppendTag(nil, 2, protowire.BytesType)
	tail = protowire.AppendBytes(tail, meta)
	parts := [][]byte{nil, head, sn.Data, tail}
	sum, size := uint32(0), 0
	for _, p := range parts {
		sum, size = crc32.Update(sum, castagnoli, p), size+len(p)
	}
	out := protowire.AppendTag(nil, 1, protowire.VarintType)
	out = protowire.AppendVarint(out, uint64(sum))
	out = protowire.AppendTag(out, 2, protowire.BytesType)
	parts[0] = protowire.AppendVarint(out, uint64(size))

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	for _, p := range parts {
		for at := 0; at < len(p) && err == nil; at += pieceBytes {
			if _, err = f.Write(p[at:min(at+pieceBytes, len(p))]); err == nil && at+pieceBytes < len(p) {
				err = f.Sync()
			}
		}
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(path) // what is broken must not lie under this name
	}
	return err
}
