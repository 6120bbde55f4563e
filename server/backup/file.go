package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"

	"holdfast/server/core"
)

// A file is, in this order: magic, format and header's length (4 bytes each,
// big-endian), the header (JSON), a CRC-32C of all that, the state
// ([Header.StateBytes] bytes), and a SHA-256 of everything before it.
const (
	magic = "Holdfast backup\n"
	// Format is the version of the file format that this release writes, and
	// the highest that it reads.
	Format     = 1
	prefixLen  = len(magic) + 8
	maxHeader  = 64 << 10
	maxServer  = 256
	sumLen     = sha256.Size
	crcLen     = 4
	hashDigits = 2 * sha256.Size
)

// The reasons for which a file is refused. The text around each says more.
var (
	// ErrNotBackup: it does not begin as a backup does.
	ErrNotBackup = errors.New("not a Holdfast backup")
	// ErrNewerFormat: a newer release wrote it.
	ErrNewerFormat = errors.New("backup has a newer format")
	// ErrTruncated: it ends too early.
	ErrTruncated = errors.New("backup is cut short")
	// ErrDamaged: it is not what was written.
	ErrDamaged = errors.New("backup is damaged")
)

// IsBad reports whether err says that a file is not a good backup, and not that
// it could not be read.
func IsBad(err error) bool {
	return errors.Is(err, ErrNotBackup) || errors.Is(err, ErrNewerFormat) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrDamaged)
}

// Header says what a backup holds. Numbers of 64 bits are strings in JSON.
type Header struct {
	Domain         string `json:"domain"`      // 32 hexadecimal digits
	Incarnation    string `json:"incarnation"` // 16 hexadecimal digits
	Epoch          uint16 `json:"epoch"`
	ClusterVersion uint32 `json:"cluster_version"`
	Index          uint64 `json:"index,string"` // of the last applied entry
	Term           uint64 `json:"term,string"`  // at least that of the entry
	Revision       uint64 `json:"revision,string"`
	LastNumber     uint64 `json:"last_number,string"` // the highest number given out
	// TakenAt is what the server's wall clock said. Nothing is decided by it.
	TakenAt time.Time `json:"taken_at"`
	// Server is the version of the server that wrote it, for people.
	Server     string `json:"server"`
	StateBytes uint64 `json:"state_bytes,string"`
	StateHash  string `json:"state_hash"` // 64 hexadecimal digits
}

// Info is what the writer of a backup knows beside the state.
type Info struct {
	Term    uint64 // at least the term of the state's last entry
	TakenAt time.Time
	Server  string
}

// headerOf describes a state; it encodes it once to learn its length.
func headerOf(s *core.State, i Info) (Header, error) {
	var size tail
	if err := s.Encode(&size); err != nil {
		return Header{}, err
	}
	h := about(s)
	h.Term, h.TakenAt, h.Server = i.Term, i.TakenAt.UTC().Truncate(time.Second), i.Server
	h.StateBytes, h.StateHash = size.n, hex.EncodeToString(size.last)
	return h, nil
}

// about is the part of a header that a state itself tells.
func about(s *core.State) Header {
	domain := s.Domain()
	return Header{
		Domain: hex.EncodeToString(domain[:]), Incarnation: fmt.Sprintf("%016x", s.Incarnation()), Epoch: s.Epoch(),
		ClusterVersion: s.Version(), Index: s.Index(), Revision: uint64(s.Revision()), LastNumber: s.LastNumber(),
	}
}

// tail counts bytes and keeps the last ones: a state's encoding ends with its
// hash.
type tail struct {
	n    uint64
	last []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.n += uint64(len(p))
	t.last = append(t.last, p[max(0, len(p)-sumLen):]...)
	t.last = append(t.last[:0], t.last[max(0, len(t.last)-sumLen):]...)
	return len(p), nil
}

// Write writes a backup of s, which must not change meanwhile: a
// [core.State.Clone]. It encodes the state twice and holds none of it in
// memory. An error is w's, or core's for a state that breaks an invariant.
func Write(w io.Writer, s *core.State, i Info) (Header, error) {
	h, err := headerOf(s, i)
	if err != nil {
		return h, err
	}
	text, err := json.Marshal(h)
	if err != nil {
		return h, err
	}
	head := append([]byte(magic), 0, 0, 0, Format)
	head = binary.BigEndian.AppendUint32(head, uint32(len(text)))
	head = append(head, text...)
	head = binary.BigEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
	sum := sha256.New()
	both := io.MultiWriter(w, sum)
	if _, err := both.Write(head); err != nil {
		return h, err
	}
	if err := s.Encode(both); err != nil {
		return h, err
	}
	_, err = w.Write(sum.Sum(nil))
	return h, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Read reads a backup to its end and checks all of it: the checksums, that
// nothing is missing or follows, that the state decodes and holds its
// invariants, and that the header describes it. It uses no more memory than a
// small multiple of the bytes that r really has. Its errors are those above,
// or r's.
func Read(r io.Reader) (Header, *core.State, error) {
	sum := sha256.New()
	tee := io.TeeReader(r, sum)
	h, err := readHeader(tee)
	if err != nil {
		return Header{}, nil, err
	}
	body := &counted{from: io.LimitReader(tee, int64(h.StateBytes))}
	s, bad := core.Decode(body)
	// Whatever is wrong with the state, first see whether it is what was
	// written.
	if _, err := io.Copy(io.Discard, body); err != nil {
		return h, nil, err
	}
	if body.err != nil {
		return h, nil, body.err
	}
	if body.n != h.StateBytes {
		return h, nil, fmt.Errorf("%w: it has %d of the state's %d bytes", ErrTruncated, body.n, h.StateBytes)
	}
	if err := readEnd(r, sum.Sum(nil)); err != nil {
		return h, nil, err
	}
	switch {
	case errors.Is(bad, core.ErrNewerFormat):
		return h, nil, fmt.Errorf("%w: %w", ErrNewerFormat, bad)
	case bad != nil:
		return h, nil, fmt.Errorf("%w: its checksum is right, and yet the state in it is not valid: %w", ErrDamaged, bad)
	}
	if got := hex.EncodeToString(body.last); got != h.StateHash {
		return h, nil, fmt.Errorf("%w: its header says that the state's hash is %s, and it is %s", ErrDamaged, h.StateHash, got)
	}
	if err := h.describes(s); err != nil {
		return h, nil, err
	}
	return h, s, nil
}

// readEnd reads the checksum, and that nothing follows it.
func readEnd(r io.Reader, got []byte) error {
	var want [sumLen]byte
	if n, err := io.ReadFull(r, want[:]); err != nil {
		return cut(err, "the checksum at its end", n, sumLen)
	}
	if !bytes.Equal(want[:], got) {
		return fmt.Errorf("%w: its SHA-256 is %x, and %x is what was written", ErrDamaged, got, want)
	}
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n != 0:
		return fmt.Errorf("%w: bytes follow its end", ErrDamaged)
	case err != io.EOF:
		return err
	}
	return nil
}

// counted remembers of what was read its length and end, and the reader's own
// error.
type counted struct {
	tail
	from io.Reader
	err  error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	_, _ = c.Write(p[:n])
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// readHeader reads everything before the state.
func readHeader(r io.Reader) (Header, error) {
	prefix := make([]byte, prefixLen)
	n, err := io.ReadFull(r, prefix)
	if !strings.HasPrefix(magic, string(prefix[:min(n, len(magic))])) {
		return Header{}, ErrNotBackup
	}
	if err != nil {
		return Header{}, cut(err, "its beginning", n, prefixLen)
	}
	format, length := binary.BigEndian.Uint32(prefix[len(magic):]), binary.BigEndian.Uint32(prefix[len(magic)+4:])
	switch {
	case format > Format:
		return Header{}, fmt.Errorf("%w: %d, and this release reads up to %d: use the release that wrote it, or a later one", ErrNewerFormat, format, Format)
	case format == 0 || length > maxHeader:
		return Header{}, fmt.Errorf("%w: format %d with a header of %d bytes", ErrDamaged, format, length)
	}
	rest := make([]byte, int(length)+crcLen)
	if n, err := io.ReadFull(r, rest); err != nil {
		return Header{}, cut(err, "its header", n, len(rest))
	}
	text := rest[:length]
	if crc32.Update(crc32.Checksum(prefix, castagnoli), castagnoli, text) != binary.BigEndian.Uint32(rest[length:]) {
		return Header{}, fmt.Errorf("%w: its header fails its checksum", ErrDamaged)
	}
	return decodeHeader(text)
}

func decodeHeader(text []byte) (h Header, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return Header{}, fmt.Errorf("%w: its header: %w", ErrDamaged, err)
	}
	if again, err := json.Marshal(h); err != nil || !bytes.Equal(again, text) {
		return Header{}, fmt.Errorf("%w: its header is not as it would be written", ErrDamaged)
	}
	if h.Index == 0 || h.Term == 0 || max(h.Index, h.Term, h.StateBytes) > 1<<62 || len(h.StateHash) != hashDigits || len(h.Server) > maxServer {
		return Header{}, fmt.Errorf("%w: its header makes no sense", ErrDamaged)
	}
	return h, nil
}

// cut is the error for a file that ends within one of its parts.
func cut(err error, part string, n, want int) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends after %d of the %d bytes of %s", ErrTruncated, n, want, part)
	}
	return err
}

// describes returns an error unless the header is that of s.
func (h Header) describes(s *core.State) error {
	want := about(s)
	want.Term, want.TakenAt, want.Server, want.StateBytes, want.StateHash = h.Term, h.TakenAt, h.Server, h.StateBytes, h.StateHash
	if h != want {
		return fmt.Errorf("%w: its header says %+v, and the state in it is %+v", ErrDamaged, h, want)
	}
	return nil
}
