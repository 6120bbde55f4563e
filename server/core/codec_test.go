package core

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

var rewriteGolden = flag.Bool("rewrite-golden", false, "write testdata/*.golden anew: only for a new format")

// sampleCommands has every command, with every field set somewhere.
func sampleCommands() []Command {
	return []Command{
		Open{ID: 1, SecretHash: testSecret("1"), Instance: [16]byte{9}, TTL: 10 * time.Second, Label: "billing", Host: "db7"},
		Open{ID: 1<<63 - 1, SecretHash: testSecret("2"), TTL: MaxTTL},
		Open{ID: 3, SecretHash: testSecret("3"), TTL: MinTTL},
		Acquire{Session: 1, Request: Request{0, 1}, Lock: "a", Value: []byte("v"), LockDelay: 5 * time.Second, MaxHold: time.Minute},
		Acquire{Session: 3, Request: Request{4294967295, 1 << 40}, Lock: "a", Shared: true, Value: []byte{}},
		Acquire{Session: 3, Request: Request{1, 1}, Lock: "a", Try: true},
		Acquire{Session: 3, Request: Request{2, 1}, Lock: "pool/é", Limit: 3, OncePer: time.Hour, RetryFailed: true},
		Acquire{Session: 3, Request: Request{3, 1}, Lock: "job", OncePer: time.Hour},
		Cancel{Session: 3, Request: Request{4, 1}},
		Release{Session: 3, Grant: 2, Failed: true},
		Acquire{Session: 3, Request: Request{5, 1}, Lock: "gone", LockDelay: time.Second},
		Revoke{Lock: "gone", Grant: 4, Now: true, Cause: ByMaxHold, By: "ann"},
		Revoke{Lock: "a", Grant: 1, Cause: ByOperator, By: "bob"},
		Revoke{Lock: "a", Grant: 1, Free: true, Cause: 200},
		Reopen{Lock: "job", Closing: 99},
		Put{Session: 3, Request: Request{6, 1}, Lock: "here", Value: []byte("10.0.0.1"), Bind: true},
		Put{Lock: "cfg", Value: nil, Conditional: true, IfRevision: 7, Token: 1},
		Put{Lock: "cfg", Value: []byte("x")},
		Delete{Session: 3, Request: Request{7, 1}, Lock: "none", Conditional: true, IfRevision: 1, Token: 8},
		Suspect{Since: Clock(time.Second), Sessions: []SessionID{1, 3}},
		Clear{Sessions: []SessionID{3, 77}},
		Expire{ID: 3, Since: -5},
		Tick{},
		SetVersion{Version: 1},
		Members{Members: []Member{{ID: 2, Name: "n2", ClientAddr: "c:1", PeerAddr: "p:1", Learner: true}, {ID: 1}}, Removed: []uint64{9, 8}},
		End{ID: 2, Operator: true, By: "ann"},
	}
}

// sampleState has something of everything.
func sampleState(t testing.TB) *State {
	s := testState()
	mustApply(t, s, Clock(3*time.Second), sampleCommands()...)
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	return s
}

func encoded(t testing.TB, s *State) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestEntryRoundTrip(t *testing.T) {
	for _, cmds := range [][]Command{nil, {Tick{}}, auditCommands(), append(sampleCommands(), RaiseEpoch{Epoch: 65535, Incarnation: 1 << 63, NewDomain: [16]byte{1}})} {
		h := Header{Clock: Clock(7 * time.Second)}
		data, err := EncodeEntry(h, cmds)
		if err != nil {
			t.Fatal(err)
		}
		e, err := DecodeEntry(12, 3, data)
		if err != nil {
			t.Fatal(err)
		}
		if want := (Entry{Index: 12, Term: 3, Header: h, Commands: cmds}); !reflect.DeepEqual(e, want) {
			t.Errorf("got\n%+v\nwant\n%+v", e, want)
		}
	}
}

// TestEntryCarriesBadFields: a command with bad fields is refused by name when
// it is applied, not lost on the way.
func TestEntryCarriesBadFields(t *testing.T) {
	s := testState()
	long := strings.Repeat("x", 100_000)
	a := mustApply(t, s, -1, Open{ID: 1, SecretHash: testSecret("1"), TTL: -1}, Open{ID: 1, SecretHash: testSecret("1"), TTL: MinTTL, Label: long},
		Open{ID: 2, SecretHash: testSecret("2"), TTL: MinTTL},
		Acquire{Session: 2, Request: Request{0, 1}, Lock: long, Value: []byte(long)}, Acquire{Session: 2, Request: Request{0, 2}, Lock: "\xff"})
	for i, r := range a.Results {
		if i != 2 && (r.Status != Refused || r.Refusal.Reason != Malformed) {
			t.Errorf("result %d is %s", i, formatResult(r))
		}
	}
}

// alien is a command of another time.
type alien struct{ Tick }

func TestUnknownCommandHalts(t *testing.T) {
	s := testState()
	if VersionOf(alien{}) != 0 || VersionOf(Tick{}) != 1 {
		t.Error("VersionOf does not know what it knows")
	}
	for _, c := range []Command{alien{}, &Tick{}, nil} {
		before := s.Hash()
		_, err := s.Apply(Entry{Index: 1, Commands: []Command{Open{ID: 1, SecretHash: testSecret("1"), TTL: MinTTL}, c}})
		if halt, ok := errors.AsType[*HaltError](err); !ok || !errors.Is(err, ErrUnknownCommand) || halt.Index != 1 {
			t.Errorf("Apply of %T: %v", c, err)
		}
		if s.Hash() != before {
			t.Errorf("%T was found after something had been applied", c)
		}
		if _, err := EncodeEntry(Header{}, []Command{c}); !errors.Is(err, ErrUnknownCommand) {
			t.Errorf("EncodeEntry of %T: %v", c, err)
		}
	}
	body := append([]byte(entryMagic), entryFormat, 0, 1, kindAudit+1, 0)
	if _, err := DecodeEntry(5, 1, sealEntry(body)); !errors.Is(err, ErrUnknownCommand) {
		t.Errorf("unknown kind: %v", err)
	}
	newer := append([]byte(entryMagic), entryFormat+1, 0, 0)
	if _, err := DecodeEntry(5, 1, sealEntry(newer)); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("newer entry format: %v", err)
	}
}

// TestIndexRises: an entry that comes twice or too late halts the replica.
func TestIndexRises(t *testing.T) {
	s := testState()
	if _, err := s.Apply(Entry{Index: 5}); err != nil || s.Index() != 5 {
		t.Fatalf("gap: index %d, %v", s.Index(), err)
	}
	for _, index := range []uint64{0, 4, 5} {
		if _, err := s.Apply(Entry{Index: index}); !errors.Is(err, ErrOutOfOrder) {
			t.Errorf("index %d after 5: %v", index, err)
		}
	}
}

func sealEntry(body []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
}

func sealState(body []byte) []byte {
	sum := sha256.Sum256(body)
	return append(bytes.Clone(body), sum[:]...)
}

// TestEntryDamage: no damaged entry is read as one, whether or not its
// checksum is right for the damage.
func TestEntryDamage(t *testing.T) {
	good, err := EncodeEntry(Header{Clock: 1}, sampleCommands())
	if err != nil {
		t.Fatal(err)
	}
	body := good[:len(good)-4]
	for i := range good {
		if _, err := DecodeEntry(1, 1, good[:i]); err == nil {
			t.Errorf("cut at %d: no error", i)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x40
		if _, err := DecodeEntry(1, 1, bad); err == nil {
			t.Errorf("bit of byte %d turned: no error", i)
		}
		if i < len(body) {
			if _, err := DecodeEntry(1, 1, sealEntry(body[:i])); err == nil {
				t.Errorf("cut at %d and sealed: no error", i)
			}
		}
	}
	if _, err := DecodeEntry(1, 1, sealEntry(append(bytes.Clone(body), 0))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
}

func TestStateRoundTrip(t *testing.T) {
	roundTrip(t, sampleState(t))
	roundTrip(t, auditedState(t))
}

func roundTrip(t *testing.T, s *State) {
	t.Helper()
	data := encoded(t, s)
	back, err := Decode(iotest.OneByteReader(bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(encoded(t, back), data) {
		t.Error("the encoding of the decoded state differs")
	}
	if h := s.Hash(); !bytes.Equal(h[:], data[len(data)-32:]) {
		t.Error("the hash is not the checksum")
	}
}

// TestStateDamage: no damaged state is read as one; when the checksum is
// right for the damage, either something is named, or it is a valid state
// with exactly this encoding.
func TestStateDamage(t *testing.T) {
	stateDamage(t, encoded(t, sampleState(t)))
	stateDamage(t, encoded(t, auditedState(t)))
}

func stateDamage(t *testing.T, good []byte) {
	body := good[:len(good)-32]
	for i := range good {
		if _, err := Decode(bytes.NewReader(good[:i])); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut at %d: %v", i, err)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 0x04
		if _, err := Decode(bytes.NewReader(bad)); err == nil {
			t.Errorf("bit of byte %d turned: no error", i)
		}
		if i >= len(body) {
			continue
		}
		if _, err := Decode(bytes.NewReader(sealState(body[:i]))); err == nil {
			t.Errorf("cut at %d and sealed: no error", i)
		}
		for _, bit := range []byte{0x01, 0x04, 0x80} {
			bad := bytes.Clone(body)
			bad[i] ^= bit
			bad = sealState(bad)
			if s, err := Decode(bytes.NewReader(bad)); err == nil && !bytes.Equal(encoded(t, s), bad) {
				t.Errorf("bit %x of byte %d turned and sealed: read as another state", bit, i)
			}
		}
	}
	if _, err := Decode(bytes.NewReader(append(bytes.Clone(good), 0))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	newer := bytes.Clone(body)
	newer[len(stateMagic)] = stateFormat + 1
	if _, err := Decode(bytes.NewReader(sealState(newer))); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("newer format: %v", err)
	}
	broken := errors.New("disk")
	if _, err := Decode(io.MultiReader(bytes.NewReader(good[:40]), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("reader's error: %v", err)
	}
	if _, err := Decode(iotest.ErrReader(nil)); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("reader that gives nothing: %v", err)
	}
}

// TestFalseCounts: a length or count that lies costs no memory.
func TestFalseCounts(t *testing.T) {
	huge := binary.AppendUvarint(nil, 1<<31-1)
	head := append([]byte(entryMagic), entryFormat, 0)
	for _, body := range [][]byte{
		append(bytes.Clone(head), huge...), // commands
		append(append(bytes.Clone(head), 1, kindClear), append([]byte{5}, huge...)...),
		append(append(bytes.Clone(head), 1, kindClear), huge...),
	} {
		allocated := testing.AllocsPerRun(1, func() {
			if _, err := DecodeEntry(1, 1, sealEntry(body)); err == nil {
				t.Errorf("% x: no error", body)
			}
		})
		if allocated > 100 {
			t.Errorf("% x: %v allocations", body, allocated)
		}
	}
}

// failingWriter takes some bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

func TestEncodeTellsTheWritersError(t *testing.T) {
	s := sampleState(t)
	for _, left := range []int{0, len(encoded(t, s)) - 10} {
		if err := s.Encode(&failingWriter{left}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("writer for %d bytes: %v", left, err)
		}
	}
}

// TestGolden: what this format's first binary wrote is read for ever, and
// written the same.
func TestGolden(t *testing.T) {
	entry, err := EncodeEntry(Header{Clock: 1}, sampleCommands())
	if err != nil {
		t.Fatal(err)
	}
	audit, err := EncodeEntry(Header{Clock: 1}, auditCommands())
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"entry_v1": entry, "state_v1": encoded(t, sampleState(t)),
		"entry_v1_audit": audit, "state_v2": encoded(t, auditedState(t)),
	} {
		path := filepath.Join("testdata", name+".golden")
		if *rewriteGolden {
			if err := os.WriteFile(path, []byte(hexLines(data)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := hex.DecodeString(strings.ReplaceAll(string(text), "\n", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, want) {
			t.Errorf("%s: written otherwise than before; a change of format needs a new version of it", name)
		}
	}
}

func hexLines(data []byte) string {
	var b strings.Builder
	for len(data) > 0 {
		n := min(40, len(data))
		fmt.Fprintf(&b, "%x\n", data[:n])
		data = data[n:]
	}
	return b.String()
}

// FuzzDecodeEntry: whatever the bytes are, decoding does not panic, and what
// it accepts has exactly these bytes as its encoding.
func FuzzDecodeEntry(f *testing.F) {
	good, err := EncodeEntry(Header{Clock: 1}, sampleCommands())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:len(good)-4])
	f.Add([]byte(entryMagic + "\x01\x00\x00"))
	f.Add([]byte(entryMagic + "\x02"))
	f.Add([]byte(entryMagic + "\x01\x00\x01\x0d\x00"))
	for _, c := range sampleCommands() {
		data, err := EncodeEntry(Header{}, []Command{c})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := DecodeEntry(1, 1, body); err == nil {
			t.Log("a right checksum, by chance or from the corpus")
		}
		data := sealEntry(body)
		e, err := DecodeEntry(1, 1, data)
		if err != nil {
			if _, ok := errors.AsType[*HaltError](err); !ok {
				t.Fatalf("not a HaltError: %v", err)
			}
			return
		}
		again, err := EncodeEntry(e.Header, e.Commands)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("not canonical: %v\n% x\n% x", err, data, again)
		}
		s := testState()
		if _, err := s.Apply(e); err != nil && !errors.Is(err, ErrNewerFormat) {
			t.Fatalf("%v", err)
		}
		if err := s.Check(); err != nil {
			t.Fatalf("%v", err)
		}
	})
}

// FuzzDecodeState: whatever the bytes are, decoding does not panic, and what
// it accepts is a valid state with exactly this encoding, and can go on.
func FuzzDecodeState(f *testing.F) {
	for _, s := range []*State{testState(), sampleState(f)} {
		data := encoded(f, s)
		f.Add(data[:len(data)-32])
	}
	f.Add([]byte(stateMagic + "\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		data := sealState(body)
		s, err := Decode(bytes.NewReader(data))
		if err != nil {
			if _, ok := errors.AsType[*HaltError](err); !ok {
				t.Fatalf("not a HaltError: %v", err)
			}
			return
		}
		if !bytes.Equal(encoded(t, s), data) {
			t.Fatal("not canonical")
		}
		for _, c := range sampleCommands() {
			if s.Index() == 1<<64-1 {
				return
			}
			if _, err := s.Apply(Entry{Index: s.Index() + 1, Commands: []Command{c}}); err != nil {
				t.Fatalf("%#v: %v", c, err)
			}
			if err := s.Check(); err != nil {
				t.Fatalf("%#v: %v", c, err)
			}
		}
	})
}
