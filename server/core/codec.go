package core

import (
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math"
	"time"
	"unicode/utf8"
)

// The encodings of entries and of states are canonical: one value has one
// encoding, and a decoder accepts no other. Each type has one method on codec
// that names its fields once; in one mode it writes them, in the other it
// reads them, so that the two cannot drift apart. Writing, a method changes
// nothing that its argument points to: it may be shared with other readers.
//
// A reader takes no length and no count at its word: it never allocates more
// than a small multiple of the bytes it was really given.

// codec writes to or reads from buf.
type codec struct {
	writing bool
	format  uint8 // of a state
	buf     []byte
	pos     int       // reading: of the next byte in buf
	sum     hash.Hash // of all before the checksum; nil for entries
	summed  int       // of buf, bytes that sum has seen
	to      io.Writer // writing: where full buffers go; nil to keep all
	from    io.Reader // reading: where more bytes come from; nil for none
	what    string    // reading: what is read, for errors
	nth     int       // reading: which of these, from 1; 0 for none
	err     error     // the first; everything after it does nothing
}

// flushAt is the size of a buffer that is written out, and of one read.
const flushAt = 64 << 10

// fail notes the first error.
func (x *codec) fail(kind error, format string, args ...any) {
	if x.err != nil {
		return
	}
	msg := fmt.Sprintf(format, args...)
	switch {
	case x.nth > 0:
		msg = fmt.Sprintf("%s %d: %s", x.what, x.nth, msg)
	case x.what != "":
		msg = x.what + ": " + msg
	}
	x.err = &HaltError{Kind: kind, Msg: msg}
}

// corrupt notes that the bytes are none that a writer makes.
func (x *codec) corrupt(format string, args ...any) { x.fail(ErrCorrupt, format, args...) }

// reading reports whether fields can be read.
func (x *codec) reading() bool { return !x.writing && x.err == nil }

// flush hands on what was written, if that is much or if all is.
func (x *codec) flush(all bool) {
	if x.to == nil || x.err != nil || !all && len(x.buf) < flushAt {
		return
	}
	if x.sum != nil {
		x.sum.Write(x.buf)
	}
	if _, err := x.to.Write(x.buf); err != nil {
		x.err = err
	}
	x.buf = x.buf[:0]
}

// more reads until n unread bytes are in buf; n is at most flushAt.
func (x *codec) more(n int) bool {
	empty := 0
	for x.err == nil && len(x.buf)-x.pos < n {
		if x.from == nil {
			x.corrupt("ends in the middle of a field")
			return false
		}
		x.digest()
		x.buf = append(x.buf[:0], x.buf[x.pos:]...)
		x.pos, x.summed = 0, 0
		if cap(x.buf) < flushAt {
			x.buf = append(make([]byte, 0, flushAt), x.buf...)
		}
		got, err := x.from.Read(x.buf[len(x.buf):cap(x.buf)])
		x.buf = x.buf[:len(x.buf)+got]
		switch {
		case got > 0:
		case err == io.EOF:
			x.corrupt("ends in the middle of a field")
		case err != nil:
			x.err = err
		default:
			if empty++; empty == 100 {
				x.err = io.ErrNoProgress
			}
		}
	}
	return x.err == nil
}

// digest lets sum see all that was read.
func (x *codec) digest() {
	if x.sum != nil {
		x.sum.Write(x.buf[x.summed:x.pos])
		x.summed = x.pos
	}
}

// byte1 is one byte.
func (x *codec) byte1(v *byte) {
	if x.writing {
		x.buf = append(x.buf, *v)
		return
	}
	if x.more(1) {
		*v = x.buf[x.pos]
		x.pos++
	}
}

// u64 is an unsigned number, seven bits a byte, in its shortest form.
func (x *codec) u64(v *uint64) {
	if x.writing {
		x.buf = binary.AppendUvarint(x.buf, *v)
		x.flush(false)
		return
	}
	n := uint64(0)
	for shift := 0; ; shift += 7 {
		var b byte
		if x.byte1(&b); x.err != nil {
			return
		}
		if shift == 63 && b > 1 || b == 0 && shift > 0 {
			x.corrupt("a number is too large, or not in its shortest form")
			return
		}
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			*v = n
			return
		}
	}
}

// below is an unsigned number up to a limit, as every number is read.
func (x *codec) below(v *uint64, most uint64, name string) {
	if x.u64(v); *v > most {
		x.corrupt("%s is %d: at most %d", name, *v, most)
	}
}

func (x *codec) u32(v *uint32, name string) {
	n := uint64(*v)
	x.below(&n, math.MaxUint32, name)
	if !x.writing {
		*v = uint32(n)
	}
}

func (x *codec) u8(v *uint8, most uint8, name string) {
	n := uint64(*v)
	x.below(&n, uint64(most), name)
	if !x.writing {
		*v = uint8(n)
	}
}

// flag is true or false.
func (x *codec) flag(v *bool, name string) {
	n := uint8(0)
	if *v {
		n = 1
	}
	x.u8(&n, 1, name)
	if !x.writing {
		*v = n == 1
	}
}

// signed is a number of either sign.
func (x *codec) signed(v *int64) {
	n := uint64(*v<<1) ^ uint64(*v>>63)
	x.u64(&n)
	if !x.writing {
		*v = int64(n>>1) ^ -int64(n&1)
	}
}

func (x *codec) duration(v *time.Duration) { x.signed((*int64)(v)) }

// instant is a clock value or a length of the state: never negative.
func (x *codec) instant(v *int64, name string) {
	n := uint64(*v)
	x.below(&n, math.MaxInt64, name)
	if !x.writing {
		*v = int64(n)
	}
}

func (x *codec) clock(v *Clock, name string)          { x.instant((*int64)(v), name) }
func (x *codec) length(v *time.Duration, name string) { x.instant((*int64)(v), name) }
func (x *codec) session(v *SessionID)                 { x.u64((*uint64)(v)) }
func (x *codec) revision(v *Revision, most Revision, name string) {
	x.below((*uint64)(v), uint64(most), name)
}

// text is a string of at most most bytes. Within an entry most is what is
// left of it: commands with bad fields must reach the core, which refuses
// them by name.
func (x *codec) text(v *string, most int, name string) {
	b := []byte(nil)
	if x.writing {
		n := uint64(len(*v))
		x.u64(&n)
		x.buf = append(x.buf, *v...)
		return
	}
	x.raw(&b, most, name)
	if !utf8.Valid(b) && x.sum != nil {
		x.corrupt("%s is not UTF-8", name)
	}
	*v = string(b)
}

// raw is bytes with their length before them; read, they are only good until
// the next call.
func (x *codec) raw(v *[]byte, most int, name string) {
	n := uint64(len(*v))
	x.u64(&n)
	if x.writing {
		x.buf = append(x.buf, *v...)
		return
	}
	if n > uint64(most) {
		x.corrupt("%s has %d bytes: at most %d", name, n, most)
	}
	if x.more(int(min(n, math.MaxInt32))) {
		*v = x.buf[x.pos : x.pos+int(n)]
		x.pos += int(n)
	}
}

// value is bytes or nil, which differ.
func (x *codec) value(v *[]byte, most int, name string) {
	some := *v != nil
	x.flag(&some, name)
	if !some || x.err != nil {
		return
	}
	b := *v
	x.raw(&b, most, name)
	if x.reading() {
		*v = append([]byte{}, b...)
	}
}

// fixed is bytes of known number.
func (x *codec) fixed(v []byte) {
	if x.writing {
		x.buf = append(x.buf, v...)
		return
	}
	if x.more(len(v)) {
		copy(v, x.buf[x.pos:])
		x.pos += len(v)
	}
}

// count begins a list of n items. Reading, the caller stops at the first
// error, so a false count costs no more than the bytes that are there.
func (x *codec) count(n int, most int, name string) int {
	v := uint64(n)
	x.below(&v, uint64(most), "number of "+name)
	if x.err != nil {
		return 0
	}
	return int(v)
}
