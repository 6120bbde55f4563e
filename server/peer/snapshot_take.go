package peer

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// take receives one snapshot (D6): into a temporary file, which is verified,
// synced and renamed before the message is handed over, and removed after
// that, for the log keeps a copy of its own.
func (p *Port) take(c net.Conn, r *bufio.Reader, h Hello, self Self, events Events) {
	var err error
	if p.taking.TryLock() {
		err = p.takeSnapshot(c, r, h, self, events)
		p.taking.Unlock()
	} else {
		err = refuse(ErrBusy, "another snapshot is being received")
	}
	out := &Refusal{}
	if err != nil {
		if p.ctx.Err() == nil {
			p.log.Warn("a snapshot was not received", "member", fmt.Sprintf("%016x", h.From), "name", h.Name, "reason", err.Error())
		}
		out = &Refusal{Code: "failed", Text: err.Error()}
	}
	_ = c.SetWriteDeadline(time.Now().Add(p.silence()))
	_, _ = c.Write(appendFrame(nil, kindTaken, encode(out)))
}

func (p *Port) takeSnapshot(c net.Conn, r *bufio.Reader, h Hello, self Self, events Events) error {
	_ = c.SetReadDeadline(time.Now().Add(p.idle()))
	k, body, err := readFrame(r, MaxFrame)
	if err == nil && k != kindHead {
		err = fmt.Errorf("%w: kind %d in place of a snapshot's head", ErrFrame, k)
	}
	if err != nil {
		return err
	}
	head, err := decodeHead(body)
	if err != nil {
		return err
	}
	if head.group != h.Group || head.raft.GetFrom() != h.From || head.raft.GetTo() != self.ID {
		return fmt.Errorf("%w: a snapshot from %016x to %016x of group %d", ErrFrame, head.raft.GetFrom(), head.raft.GetTo(), head.group)
	}
	if p.cfg.Dir == "" {
		return errors.New("no directory for snapshots")
	}
	path, err := p.receiveFile(c, r, h, head)
	if path != "" {
		defer os.Remove(path)
	}
	if err != nil {
		return err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if uint64(len(data)) != head.size || sha256.Sum256(data) != head.sum {
		return fmt.Errorf("%s reads differently than it was written", path)
	}
	head.raft.Snapshot.Data = data
	events.Receive(Message{Group: head.group, Raft: head.raft})
	p.snapshotsTaken.Add(1)
	p.log.Info("a snapshot was received", "member", fmt.Sprintf("%016x", h.From), "name", h.Name, "index", head.raft.GetSnapshot().GetMetadata().GetIndex(), "bytes", len(data))
	return nil
}

// receiveFile writes the chunks to a file, and returns its path once it is
// complete, verified and durable.
func (p *Port) receiveFile(c net.Conn, r *bufio.Reader, h Hello, head snapshotHead) (string, error) {
	// What a process that died left behind goes first. Nobody else writes here.
	if err := os.RemoveAll(p.cfg.Dir); err != nil {
		return "", err
	}
	if err := os.MkdirAll(p.cfg.Dir, 0o700); err != nil {
		return "", err
	}
	meta := head.raft.GetSnapshot().GetMetadata()
	path := filepath.Join(p.cfg.Dir, fmt.Sprintf("%016x-%016x-%016x.snap", h.From, meta.GetTerm(), meta.GetIndex()))
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	err = p.receiveChunks(c, r, f, head)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		err = syncDir(p.cfg.Dir)
	}
	if err != nil {
		_ = os.Remove(part)
		return "", err
	}
	return path, nil
}

func (p *Port) receiveChunks(c net.Conn, r *bufio.Reader, f *os.File, head snapshotHead) error {
	sum := sha256.New()
	for at := uint64(0); at < head.size; {
		_ = c.SetReadDeadline(time.Now().Add(p.idle()))
		k, body, err := readFrame(r, MaxFrame)
		switch {
		case err != nil:
			return fmt.Errorf("after %d of %d bytes: %w", at, head.size, err)
		case k != kindChunk || len(body) < 9 || len(body) > 8+maxChunk:
			return fmt.Errorf("%w: kind %d with %d bytes in place of a chunk", ErrFrame, k, len(body))
		case binary.BigEndian.Uint64(body) != at || uint64(len(body)-8) > head.size-at:
			return fmt.Errorf("%w: a chunk at %d in place of %d", ErrFrame, binary.BigEndian.Uint64(body), at)
		}
		if _, err := f.Write(body[8:]); err != nil {
			return err
		}
		sum.Write(body[8:])
		at += uint64(len(body) - 8)
	}
	if [32]byte(sum.Sum(nil)) != head.sum {
		return fmt.Errorf("%w: the snapshot fails its checksum", ErrFrame)
	}
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
