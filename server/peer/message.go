package peer

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A Message is a raft message of one group.
type Message struct {
	Group uint64
	Raft  *raftpb.Message
}

// appendMessage appends a message's frame.
func appendMessage(b []byte, m Message) ([]byte, error) {
	body, err := proto.Marshal(m.Raft)
	if err != nil {
		return b, err
	}
	if len(body)+9 > MaxFrame {
		return b, fmt.Errorf("a %v of %d bytes does not fit into a frame of %d", m.Raft.GetType(), len(body), MaxFrame)
	}
	return appendFrame(b, kindMessage, binary.BigEndian.AppendUint64(nil, m.Group), body), nil
}

// decodeMessage reads the body of a message's frame.
func decodeMessage(b []byte) (Message, error) {
	if len(b) < 8 {
		return Message{}, fmt.Errorf("%w: a message of %d bytes", ErrFrame, len(b))
	}
	m := Message{Group: binary.BigEndian.Uint64(b), Raft: &raftpb.Message{}}
	if err := proto.Unmarshal(b[8:], m.Raft); err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return m, nil
}

// large reports whether a message goes by the bulk line.
func large(m *raftpb.Message) bool {
	return m.GetType() == raftpb.MsgApp && len(m.GetEntries()) > 0
}

// weight is about how many bytes a message takes.
func weight(m *raftpb.Message) int {
	n := 64 + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += 32 + len(e.GetData())
	}
	return n
}

// snapshotHead is what stands before a snapshot's chunks.
type snapshotHead struct {
	group uint64
	size  uint64
	sum   [32]byte
	raft  *raftpb.Message // without its data
}

func (h snapshotHead) encode() ([]byte, error) {
	body, err := proto.Marshal(h.raft)
	if err != nil {
		return nil, err
	}
	b := binary.BigEndian.AppendUint64(nil, h.group)
	b = binary.BigEndian.AppendUint64(b, h.size)
	b = append(b, h.sum[:]...)
	return append(b, body...), nil
}

func decodeHead(b []byte) (snapshotHead, error) {
	const fixed = 8 + 8 + 32
	if len(b) < fixed {
		return snapshotHead{}, fmt.Errorf("%w: a snapshot's head of %d bytes", ErrFrame, len(b))
	}
	h := snapshotHead{group: binary.BigEndian.Uint64(b), size: binary.BigEndian.Uint64(b[8:]), raft: &raftpb.Message{}}
	copy(h.sum[:], b[16:])
	if err := proto.Unmarshal(b[fixed:], h.raft); err != nil {
		return snapshotHead{}, fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if h.raft.GetType() != raftpb.MsgSnap || h.raft.GetSnapshot().GetMetadata().GetIndex() == 0 || len(h.raft.GetSnapshot().GetData()) > 0 {
		return snapshotHead{}, fmt.Errorf("%w: a snapshot's head with a %v", ErrFrame, h.raft.GetType())
	}
	return h, nil
}
