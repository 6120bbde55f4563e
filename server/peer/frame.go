package peer

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// MaxFrame is how long a frame's kind and body may be together.
const MaxFrame = 4 << 20

// maxControl is the same for frames of JSON, and for everything that comes
// before a handshake.
const maxControl = 256 << 10

// kind says what a frame's body is.
type kind byte

// The kinds. Numbers are never used again for something else.
const (
	kindAsk     kind = 1  // JSON, a Question
	kindTell    kind = 2  // JSON, its Answer
	kindHello   kind = 3  // JSON, a Hello
	kindWelcome kind = 4  // JSON, a Welcome
	kindRefusal kind = 5  // JSON, a Refusal
	kindMessage kind = 6  // group, raft message
	kindPing    kind = 7  // flags, number
	kindPong    kind = 8  // flags, number
	kindHead    kind = 9  // of a snapshot: group, size, SHA-256, raft message without data
	kindChunk   kind = 10 // of a snapshot: offset, data
	kindTaken   kind = 11 // JSON, a Refusal with an empty code if the snapshot was taken
	kindFacts   kind = 12 // JSON, what the sender says of itself as Facts
)

// ErrFrame is wrapped by the errors of a frame that is not well formed: the
// line cannot be read any further.
var ErrFrame = errors.New("malformed frame")

// headerLen is the length of what stands before a frame: the length of kind
// and body, and their CRC-32C.
const headerLen = 8

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends a frame whose body is the parts one after the other.
func appendFrame(b []byte, k kind, parts ...[]byte) []byte {
	n := 1
	for _, p := range parts {
		n += len(p)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	at := len(b)
	b = append(b, 0, 0, 0, 0, byte(k))
	for _, p := range parts {
		b = append(b, p...)
	}
	binary.BigEndian.PutUint32(b[at:], crc32.Checksum(b[at+4:], castagnoli))
	return b
}

// readFrame reads one frame of at most so many bytes. The body is the
// caller's. The end of the line between two frames is io.EOF.
func readFrame(r *bufio.Reader, most int) (kind, []byte, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || uint64(n) > uint64(most) {
		return 0, nil, fmt.Errorf("%w: it has %d bytes: want 1 … %d", ErrFrame, n, most)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	if crc32.Checksum(b, castagnoli) != binary.BigEndian.Uint32(head[4:]) {
		return 0, nil, fmt.Errorf("%w: it fails its checksum", ErrFrame)
	}
	return kind(b[0]), b[1:], nil
}
