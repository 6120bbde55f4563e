package backup

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/server/core"
)

var taken = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// backupOf is a file with a state.
func backupOf(t testing.TB, s *core.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := Write(&b, s, Info{Term: 4, TakenAt: taken, Server: "v1.2.3"}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func encoded(t testing.TB, s *core.State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A state with objects of every kind, and states of random histories, come
// back byte for byte.
func TestCasebookC76_WhatIsBackedUpComesBack(t *testing.T) {
	try := func(s *core.State) {
		t.Helper()
		file := backupOf(t, s)
		h, got, err := Read(iotest.OneByteReader(bytes.NewReader(file)))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(encoded(t, got), encoded(t, s)) || got.Hash() != s.Hash() {
			t.Fatal("another state came back")
		}
		if h.Index != s.Index() || h.Term != 4 || h.Revision != uint64(s.Revision()) || h.LastNumber != s.LastNumber() || h.Epoch != s.Epoch() ||
			!h.TakenAt.Equal(taken) || h.Server != "v1.2.3" || h.Domain != "d0000000000000000000000000000001" || h.Incarnation != "0000000000000007" {
			t.Fatalf("header %+v", h)
		}
	}
	w := everyKind(t)
	size := w.s.Size()
	if size.Sessions == 0 || size.Grants == 0 || size.Waits == 0 || size.Closed < 2 || size.Events == 0 {
		t.Fatalf("not every kind is there: %+v", size)
	}
	try(w.s)
	for seed := range uint64(20) {
		w := newService(t)
		w.churn(rand.New(rand.NewPCG(seed, 1)), 300)
		try(w.s)
	}
}

// Whatever byte is flipped, wherever the file is cut, and whatever follows it:
// it is refused by name.
func TestCasebookC76_DamagedBackupIsRefused(t *testing.T) {
	file := backupOf(t, everyKind(t).s)
	refused := func(what string, b []byte, want ...error) {
		t.Helper()
		_, s, err := Read(bytes.NewReader(b))
		for _, w := range want {
			if errors.Is(err, w) && s == nil {
				return
			}
		}
		t.Fatalf("%s: state %v, error %v", what, s != nil, err)
	}
	for n := range file {
		refused("cut", file[:n], ErrTruncated)
	}
	for i := range file {
		b := bytes.Clone(file)
		b[i] ^= 1 << (i % 8)
		switch {
		case i < len(magic):
			refused("magic flipped", b, ErrNotBackup)
		case i < len(magic)+4:
			refused("format flipped", b, ErrNewerFormat, ErrDamaged)
		case i < prefixLen:
			refused("length flipped", b, ErrDamaged, ErrTruncated)
		default:
			refused("flipped", b, ErrDamaged)
		}
	}
	refused("longer", append(bytes.Clone(file), 0), ErrDamaged)
	refused("twice", append(bytes.Clone(file), file...), ErrDamaged)
	refused("another file", []byte("PK\x03\x04 something else"), ErrNotBackup)
	newer := bytes.Clone(file)
	newer[len(magic)+3] = Format + 1
	refused("newer", newer, ErrNewerFormat)
	// A disk that fails is not a damaged backup.
	broken := errors.New("disk on fire")
	for _, n := range []int{0, 10, prefixLen + 5, len(file) / 2, len(file) - 5} {
		_, _, err := Read(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Fatalf("a read error after %d bytes: %v", n, err)
		}
	}
}

// A file whose checksums are right but whose header is another state's, or
// whose state breaks an invariant, is refused too.
func TestHeaderMustDescribeItsState(t *testing.T) {
	w := everyKind(t)
	file := backupOf(t, w.s)
	for _, change := range [][2]string{
		{`"epoch":0`, `"epoch":1`}, {`"last_number":"`, `"last_number":"1`}, {`"domain":"d0`, `"domain":"d1`},
		{fmt.Sprintf(`"cluster_version":%d`, core.SupportedVersion), `"cluster_version":1`}, {`"revision":"`, `"revision":"1`}, {`"index":"`, `"index":"1`},
		{`"taken_at"`, `"token_at"`}, {`{"domain"`, `{ "domain"`}, {`"state_hash":"`, `"state_hash":"0`},
	} {
		b := sealed(file, func(header string) string { return strings.Replace(header, change[0], change[1], 1) })
		if _, s, err := Read(bytes.NewReader(b)); !errors.Is(err, ErrDamaged) || s != nil {
			t.Errorf("%s became %s: %v", change[0], change[1], err)
		}
	}
	if _, _, err := Read(bytes.NewReader(sealed(file, func(h string) string { return h }))); err != nil {
		t.Fatalf("the test itself: %v", err)
	}
}

// sealed changes the header of a file and makes its checksums right.
func sealed(file []byte, change func(string) string) []byte {
	n := int(binary.BigEndian.Uint32(file[len(magic)+4:]))
	header := change(string(file[prefixLen : prefixLen+n]))
	b := append([]byte(nil), file[:len(magic)+4]...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(header)))
	b = append(b, header...)
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = append(b, file[prefixLen+n+crcLen:len(file)-sumLen]...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// A writer that fails is reported.
func TestWriteReportsItsWriter(t *testing.T) {
	s := everyKind(t).s
	whole := len(backupOf(t, s))
	full := errors.New("full")
	for n := 0; n < whole; n += 50 {
		if _, err := Write(&limited{n, full}, s, Info{Term: 1}); !errors.Is(err, full) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

type limited struct {
	left int
	err  error
}

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		return l.left, l.err
	}
	l.left -= len(p)
	return len(p), nil
}

// FuzzRead: no bytes make the reader panic, and what it accepts is exactly
// what a writer writes.
func FuzzRead(f *testing.F) {
	file := backupOf(f, everyKind(f).s)
	f.Add(file, false)
	f.Add(file, true)
	f.Add(backupOf(f, newServiceAtOne(f)), true)
	f.Add(file[:len(file)/2], true)
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal && len(b) > prefixLen+crcLen+sumLen {
			n := uint64(binary.BigEndian.Uint32(b[len(magic)+4:]))
			if uint64(len(b)) > uint64(prefixLen+crcLen+sumLen)+n {
				b = sealed(b, func(h string) string { return h })
			}
		}
		h, s, err := Read(bytes.NewReader(b))
		if err != nil {
			if s != nil {
				t.Fatal("a state with an error")
			}
			return
		}
		var again bytes.Buffer
		if _, err := Write(&again, s, Info{Term: h.Term, TakenAt: h.TakenAt, Server: h.Server}); err != nil || !bytes.Equal(again.Bytes(), b) {
			t.Fatalf("accepted what no writer writes: %v", err)
		}
	})
}

func newServiceAtOne(t testing.TB) *core.State {
	w := newService(t)
	w.apply()
	return w.s
}
