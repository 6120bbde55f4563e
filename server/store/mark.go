package store

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
)

// mark says how far the log was synced: it is written (not synced) after every
// sync of the log. It survives the death of the process, and after a power
// failure it is at worst older than the truth. So a log that ends before its
// mark has lost what was acknowledged, and what stands in the log behind the
// mark may be torn. Without it a flipped bit in a length looks like a torn
// tail, and everything behind it would be dropped in silence.
type mark struct {
	seq   uint64 // counts the marks written
	index uint64 // of the last entry
	term  uint64 // of the last entry
	vterm uint64 // term of the hard state …
	vote  uint64 // … and its vote
}

const (
	markMagic = "hfmark1\n"
	markLen   = 8 + 5*8 + 4
	// Two slots in sectors of their own are written in turn, so that a torn
	// write leaves the other.
	slotLen      = 512
	markFileSize = 2 * slotLen
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m mark) encode() []byte {
	b := make([]byte, 0, markLen)
	b = append(b, markMagic...)
	for _, v := range []uint64{m.seq, m.index, m.term, m.vterm, m.vote} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeMark(b []byte) (m mark, ok bool) {
	if len(b) < markLen || string(b[:8]) != markMagic {
		return mark{}, false
	}
	sum := crc32.Checksum(b[:markLen-4], castagnoli)
	if binary.LittleEndian.Uint32(b[markLen-4:]) != sum {
		return mark{}, false
	}
	for i, p := range []*uint64{&m.seq, &m.index, &m.term, &m.vterm, &m.vote} {
		*p = binary.LittleEndian.Uint64(b[8+8*i:])
	}
	return m, true
}

// readMark returns the newest mark of a file.
func readMark(path string) (mark, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return mark{}, &CorruptError{File: path, What: "it cannot be read", Err: err}
	}
	if len(b) != markFileSize {
		return mark{}, &CorruptError{File: path, What: fmt.Sprintf("it has %d bytes: want %d", len(b), markFileSize)}
	}
	first, ok1 := decodeMark(b[:slotLen])
	second, ok2 := decodeMark(b[slotLen:])
	switch {
	case !ok1 && !ok2:
		return mark{}, &CorruptError{File: path, What: "both its records fail their checksums"}
	case !ok1 || (ok2 && second.seq > first.seq):
		return second, nil
	}
	return first, nil
}

// createMark writes a new mark file with one mark in both slots, atomically
// and durably, and opens it.
func createMark(path string, m mark) (*os.File, error) {
	b := make([]byte, markFileSize)
	copy(b, m.encode())
	copy(b[slotLen:], m.encode())
	if err := writeFileSync(path, b); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0o600)
}

// write puts m into the slot whose turn it is.
func (m mark) write(f *os.File) error {
	_, err := f.WriteAt(m.encode(), int64(m.seq%2)*slotLen)
	return err
}
