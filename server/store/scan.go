package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// scan is one reading of the whole log with every check that the wal package
// leaves out: its records' types stand outside their checksums, it takes a
// zero length for the end, and a record that overwrites a committed entry for
// a lawful one.
type scan struct {
	meta Meta
	crc  uint32 // of the records so far, which the next segment continues
	any  bool   // a record was read before

	// The log so far: it begins behind entry base and ends with entry last,
	// whose terms are in terms[0] and its last element.
	base, last uint64
	terms      []uint64
	state      *raftpb.HardState
	snaps      []*walpb.Snapshot
	// jump is a received snapshot above last, until the hard state confirms
	// it: a crash may come between the two.
	jump *walpb.Snapshot
	// landed is the entry of the last jump that was confirmed.
	landed uint64

	first    segmentName
	tail     string // path of the last segment
	tailEnd  int64  // where its last good record ends
	tailSize int64
	torn     error // why reading ended before the end of the segment
}

// scanLog reads all segments in dir in their order.
func scanLog(dir string, meta Meta) (*scan, error) {
	names, err := segments(dir)
	if err != nil {
		return nil, err
	}
	s := &scan{meta: meta, state: &raftpb.HardState{}, first: names[0]}
	for i, name := range names {
		if err := s.segment(filepath.Join(dir, name.file), name, i == len(names)-1); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// segmentName is a parsed file name: the segment's place, and the index of
// the first entry that it may hold.
type segmentName struct {
	file       string
	seq, index uint64
}

// segments lists the log's files in order, and refuses a gap.
func segments(dir string) ([]segmentName, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, &CorruptError{File: dir, What: "it cannot be read", Err: err}
	}
	var out []segmentName
	for _, f := range files { // sorted by name, so by seq
		var n segmentName
		if c, err := fmt.Sscanf(f.Name(), "%016x-%016x.wal", &n.seq, &n.index); err != nil || c != 2 {
			continue
		}
		n.file = f.Name()
		if n.file != fmt.Sprintf("%016x-%016x.wal", n.seq, n.index) {
			continue // ours has exactly this form
		}
		if len(out) > 0 && n.seq != out[len(out)-1].seq+1 {
			return nil, &CorruptError{File: filepath.Join(dir, n.file), What: fmt.Sprintf("the segment before it is missing (the last one found is %s)", out[len(out)-1].file)}
		}
		out = append(out, n)
	}
	if len(out) == 0 {
		return nil, &CorruptError{File: dir, What: "it has no segment of the log"}
	}
	return out, nil
}

// segment reads one file.
func (s *scan) segment(path string, name segmentName, isLast bool) error {
	f, err := os.Open(path)
	if err != nil {
		return &CorruptError{File: path, What: "it cannot be read", Err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return &CorruptError{File: path, What: "it cannot be read", Err: err}
	}
	d := wal.NewDecoder(fileutil.NewFileReader(f))
	var rec walpb.Record
	for {
		err = d.Decode(&rec)
		if err != nil {
			break
		}
		if bad := s.record(d, &rec, name); bad != nil {
			return &CorruptError{File: path, What: fmt.Sprintf("the record that ends at byte %d", d.LastOffset()), Err: bad}
		}
		s.any = true
	}
	s.crc = d.LastCRC()
	s.tail, s.tailEnd, s.tailSize = path, d.LastOffset(), info.Size()
	clean := errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF)
	switch {
	case isLast && clean:
		return nil
	case isLast && (errors.Is(err, io.ErrUnexpectedEOF) || endsInZeros(f, s.tailEnd, s.tailSize)):
		s.torn = err // whether that is lawful, the mark decides
		return nil
	case clean && s.tailEnd == s.tailSize:
		return nil
	case clean:
		return &CorruptError{File: path, What: fmt.Sprintf("its records end at byte %d of %d, though a later segment follows", s.tailEnd, s.tailSize)}
	}
	return &CorruptError{File: path, What: fmt.Sprintf("at byte %d", s.tailEnd), Err: err}
}

// endsInZeros reports whether the record at a byte of the file was written
// only in part: it ends in zeros, and nothing follows it. (The decoder knows a
// torn record only by a whole sector of zeros.)
func endsInZeros(f *os.File, at, size int64) bool {
	var frame [8]byte
	if _, err := f.ReadAt(frame[:], at); err != nil {
		return false
	}
	// The length is in the lower 56 bits, that of the padding in the upper.
	length := int64(binary.LittleEndian.Uint64(frame[:]) &^ (0xff << 56))
	rest := make([]byte, max(0, size-at-8))
	if _, err := f.ReadAt(rest, at+8); err != nil || length == 0 {
		return false
	}
	written := int64(len(bytes.TrimRight(rest, "\x00")))
	return written < length
}

// record checks one record against all before it.
func (s *scan) record(d wal.Decoder, rec *walpb.Record, name segmentName) error {
	switch rec.GetType() {
	case wal.CrcType:
		if s.any && rec.GetCrc() != s.crc && d.LastCRC() == 0 {
			return fmt.Errorf("it does not continue the segment before it")
		}
		if d.LastCRC() != 0 && rec.GetCrc() != d.LastCRC() {
			return wal.ErrCRCMismatch
		}
		d.UpdateCRC(rec.GetCrc())
		return nil
	case wal.MetadataType:
		if !bytes.Equal(rec.GetData(), s.meta.walMetadata()) {
			return fmt.Errorf("it belongs to %.200q: want %q", rec.GetData(), s.meta.walMetadata())
		}
		return nil
	case wal.EntryType:
		var e raftpb.Entry
		if err := proto.Unmarshal(rec.GetData(), &e); err != nil {
			return err
		}
		return s.entry(&e, name)
	case wal.StateType:
		var hs raftpb.HardState
		if err := proto.Unmarshal(rec.GetData(), &hs); err != nil {
			return err
		}
		return s.hardState(&hs)
	case wal.SnapshotType:
		var snap walpb.Snapshot
		if err := proto.Unmarshal(rec.GetData(), &snap); err != nil {
			return err
		}
		return s.snapshot(&snap, name)
	}
	return fmt.Errorf("it has the unknown type %d", rec.GetType())
}

func (s *scan) entry(e *raftpb.Entry, name segmentName) error {
	i := e.GetIndex()
	if s.jump != nil && i == s.jump.GetIndex()+1 {
		s.land()
	}
	s.jump = nil // if the log goes on where it was, the jump never happened
	if len(s.terms) == 0 && i > 0 {
		// The first entry of the first segment that is kept.
		if name.index > 0 && i > name.index {
			return fmt.Errorf("it is entry %d: want entry %d or a lower one", i, name.index)
		}
		s.base, s.last, s.terms = i-1, i-1, []uint64{0}
	}
	if i > s.committed() && i > 0 && i <= s.base && s.terms[0] == 0 {
		// It replaces entries of which the first stood in a segment that is
		// gone by now.
		s.base, s.last, s.terms = i-1, i-1, []uint64{0}
	}
	switch {
	case i == 0 || i > s.last+1:
		return fmt.Errorf("it is entry %d, and the one before it is %d", i, s.last)
	case i <= s.base:
		return fmt.Errorf("it is entry %d, and the log begins behind %d", i, s.base)
	case i <= s.last && i <= s.state.GetCommit():
		return fmt.Errorf("it overwrites entry %d, which is committed", i)
	case e.GetTerm() == 0 || e.GetTerm() < s.terms[i-1-s.base]:
		return fmt.Errorf("it is of term %d, and the entry before it of term %d", e.GetTerm(), s.terms[i-1-s.base])
	case e.GetType() > raftpb.EntryConfChangeV2 || e.GetType() < 0:
		return fmt.Errorf("it is an entry of unknown type %d", e.GetType())
	}
	s.terms = append(s.terms[:i-s.base], e.GetTerm())
	s.last = i
	return nil
}

func (s *scan) hardState(hs *raftpb.HardState) error {
	if s.jump != nil && hs.GetCommit() >= s.jump.GetIndex() {
		s.land()
	}
	switch {
	case hs.GetTerm() < s.state.GetTerm() || hs.GetCommit() < s.state.GetCommit():
		return fmt.Errorf("it sets term %d and commit %d, which were %d and %d", hs.GetTerm(), hs.GetCommit(), s.state.GetTerm(), s.state.GetCommit())
	case len(s.terms) > 0 && (hs.GetCommit() > s.last || hs.GetTerm() < s.terms[len(s.terms)-1]):
		return fmt.Errorf("it sets term %d and commit %d, and the last entry is %d of term %d", hs.GetTerm(), hs.GetCommit(), s.last, s.terms[len(s.terms)-1])
	}
	s.state = hs
	return nil
}

func (s *scan) snapshot(snap *walpb.Snapshot, name segmentName) error {
	i := snap.GetIndex()
	if i == 0 {
		return nil // the one that every new log begins with
	}
	s.snaps = append(s.snaps, snap)
	switch {
	case len(s.terms) == 0 && i < name.index:
		// Of entries in segments that are gone.
	case len(s.terms) == 0 || i > s.last:
		s.jump = snap
		if s.state.GetCommit() >= i {
			s.land()
		}
	case i >= s.base && s.terms[i-s.base] != 0 && s.terms[i-s.base] != snap.GetTerm():
		return fmt.Errorf("it records a snapshot of entry %d in term %d, and that entry is of term %d", i, snap.GetTerm(), s.terms[i-s.base])
	}
	return nil
}

// land makes the log begin behind the received snapshot.
func (s *scan) land() {
	s.base, s.last = s.jump.GetIndex(), s.jump.GetIndex()
	s.terms = []uint64{s.jump.GetTerm()}
	s.landed = s.last
	s.jump = nil
}

// committed is the highest entry that is known to be committed.
func (s *scan) committed() uint64 { return max(s.state.GetCommit(), s.landed) }

// recorded lists the snapshots that the log names and that count, newest
// first: a record above the commit index is of a snapshot whose arrival was
// not completed.
func (s *scan) recorded() []*walpb.Snapshot {
	var out []*walpb.Snapshot
	for _, snap := range s.snaps {
		if snap.GetIndex() <= s.committed() {
			out = append(out, snap)
		}
	}
	slices.SortStableFunc(out, func(a, b *walpb.Snapshot) int {
		switch {
		case a.GetIndex() > b.GetIndex():
			return -1
		case a.GetIndex() < b.GetIndex():
			return 1
		}
		return 0
	})
	return slices.CompactFunc(out, func(a, b *walpb.Snapshot) bool { return a.GetIndex() == b.GetIndex() })
}

// reaches refuses a log that ends before what was synced and acknowledged.
func (s *scan) reaches(m mark) error {
	var term uint64
	if len(s.terms) > 0 {
		term = s.terms[len(s.terms)-1]
	}
	entriesLost := m.term > term || (m.term == term && m.index > s.last)
	voteLost := m.vterm > s.state.GetTerm() || (m.vterm == s.state.GetTerm() && m.vote != 0 && m.vote != s.state.GetVote())
	if !entriesLost && !voteLost {
		return nil
	}
	what := fmt.Sprintf("its good records end at byte %d with entry %d of term %d and a vote in term %d, but the log was written up to entry %d of term %d and a vote in term %d: restore this node from a backup or replace it",
		s.tailEnd, s.last, term, s.state.GetTerm(), m.index, m.term, m.vterm)
	return &CorruptError{File: s.tail, What: what, Err: s.torn}
}
