package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// A record is one line of what a client process notes. Instants are nanoseconds
// of the machine's clock since boot, which all processes share.
type record struct {
	At   int64  `json:"at"`
	Kind string `json:"kind"`
	Op   string `json:"op,omitempty"`   // names one try to hold a lock, or one read
	Task string `json:"task,omitempty"` // who: one goroutine of one client
	Lock string `json:"lock,omitempty"`
	// Number is the token's number; 0 in an answer to a read: nobody holds it.
	Number uint64 `json:"number,omitempty"`
	// Until is the client's own deadline at that instant.
	Until int64 `json:"until,omitempty"`
	// Write names one write, Version is what it makes the resource's.
	Write   string `json:"write,omitempty"`
	Version int64  `json:"version,omitempty"`
	// Result is done, refused, failed (nothing was written) or unknown.
	Result string `json:"result,omitempty"`
	Text   string `json:"text,omitempty"` // for people
}

// The kinds of records, in the order of a try.
const (
	kindAcquire  = "acquire"  // asked for
	kindGranted  = "granted"  // and got, armed
	kindFailed   = "failed"   // or did not; the service may have granted it all the same
	kindWrite    = "write"    // begins
	kindWrote    = "wrote"    // ended
	kindRelease  = "release"  // begins
	kindReleased = "released" // ended
	kindGet      = "get"      // a read of the lock begins
	kindGot      = "got"
)

// results of writes and releases.
const (
	resultDone    = "done"
	resultRefused = "refused"
	resultFailed  = "failed"
	resultUnknown = "unknown"
)

// A hold is one try to hold a lock, as its client noted it. Instants that are 0
// did not come.
type hold struct {
	op, task, lock string
	asked          int64
	granted        int64
	failed         int64
	number         uint64
	until          int64 // the last deadline that the client noted
	release        int64
	released       int64
	result         string // of the release
	writes         []*write
}

// A write is one write in a hold.
type write struct {
	name         string
	version      int64
	began, ended int64
	result       string // unknown if its end was not noted
	number       uint64
	lock         string
}

// A read is one linearizable read of a lock.
type read struct {
	task, lock   string
	began, ended int64
	number       uint64
}

// A history is what all clients noted.
type history struct {
	holds []*hold
	reads []*read

	byOp    map[string]*hold
	byRead  map[string]*read
	byWrite map[string]*write
	latest  map[string]int64 // task → the instant of its last grant
	grants  []int64          // instants, in no order
	lines   int
}

func newHistory() *history {
	return &history{byOp: map[string]*hold{}, byRead: map[string]*read{}, byWrite: map[string]*write{}, latest: map[string]int64{}}
}

// add takes a record in.
func (h *history) add(r record) error {
	h.lines++
	switch r.Kind {
	case kindAcquire:
		o := &hold{op: r.Op, task: r.Task, lock: r.Lock, asked: r.At, result: resultUnknown}
		if h.byOp[r.Op] != nil {
			return fmt.Errorf("two tries are called %s", r.Op)
		}
		h.byOp[r.Op] = o
		h.holds = append(h.holds, o)
		return nil
	case kindGet:
		g := &read{task: r.Task, lock: r.Lock, began: r.At}
		h.byRead[r.Op] = g
		h.reads = append(h.reads, g)
		return nil
	case kindGot:
		if g := h.byRead[r.Op]; g != nil && r.Result == resultDone {
			g.ended, g.number = r.At, r.Number
		}
		return nil
	}
	o := h.byOp[r.Op]
	if o == nil {
		return fmt.Errorf("a record of %s, which nobody began: %+v", r.Op, r)
	}
	h.follow(o, r)
	return nil
}

// follow takes in what came of a try.
func (h *history) follow(o *hold, r record) {
	o.until = max(o.until, r.Until)
	switch r.Kind {
	case kindGranted:
		o.granted, o.number = r.At, r.Number
		h.grants = append(h.grants, r.At)
		h.latest[o.task] = max(h.latest[o.task], r.At)
	case kindFailed:
		o.failed = r.At
	case kindWrite:
		w := &write{name: r.Write, version: r.Version, began: r.At, result: resultUnknown, number: o.number, lock: o.lock}
		h.byWrite[r.Write] = w
		o.writes = append(o.writes, w)
	case kindWrote:
		if w := h.byWrite[r.Write]; w != nil {
			w.ended, w.result = r.At, r.Result
		}
	case kindRelease:
		o.release = r.At
	case kindReleased:
		o.released, o.result = r.At, r.Result
	}
}

// A tail reads the files of all clients as they grow.
type tail struct {
	dir string
	at  map[string]int64
}

// read takes in what was written since it was last called. The last line of a
// killed client may be cut off: it is never complete, and never taken in.
func (t *tail) read(h *history) error {
	names, err := filepath.Glob(filepath.Join(t.dir, "*.jsonl"))
	if err != nil {
		return err
	}
	sort.Strings(names)
	for _, name := range names {
		if err := t.readFile(name, h); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func (t *tail) readFile(name string, h *history) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(t.at[name], io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	t.at[name] += int64(end)
	var all error
	for line := range strings.Lines(string(text[:end])) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			return err
		}
		all = errors.Join(all, h.add(r))
	}
	return all
}
