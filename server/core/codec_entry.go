package core

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// The encoding of an entry: "HE", the format's version, the header, the number
// of commands, each as its kind and its body with the body's length before it,
// and a CRC-32C of all that in four bytes, low byte first.
const (
	entryMagic  = "HE"
	entryFormat = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The kinds of commands, as the log has them. Never change one.
const (
	kindOpen = iota + 1
	kindEnd
	kindSuspect
	kindClear
	kindExpire
	kindAcquire
	kindCancel
	kindRelease
	kindRevoke
	kindReopen
	kindPut
	kindDelete
	kindTick
	kindRaiseEpoch
	kindSetVersion
	kindMembers
	kindAudit
)

// kindOf returns the kind of a command; 0 for one that this code does not
// know.
func kindOf(c Command) uint64 {
	switch c.(type) {
	case Open:
		return kindOpen
	case End:
		return kindEnd
	case Suspect:
		return kindSuspect
	case Clear:
		return kindClear
	case Expire:
		return kindExpire
	case Acquire:
		return kindAcquire
	case Cancel:
		return kindCancel
	case Release:
		return kindRelease
	case Revoke:
		return kindRevoke
	case Reopen:
		return kindReopen
	case Put:
		return kindPut
	case Delete:
		return kindDelete
	case Tick:
		return kindTick
	case RaiseEpoch:
		return kindRaiseEpoch
	case SetVersion:
		return kindSetVersion
	case Members:
		return kindMembers
	case Audit:
		return kindAudit
	}
	return 0
}

// EncodeEntry returns the bytes of an entry for the log. It refuses commands
// that this package does not know, and checks nothing else: a command with bad
// fields is refused by name when it is applied.
func EncodeEntry(h Header, cmds []Command) ([]byte, error) {
	x := &codec{writing: true, buf: make([]byte, 0, 64+96*len(cmds))}
	x.buf = append(x.buf, entryMagic...)
	x.buf = append(x.buf, entryFormat)
	x.signed((*int64)(&h.Clock))
	x.count(len(cmds), math.MaxInt32, "commands")
	body := &codec{writing: true}
	for _, c := range cmds {
		kind := kindOf(c)
		if kind == 0 {
			return nil, &HaltError{Kind: ErrUnknownCommand, Msg: fmt.Sprintf("%T cannot be written", c)}
		}
		x.u64(&kind)
		body.buf = body.buf[:0]
		body.command(kind, &c)
		x.raw(&body.buf, math.MaxInt32, "command")
	}
	if x.err != nil {
		return nil, x.err
	}
	return binary.LittleEndian.AppendUint32(x.buf, crc32.Checksum(x.buf, castagnoli)), nil
}

// DecodeEntry is the inverse of [EncodeEntry]; index and term are raft's. It
// keeps no part of data. Raft's own entries, empty or of a membership change,
// are no entries of ours and are not given to it (D9). Every error is a *[HaltError]: a replica that cannot
// read its log must not go on.
func DecodeEntry(index, term uint64, data []byte) (Entry, error) {
	e := Entry{Index: index, Term: term}
	err := decodeEntry(&e, data)
	if err == nil {
		return e, nil
	}
	err.Index = index
	return Entry{}, err
}

func decodeEntry(e *Entry, data []byte) *HaltError {
	if len(data) < len(entryMagic)+1+4 || string(data[:len(entryMagic)]) != entryMagic {
		return &HaltError{Kind: ErrCorrupt, Msg: fmt.Sprintf("%d bytes that are no entry", len(data))}
	}
	if v := data[len(entryMagic)]; v > entryFormat {
		return &HaltError{Kind: ErrNewerFormat, Msg: fmt.Sprintf("entry format %d: this binary reads %d; start a newer one", v, entryFormat)}
	} else if v == 0 {
		return &HaltError{Kind: ErrCorrupt, Msg: "entry format 0 does not exist"}
	}
	body, sum := data[:len(data)-4], binary.LittleEndian.Uint32(data[len(data)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return &HaltError{Kind: ErrCorrupt, Msg: fmt.Sprintf("checksum is %08x, want %08x", got, sum)}
	}
	x := &codec{buf: body, pos: len(entryMagic) + 1, what: "header"}
	x.signed((*int64)(&e.Header.Clock))
	n := x.count(0, len(body), "commands")
	for i := 0; i < n && x.err == nil; i++ {
		x.what, x.nth = "command", i+1
		if c := x.readCommand(); x.err == nil {
			e.Commands = append(e.Commands, c)
		}
	}
	if x.err == nil && x.pos != len(body) {
		x.corrupt("%d bytes too many", len(body)-x.pos)
	}
	if x.err != nil {
		return x.err.(*HaltError)
	}
	return nil
}

// readCommand reads one command, whose body ends where its length says.
func (x *codec) readCommand() (c Command) {
	var kind uint64
	var body []byte
	x.u64(&kind)
	x.raw(&body, len(x.buf), "body")
	if x.err != nil {
		return nil
	}
	whole, end := x.buf, x.pos
	x.buf, x.pos = x.buf[:end], end-len(body)
	if !x.command(kind, &c) {
		x.fail(ErrUnknownCommand, "kind %d: this binary knows up to %d; start a newer one", kind, kindAudit)
	}
	if x.err == nil && x.pos != end {
		x.corrupt("%d bytes too many", end-x.pos)
	}
	x.buf = whole
	return c
}

// command is the body of a command of a kind; it returns false for a kind that
// this code does not know.
func (x *codec) command(kind uint64, c *Command) bool {
	switch kind {
	case kindOpen:
		pass(x, c, (*codec).open)
	case kindEnd:
		pass(x, c, (*codec).end)
	case kindSuspect:
		pass(x, c, (*codec).suspect)
	case kindClear:
		pass(x, c, (*codec).clear)
	case kindExpire:
		pass(x, c, (*codec).expire)
	case kindAcquire:
		pass(x, c, (*codec).acquire)
	case kindCancel:
		pass(x, c, (*codec).cancel)
	case kindRelease:
		pass(x, c, (*codec).release)
	case kindRevoke:
		pass(x, c, (*codec).revoke)
	case kindReopen:
		pass(x, c, (*codec).reopen)
	case kindPut:
		pass(x, c, (*codec).put)
	case kindDelete:
		pass(x, c, (*codec).delete)
	case kindTick:
		pass(x, c, func(*codec, *Tick) {})
	case kindRaiseEpoch:
		pass(x, c, (*codec).raiseEpoch)
	case kindSetVersion:
		pass(x, c, (*codec).setVersion)
	case kindMembers:
		pass(x, c, (*codec).membersCommand)
	case kindAudit:
		pass(x, c, (*codec).auditCommand)
	default:
		return false
	}
	return true
}

// pass writes *c, or reads it, as a C.
func pass[C Command](x *codec, c *Command, fields func(*codec, *C)) {
	var v C
	if x.writing {
		v = (*c).(C)
	}
	fields(x, &v)
	if !x.writing {
		*c = v
	}
}
