package server

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/backup"
	"holdfast/server/core"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
)

// backup takes a backup by a call.
func (w *world) backup(m *holdfastv1.BackupRequest) ([]byte, *driver.Error) {
	w.t.Helper()
	s, err := w.rpc.Backup(w.t.Context(), connect.NewRequest(m))
	if err != nil {
		return nil, wire.FromError(err)
	}
	defer s.Close()
	var b bytes.Buffer
	for s.Receive() {
		b.Write(s.Msg().GetData())
	}
	if err := s.Err(); err != nil {
		return nil, wire.FromError(err)
	}
	return b.Bytes(), nil
}

// The call streams a backup file, and is an operator's: it is recorded.
func TestBackupCall(t *testing.T) {
	w := start(t, func(c *Config) { c.Version = "v9.9.9" })
	if status, body := w.json("Put", `{"lock":"kept","value":"c3RheXM="}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	for _, stale := range []bool{false, true} {
		file, e := w.backup(&holdfastv1.BackupRequest{Stale: stale, By: "ann"})
		if e != nil {
			t.Fatal(e)
		}
		h, s, err := backup.Read(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if l, ok := s.Lock("kept", 0); !ok || string(l.Value) != "stays" || h.Server != "v9.9.9" || h.Term == 0 {
			t.Errorf("%+v, %+v", h, l)
		}
		if got := w.log.lines("audit", `"call":"backup"`, `"by":"ann"`, `"outcome":"done"`, h.StateHash); len(got) == 0 {
			t.Error("no record of the call")
		}
	}
	if _, e := w.backup(&holdfastv1.BackupRequest{By: "a\x00b"}); e == nil || e.Kind != driver.Invalid {
		t.Errorf("%v", e)
	}
	w.service.backups.Store(maxBackups)
	if _, e := w.backup(&holdfastv1.BackupRequest{}); e == nil || e.Kind != driver.Overloaded {
		t.Errorf("%v", e)
	}
	if got := w.log.lines("audit", `"call":"backup"`, `"outcome":"refused"`); len(got) != 2 {
		t.Errorf("records of the refused calls: %q", got)
	}
	w.service.backups.Store(0)
	if _, e := w.backup(&holdfastv1.BackupRequest{}); e != nil || w.service.backups.Load() != 0 {
		t.Errorf("%v, %d under way", e, w.service.backups.Load())
	}
}

// A reader that does not read is cut off, and one whose server stops is told
// that what it has is no backup.
func TestBackupThatIsNotRead(t *testing.T) {
	for _, stops := range []bool{false, true} {
		w := start(t)
		w.service.slowAfter = 3 * time.Second
		value := make([]byte, core.MaxValue)
		for i := range 1600 { // more than lies between a server and a reader
			rand.Read(value)
			w.node.Submit(core.Put{Lock: fmt.Sprintf("l/%d", i), Value: bytes.Clone(value)}, func(Answer) {})
		}
		if _, err := w.node.Do(t.Context(), core.Put{Lock: "last", Value: value}); err != nil { // the others are done
			t.Fatal(err)
		}
		s, err := w.rpc.Backup(t.Context(), connect.NewRequest(&holdfastv1.BackupRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		w.until("the call begins", func() bool { return w.service.backups.Load() > 0 })
		if stops {
			if err := w.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.until("the call ends", func() bool { return w.service.backups.Load() == 0 })
		var b bytes.Buffer
		for s.Receive() {
			b.Write(s.Msg().GetData())
		}
		if _, _, err := backup.Read(&b); s.Err() == nil || err == nil {
			t.Errorf("stops %v: the call ended with %v, and what came is a backup: %v", stops, s.Err(), err)
		}
		s.Close()
		w.until("a record of the call", func() bool { return len(w.log.lines("audit", `"call":"backup"`, `"outcome":"refused"`)) == 1 })
	}
}
