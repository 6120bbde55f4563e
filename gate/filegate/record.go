package filegate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"holdfast/fence"
)

// A record is what a gate keeps. Its file is only ever replaced as a whole, so
// whoever reads it reads one version; each version is a file of its own.
type record struct {
	lock   string
	active fence.Domain // zero: none yet
	marks  []fence.Mark // ordered by domain and slot
}

// recordVersion begins a record. A later version has another.
const recordVersion = "holdfast filegate 1"

// mostRecord is the most bytes of a record that are read.
const mostRecord = 16 << 20

func (r record) mark(d fence.Domain, slot uint32) fence.Token {
	for _, m := range r.marks {
		if m.Token.Domain == d && m.Token.Slot == slot {
			return m.Token
		}
	}
	return fence.Token{}
}

// with returns the record in which t is the mark of its slot, and its domain
// the active one.
func (r record) with(t fence.Token, at time.Time, by string) record {
	r.active = t.Domain
	r.marks = slices.DeleteFunc(slices.Clone(r.marks), func(m fence.Mark) bool { return m.Token.Domain == t.Domain && m.Token.Slot == t.Slot })
	r.marks = append(r.marks, fence.Mark{Token: t, RaisedAt: at.UTC().Round(0), RaisedBy: by})
	slices.SortFunc(r.marks, func(a, b fence.Mark) int {
		return cmp.Or(bytes.Compare(a.Token.Domain[:], b.Token.Domain[:]), cmp.Compare(a.Token.Slot, b.Token.Slot))
	})
	return r
}

// encode writes a record for people and programs: a line a field, and a sum of
// all before it at the end.
func (r record) encode() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\nlock %s\n", recordVersion, strconv.Quote(r.lock))
	if r.active != (fence.Domain{}) {
		fmt.Fprintf(&b, "active %s\n", r.active)
	}
	for _, m := range r.marks {
		fmt.Fprintf(&b, "mark %s %s %s\n", m.RaisedAt.Format(time.RFC3339Nano), strconv.Quote(m.RaisedBy), strconv.Quote(m.Token.String()))
	}
	fmt.Fprintf(&b, "sum %x\n", sha256.Sum256(b.Bytes()))
	return b.Bytes()
}

// decode reads what encode wrote, and nothing else.
func decode(text []byte) (r record, err error) {
	at := bytes.LastIndex(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) + 1
	if string(text[at:]) != fmt.Sprintf("sum %x\n", sha256.Sum256(text[:at])) {
		return r, errors.New("its sum does not fit: it was changed or cut")
	}
	lines := strings.Split(strings.TrimSuffix(string(text[:at]), "\n"), "\n")
	if lines[0] != recordVersion {
		return r, fmt.Errorf("it begins with %.40q, want %q: another version of the gate wrote it", lines[0], recordVersion)
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, " ")
		switch name {
		case "lock":
			r.lock, err = strconv.Unquote(value)
		case "active":
			r.active, err = fence.ParseDomain(value)
		case "mark":
			var m fence.Mark
			m, err = decodeMark(value)
			r.marks = append(r.marks, m)
		default:
			err = errors.New("unknown line")
		}
		if err != nil {
			return r, fmt.Errorf("%.80q: %w", line, err)
		}
	}
	if !bytes.Equal(r.encode(), text) {
		return r, errors.New("it is not as the gate writes it")
	}
	return r, nil
}

func decodeMark(text string) (m fence.Mark, err error) {
	at, rest, _ := strings.Cut(text, " ")
	if m.RaisedAt, err = time.Parse(time.RFC3339Nano, at); err != nil {
		return m, err
	}
	by, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return m, err
	}
	token, err := strconv.Unquote(strings.TrimPrefix(rest[len(by):], " "))
	if err != nil {
		return m, err
	}
	if m.RaisedBy, err = strconv.Unquote(by); err != nil {
		return m, err
	}
	m.Token, err = fence.ParseToken(token)
	return m, err
}

// A version is a record and the file that it was read from, which stays open:
// so no other file can be taken for it.
type version struct {
	record
	file *os.File
	info fs.FileInfo
}

func (v version) close() {
	if v.file != nil {
		v.file.Close()
	}
}

// load reads the record.
func (g *Gate) load(p *place) (v version, err error) {
	v.file, err = p.room.Open(recordName)
	if errors.Is(err, fs.ErrNotExist) {
		return v, g.damaged("there is no %s in %s: somebody removed it", recordName, p.roomPath())
	}
	if err != nil {
		return v, fmt.Errorf("gate %s: cannot read the marks: %w", g.guard.Gate, err)
	}
	defer func() {
		if err != nil {
			v.close()
		}
	}()
	if v.info, err = v.file.Stat(); err != nil {
		return v, fmt.Errorf("gate %s: cannot read the marks: %w", g.guard.Gate, err)
	}
	text, err := io.ReadAll(io.LimitReader(v.file, mostRecord))
	if err != nil {
		return v, fmt.Errorf("gate %s: cannot read the marks: %w", g.guard.Gate, err)
	}
	if v.record, err = decode(text); err != nil {
		return v, g.damaged("%s in %s: %w", recordName, p.roomPath(), err)
	}
	if v.lock != g.guard.Lock {
		return v, fmt.Errorf("%w: gate %s: the file is guarded for lock %q, not for %q: one file has one lock", fence.ErrMalformed, g.guard.Gate, v.lock, g.guard.Lock)
	}
	return v, nil
}

func (g *Gate) damaged(format string, args ...any) error {
	return fmt.Errorf("%w: gate %s: "+format, append([]any{fence.ErrRecord, g.guard.Gate}, args...)...)
}
