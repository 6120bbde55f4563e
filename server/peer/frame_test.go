package peer

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

func TestFrames(t *testing.T) {
	var b []byte
	b = appendFrame(b, kindPing, []byte("123456789"))
	b = appendFrame(b, kindHello)
	b = appendFrame(b, kindChunk, []byte("ab"), nil, []byte("cd"))
	r := bufio.NewReader(bytes.NewReader(b))
	for _, want := range []struct {
		k    kind
		body string
	}{{kindPing, "123456789"}, {kindHello, ""}, {kindChunk, "abcd"}} {
		k, body, err := readFrame(r, 100)
		if err != nil || k != want.k || string(body) != want.body {
			t.Fatalf("kind %d, %q, %v; want %d, %q", k, body, err, want.k, want.body)
		}
	}
	if _, _, err := readFrame(r, 100); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	// Every flipped bit is found, and every cut.
	one := appendFrame(nil, kindChunk, []byte("some bytes"))
	for i := range len(one) * 8 {
		bad := bytes.Clone(one)
		bad[i/8] ^= 1 << (i % 8)
		if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(bad)), 100); err == nil {
			t.Fatalf("bit %d flipped, and nobody saw it", i)
		}
	}
	for i := range one {
		if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(one[:i])), 100); err == nil {
			t.Fatalf("cut at %d, and nobody saw it", i)
		}
	}
	long := appendFrame(nil, kindChunk, make([]byte, 100))
	if _, _, err := readFrame(bufio.NewReader(bytes.NewReader(long)), 100); !errors.Is(err, ErrFrame) {
		t.Errorf("too long: %v", err)
	}
}

// FuzzFrames: whatever comes, decoding ends, takes no more than there is, and
// what it accepts is what was written.
func FuzzFrames(f *testing.F) {
	m, err := appendMessage(nil, message(1, 2, raftpb.MsgApp, 3, []byte("entry")))
	if err != nil {
		f.Fatal(err)
	}
	s := snap(1, 2, 5, []byte("data")).Raft
	head, err := snapshotHead{group: 1, size: 4, raft: withoutData(s)}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m)
	f.Add(appendFrame(nil, kindHead, head))
	f.Add(appendFrame(nil, kindHello, encode(Self{ID: 1}.hello(bulk, 2))))
	f.Add(appendFrame(appendFrame(nil, kindAsk, encode(Question{Plan: &Plan{Members: []Facts{{ID: 1}}}})), kindRefusal, []byte(`{"code":"removed"}`)))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		var out []byte
		for {
			k, body, err := readFrame(r, MaxFrame)
			if err != nil {
				break
			}
			out = appendFrame(out, k, body)
			switch k {
			case kindMessage:
				if m, err := decodeMessage(body); err == nil {
					large(m.Raft)
					if again, err := appendMessage(nil, m); err != nil || len(again) == 0 {
						t.Fatalf("cannot be written again: %v", err)
					}
				}
			case kindHead:
				if h, err := decodeHead(body); err == nil {
					if again, err := h.encode(); err != nil || len(again) == 0 {
						t.Fatalf("cannot be written again: %v", err)
					}
				}
			case kindHello:
				var h Hello
				if decode(body, &h) == nil {
					_ = Self{ID: 2, Group: 1, Incarnation: 1}.check(h, []uint64{3})
				}
			case kindAsk:
				var q Question
				_ = decode(body, &q)
			}
		}
		if !bytes.HasPrefix(in, out) {
			t.Fatalf("%x was read as %x", in, out)
		}
	})
}
