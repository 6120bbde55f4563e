package store

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// image is what a directory holds: the files' names, from the directory on,
// and their contents.
type image map[string][]byte

func readImage(t *testing.T, dir string) image {
	t.Helper()
	m := image{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it went away meanwhile: a segment that was being prepared
		}
		b, err := os.ReadFile(path)
		if err == nil {
			m[strings.TrimPrefix(path, dir+"/")] = b
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m image) write(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"wal", "snap"} {
		if err := os.MkdirAll(filepath.Join(dir, group1, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range m {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	walIn   = group1 + "/wal/"
	snapIn  = group1 + "/snap/"
	markIn  = group1 + "/mark"
	tornHas = "torn" // what a file that was being made may hold
)

// in lists the files of a directory with an ending, in order.
func (m image) in(dir, suffix string) (names []string) {
	for name := range m {
		if strings.HasPrefix(name, dir) && strings.HasSuffix(name, suffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func used(b []byte) int { return len(bytes.TrimRight(b, "\x00")) }

// disk is one that forgets. What it keeps is what the file system promises:
// the bytes of a file that were there when its sync began; the names of a
// directory that were there when the directory's sync began. Changes of names
// in the log's directory become durable in their order.
type disk struct {
	rng     *rand.Rand
	durable image
	// loose are the snapshots' names that were there since their directory
	// was last synced.
	loose image
	// slots are what was written to each half of the mark since it was last
	// synced.
	slots [2][][]byte
}

// saw takes note of what is written.
func (d *disk) saw(now image) {
	for _, name := range now.in(snapIn, "") {
		if _, ok := d.durable[name]; !ok {
			d.loose[name] = now[name]
		}
	}
	if b := now[markIn]; len(b) == markFileSize {
		for i := range d.slots {
			d.slots[i] = append(d.slots[i], b[i*slotLen:(i+1)*slotLen])
		}
	}
}

// keepLog: the log was synced.
func (d *disk) keepLog(now image) {
	grown := false
	for _, name := range now.in(walIn, ".wal") {
		_, old := d.durable[name]
		grown = grown || !old
		d.durable[name] = now[name]
	}
	for _, name := range d.durable.in(walIn, "") {
		if _, ok := now[name]; !ok && grown { // with the new segment its directory was synced
			delete(d.durable, name)
		}
	}
}

// keepSnapshots: the directory of the snapshots was synced, and before it the
// file in it.
func (d *disk) keepSnapshots(now image) {
	for _, name := range d.durable.in(snapIn, "") {
		delete(d.durable, name)
	}
	for _, name := range now.in(snapIn, "") {
		d.durable[name] = now[name]
	}
	d.loose = image{}
}

// keepMark: the mark was synced.
func (d *disk) keepMark(now image) {
	d.durable[markIn] = now[markIn]
	d.slots = [2][][]byte{}
	d.saw(now)
}

// A damage is what a crash does to what was not synced.
type damage int

const (
	killed  damage = iota // nothing: only the process ends
	lost                  // all behind some byte
	zeroed                // some sectors
	flipped               // a bit
	rotten                // a bit of anything, synced or not
	damages
)

func (d damage) String() string {
	return [...]string{"killed", "lost", "zeroed", "flipped", "rotten"}[d]
}

// mayRefuse: the start may also say that a file is damaged.
func (d damage) mayRefuse() bool { return d >= flipped }

// crash gives what may be in the directory after one, when now was written.
func (d *disk) crash(now image, how damage) image {
	out := maps.Clone(now)
	if how == killed {
		return out
	}
	if how == rotten {
		d.rot(out)
		return out
	}
	for _, name := range now.in(walIn, ".tmp") {
		delete(out, name)
	}
	if d.rng.IntN(3) == 0 {
		out[walIn+"0.tmp"] = d.tear([]byte(strings.Repeat(tornHas, 300)), 0, 1200, lost)
	}
	d.crashLog(out, now, how)
	d.crashSnapshots(out, now, how)
	d.crashMark(out)
	return out
}

// crashLog: of segments that were begun since the last sync the last may be
// without its name, and the segment that is last then may be torn. Of those that
// were removed, the first some are.
func (d *disk) crashLog(out, now image, how damage) {
	old, all := d.durable.in(walIn, ".wal"), now.in(walIn, ".wal")
	last := old[len(old)-1]
	at := slices.Index(all, last)
	keep := at + d.rng.IntN(len(all)-at)
	for _, name := range all[keep+1:] {
		if d.rng.IntN(2) == 0 { // its old name is there
			out[walIn+"1.tmp"] = now[name]
		}
		delete(out, name)
	}
	tail := all[keep]
	b := now[tail]
	from := 0
	if keep == at {
		from = used(d.durable[tail])
	} else {
		from = headEnd(b)
	}
	if keep+1 < len(all) && d.rng.IntN(2) == 0 {
		how = killed // its end was synced, and cut off what was free
	} else {
		b = append(slices.Clone(b), make([]byte, max(0, len(d.durable[last])-len(b)))...)
	}
	out[tail] = d.tear(b, from, used(b), how)
	gone := 0
	for _, name := range old {
		if _, ok := now[name]; !ok {
			gone++
		}
	}
	back := d.rng.IntN(gone + 1)
	for _, name := range old[gone-back : gone] {
		out[name] = d.durable[name]
	}
}

// headEnd is where the three records end that every new segment has when it
// gets its name.
func headEnd(b []byte) int {
	at := 0
	for range 3 {
		frame := binary.LittleEndian.Uint64(b[at:])
		at += 8 + int(frame&(1<<56-1)) + int(frame>>56&7)
	}
	return at
}

func (d *disk) crashSnapshots(out, now image, how damage) {
	all := maps.Clone(d.durable)
	maps.Copy(all, d.loose)
	maps.Copy(all, now)
	for _, name := range all.in(snapIn, "") {
		_, is := now[name]
		_, was := d.durable[name]
		switch {
		case is && was:
			continue
		case d.rng.IntN(2) == 0:
			delete(out, name)
		case was:
			out[name] = d.durable[name]
		default:
			out[name] = d.tear(all[name], 0, len(all[name]), how)
		}
	}
}

// crashMark: each half of the mark holds something that was written to it; one
// may be torn.
func (d *disk) crashMark(out image) {
	b := slices.Clone(d.durable[markIn])
	for i, versions := range d.slots {
		if n := len(versions); n > 0 {
			copy(b[i*slotLen:], versions[d.rng.IntN(n)])
		}
	}
	if i := d.rng.IntN(4); i < 2 {
		if n := len(d.slots[i]); n > 1 {
			at := d.rng.IntN(markLen)
			copy(b[i*slotLen:i*slotLen+at], d.slots[i][n-1])
		}
	}
	out[markIn] = b
}

// tear damages the bytes of a file from one to another.
func (d *disk) tear(b []byte, from, to int, how damage) []byte {
	out := slices.Clone(b)
	if from >= to {
		return out
	}
	switch how {
	case lost:
		clear(out[from+d.rng.IntN(to-from+1):])
	case zeroed:
		cut := from + d.rng.IntN(to-from+1)
		if d.rng.IntN(2) == 0 {
			cut = to
		}
		clear(out[cut:])
		for at := from; at < cut; at = (at/512 + 1) * 512 {
			if d.rng.IntN(2) == 0 {
				clear(out[at:min((at/512+1)*512, cut)])
			}
		}
	case flipped:
		out[from+d.rng.IntN(to-from)] ^= 1 << d.rng.IntN(8)
	}
	return out
}

// rot turns a bit of what is in use somewhere.
func (d *disk) rot(out image) {
	names := slices.Concat([]string{metaFile, markIn}, out.in(walIn, ".wal"), out.in(walIn, ".wal"), out.in(snapIn, ".snap"))
	name := names[d.rng.IntN(len(names))]
	b := slices.Clone(out[name])
	if n := used(b); n > 0 {
		b[d.rng.IntN(n)] ^= 1 << d.rng.IntN(8)
	}
	out[name] = b
}

// crashInStart gives what may be in the directory after a crash in a start,
// that found before and left after.
func (d *disk) crashInStart(before, after image) image {
	out := maps.Clone(before)
	for _, name := range before.in(snapIn, "") {
		if _, ok := after[name]; !ok && d.rng.IntN(2) == 0 {
			delete(out, name)
		}
	}
	segs := before.in(walIn, ".wal")
	tail := segs[len(segs)-1]
	from, to := 0, used(after[tail])
	for from < min(to, len(before[tail])) && before[tail][from] == after[tail][from] {
		from++
	}
	switch d.rng.IntN(4) {
	case 0:
		out[walIn+"renew.tmp"] = d.tear(after[tail], 0, to, zeroed)
	case 1:
		out[tail] = d.tear(after[tail], from, to, lost)
	case 2:
		out[tail] = after[tail]
		out[markIn+newSuffix] = d.tear(after[markIn], 0, markFileSize, lost)
	case 3:
		out[tail], out[markIn] = after[tail], after[markIn]
	}
	return out
}
