package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Format is the version of the layout of a data directory that this release
// writes, and the highest that it reads.
const Format = 1

// Meta says whose data a directory holds.
type Meta struct {
	// NodeID names the member: drawn at random at first start, and never
	// used by another (D7).
	NodeID uint64 `json:"node_id,string"`
	// Group is the raft group whose log this is. There is one so far.
	Group uint64 `json:"group_id"`
	// Incarnation is that of the cluster, 0 before it was set up.
	Incarnation uint64 `json:"incarnation,string"`
	// Member is false until [Store.Bootstrap] or [Store.Join] is complete.
	Member bool `json:"member"`
	// Joined: the member joined a cluster that ran already, so that its log
	// may be without a snapshot until it has received one.
	Joined bool `json:"joined,omitempty"`
}

const (
	lockFile    = "LOCK"
	metaFile    = "META"
	metaHeading = "Holdfast data directory, format "
	newSuffix   = ".new" // of a file that is being written
)

// encode gives the bytes of a META file: a heading that every release can
// read, the fields, and a checksum of both.
func (m Meta) encode() []byte {
	fields, err := json.Marshal(m)
	if err != nil {
		panic(err) // Meta has only numbers
	}
	b := fmt.Appendf(nil, "%s%d\n%s\n", metaHeading, Format, fields)
	return fmt.Appendf(b, "%08x\n", crc32.Checksum(b, castagnoli))
}

// decodeMeta is the inverse of encode. It returns ErrNewerFormat, or an error
// that says what is wrong.
func decodeMeta(b []byte) (Meta, error) {
	lines := strings.Split(string(b), "\n")
	number, ok := strings.CutPrefix(lines[0], metaHeading)
	if !ok || len(b) > 1<<16 {
		return Meta{}, errors.New("it does not begin as Holdfast writes it")
	}
	var format int
	if _, err := fmt.Sscanf(number, "%d", &format); err != nil || fmt.Sprint(format) != number || format < 1 {
		return Meta{}, fmt.Errorf("%.20q is no format number", number)
	}
	if format > Format {
		return Meta{}, fmt.Errorf("%w: %d, and this release reads up to %d: run the release that wrote it, or a later one", ErrNewerFormat, format, Format)
	}
	if len(lines) != 4 || lines[3] != "" {
		return Meta{}, errors.New("want three lines")
	}
	covered := lines[0] + "\n" + lines[1] + "\n"
	if lines[2] != fmt.Sprintf("%08x", crc32.Checksum([]byte(covered), castagnoli)) {
		return Meta{}, errors.New("it fails its checksum")
	}
	var m Meta
	if err := json.Unmarshal([]byte(lines[1]), &m); err != nil {
		return Meta{}, err
	}
	if m.NodeID == 0 || m.Group == 0 || m.Member != (m.Incarnation != 0) {
		return Meta{}, errors.New("its fields contradict each other")
	}
	return m, nil
}

// walMetadata is what every segment of the log begins with, so that a segment
// of another node, group or cluster is noticed.
func (m Meta) walMetadata() []byte {
	return fmt.Appendf(nil, "holdfast format=%d node=%016x group=%016x incarnation=%016x", Format, m.NodeID, m.Group, m.Incarnation)
}

// prepare makes sure that dir exists, is ours alone, and is ours at all. It
// returns the open lock file.
func prepare(dir string) (*os.File, error) {
	_, err := os.Stat(dir)
	isNew := errors.Is(err, os.ErrNotExist)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: creating %s: %w: choose a directory that this user can write", ErrUnusable, dir, err)
	}
	if isNew {
		if err := syncDir(filepath.Dir(filepath.Clean(dir))); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnusable, err)
		}
	}
	if err := checkOurs(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: it must be writable by this user", ErrUnusable, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		who := make([]byte, 32)
		n, _ := f.ReadAt(who, 0)
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w: %s, by %s: stop that process or choose another directory", ErrInUse, dir, owner(who[:n]))
		}
		return nil, fmt.Errorf("%w: locking %s: %w", ErrUnusable, path, err)
	}
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%w: writing %s: %w", ErrUnusable, path, err)
		}
	}
	return f, nil
}

func owner(pid []byte) string {
	if p := strings.TrimSpace(string(pid)); p != "" {
		return "process " + p
	}
	return "another process"
}

// checkOurs refuses a directory with other people's files in it, so that a
// mistyped path never mixes our files with theirs.
func checkOurs(dir string) error {
	names, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	hasMeta, group, foreign := false, "", ""
	for _, e := range names {
		switch name := e.Name(); {
		case name == metaFile:
			hasMeta = true
		case strings.HasPrefix(name, "group-"):
			group = name
		case name == lockFile, name == metaFile+newSuffix, name == "lost+found":
		default:
			foreign = name
		}
	}
	switch {
	case hasMeta:
		return nil
	case foreign != "":
		return fmt.Errorf("%w: %s has no file %s, but has %s: choose an empty or a new directory", ErrNotOurs, dir, metaFile, foreign)
	case group != "":
		return &CorruptError{File: filepath.Join(dir, metaFile), What: "it is missing, while " + group + " is there: restore the directory from a backup"}
	}
	return nil
}

// loadMeta reads META, or draws a node ID and writes it.
func loadMeta(dir string, group uint64) (Meta, error) {
	path := filepath.Join(dir, metaFile)
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		m, err := decodeMeta(b)
		if errors.Is(err, ErrNewerFormat) {
			return Meta{}, fmt.Errorf("%s: %w", path, err)
		}
		if err != nil {
			return Meta{}, &CorruptError{File: path, What: err.Error()}
		}
		if m.Group != group {
			return Meta{}, &CorruptError{File: path, What: fmt.Sprintf("it belongs to group %d: want %d", m.Group, group)}
		}
		return m, nil
	case !errors.Is(err, os.ErrNotExist):
		return Meta{}, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	m := Meta{NodeID: drawID(), Group: group}
	if err := writeFileSync(path, m.encode()); err != nil {
		return Meta{}, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	return m, nil
}

// drawID returns a random number from 1 to 2^63−1.
func drawID() uint64 {
	for {
		var b [8]byte
		rand.Read(b[:]) // never fails
		if id := binary.BigEndian.Uint64(b[:]) >> 1; id != 0 {
			return id
		}
	}
}

// writeFileSync replaces a file atomically and durably.
func writeFileSync(path string, b []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return err
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
