package peer

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// maxChunk is how much of a snapshot goes into one frame.
const maxChunk = 1 << 20

// sendSnapshot starts the transfer of a snapshot on a line of its own; false
// if one is under way to this member. The end is told by an event.
func (l *link) sendSnapshot(m Message) bool {
	if !l.sending.TryLock() {
		return false
	}
	l.p.mu.Lock()
	self, events, closed := l.p.mu.self, l.p.mu.events, l.p.mu.closed
	l.p.mu.Unlock()
	if closed {
		l.sending.Unlock()
		return false
	}
	l.p.running.Go(func() {
		began := time.Now()
		err := l.transfer(self, m)
		l.sending.Unlock()
		meta := m.Raft.GetSnapshot().GetMetadata()
		member := fmt.Sprintf("%016x", l.member.ID)
		if err != nil {
			l.p.snapshotsFailed.Add(1)
			// It may fail again and again: while the other end's disk is full.
			l.p.notes.warn(l.p.log, "snapshot to "+member, "a snapshot was not sent", "member", member, "name", l.member.Name, "reason", err.Error())
		} else {
			l.p.notes.forget("snapshot to " + member)
			l.p.snapshotsSent.Add(1)
			l.p.log.Info("a snapshot was sent", "member", member, "name", l.member.Name, "index", meta.GetIndex(),
				"bytes", len(m.Raft.GetSnapshot().GetData()), "took", time.Since(began).Round(time.Millisecond).String())
		}
		events.SnapshotSent(l.member.ID, err == nil)
	})
	return true
}

// transfer sends a snapshot and waits until the other end has it.
func (l *link) transfer(self Self, m Message) error {
	c, r, err := l.dial(self, snapshot)
	if err != nil {
		return err
	}
	defer l.p.let(raw(c))
	defer context.AfterFunc(l.ctx, func() { _ = c.Close() })()
	data := m.Raft.GetSnapshot().GetData()
	head, err := snapshotHead{group: m.Group, size: uint64(len(data)), sum: sha256.Sum256(data), raft: withoutData(m.Raft)}.encode()
	if err != nil {
		return err
	}
	write := func(frame []byte) error {
		_ = c.SetWriteDeadline(time.Now().Add(l.p.idle()))
		_, err := c.Write(frame)
		return err
	}
	var buf []byte
	err = write(appendFrame(buf, kindHead, head))
	for at := 0; at < len(data) && err == nil; at += maxChunk {
		offset := binary.BigEndian.AppendUint64(nil, uint64(at))
		buf = appendFrame(buf[:0], kindChunk, offset, data[at:min(at+maxChunk, len(data))])
		err = write(buf)
	}
	if err != nil {
		// The other end may have said why before it hung up.
		_ = c.SetReadDeadline(time.Now().Add(time.Second))
	} else {
		// It verifies and syncs now, which takes as long as its disk does.
		_ = c.SetReadDeadline(time.Now().Add(10 * l.p.idle()))
	}
	k, body, rerr := readFrame(r, maxControl)
	if rerr != nil || k != kindTaken {
		if err == nil {
			err = fmt.Errorf("no answer to the snapshot: %w", rerr)
		}
		return err
	}
	why := &Refusal{}
	if err := decode(body, why); err != nil {
		return err
	}
	if why.Code != "" || why.Text != "" {
		return fmt.Errorf("not taken: %w", why)
	}
	return err
}

// withoutData is a snapshot's message with all but the data. The original is
// shared and stays as it is.
func withoutData(m *raftpb.Message) *raftpb.Message {
	bare := &raftpb.Message{
		Type: m.Type, To: m.To, From: m.From, Term: m.Term, LogTerm: m.LogTerm, Index: m.Index,
		Commit: m.Commit, Vote: m.Vote, Reject: m.Reject, RejectHint: m.RejectHint, Context: m.Context,
	}
	bare.Snapshot = &raftpb.Snapshot{Metadata: proto.CloneOf(m.GetSnapshot().GetMetadata())}
	return bare
}
