package backup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
	"holdfast/server/store"
)

// today is day 697 of the epochs.
var today = time.Date(2026, 11, 29, 23, 59, 0, 0, time.UTC)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// options restore into a new directory.
func options(t testing.TB) Options {
	return Options{Dir: filepath.Join(t.TempDir(), "data"), Today: today, Logger: quiet}
}

// restored restores a state and returns what the new directory holds.
func restored(t testing.TB, s *core.State, o Options) (Begun, *core.State) {
	t.Helper()
	_, b, err := Restore(bytes.NewReader(backupOf(t, s)), o)
	if err != nil {
		t.Fatal(err)
	}
	return b, opened(t, o.Dir, b)
}

// opened opens a directory as a server would, and checks that its parts agree.
func opened(t testing.TB, dir string, b Begun) *core.State {
	t.Helper()
	st, err := store.Open(store.Options{Dir: dir, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	found := st.Recovered()
	s, err := core.Decode(bytes.NewReader(found.Snapshot.GetData()))
	if err != nil {
		t.Fatal(err)
	}
	md := found.Snapshot.GetMetadata()
	if len(found.Entries) != 0 || md.GetIndex() != s.Index() || md.GetTerm() == 0 || found.HardState.GetCommit() != s.Index() ||
		fmt.Sprint(md.GetConfState().GetVoters()) != fmt.Sprint([]uint64{st.Meta().NodeID}) || st.Meta().Incarnation != s.Incarnation() {
		t.Fatalf("the parts of %s disagree: %v %v %+v", dir, md, found.HardState, st.Meta())
	}
	if b.Dir != "" && (b.NodeID != st.Meta().NodeID || b.Domain != s.Domain() || b.Incarnation != s.Incarnation() || b.Epoch != s.Epoch() || b.Lowest != s.LastNumber()+1 || b.Left != s.Size()) {
		t.Fatalf("told %+v, there is %+v", b, st.Meta())
	}
	return s
}

// What is left after a restore: values and closings stay; sessions and all
// that belonged to them have gone; a holder that did not confirm its end leaves
// its lock-delay.
func TestRestoreKeepsWhatBelongsToNoSession(t *testing.T) {
	w := everyKind(t)
	before := w.s.Clone()
	o := options(t)
	o.By = "ann@here"
	b, s := restored(t, w.s, o)
	if b.Epoch != 697 || b.Lowest != 697<<48+1 || b.Domain != before.Domain() || b.Incarnation == before.Incarnation() || b.Incarnation == 0 {
		t.Errorf("begun %+v", b)
	}
	if b.Ended != (core.Size{Sessions: 6, Grants: before.Size().Grants, Waits: before.Size().Waits}) || s.SessionCount() != 0 || s.Size().Grants+s.Size().Waits != 0 {
		t.Errorf("ended %+v, left %+v", b.Ended, b.Left)
	}
	for name, want := range map[string]string{
		"kept": `value "stays"`, "empty": `value ""`, "once": "closed 9", "delayed": "closed 8", "exclusive": "closed 8",
		"presence": "", "shared": "", "permits": "", "marked": "",
	} {
		got := ""
		if l, ok := s.Lock(name, 0); ok && l.HasValue {
			got = fmt.Sprintf("value %q", l.Value)
		} else if ok && l.Closed {
			got = fmt.Sprintf("closed %d", l.ClosedCause)
		}
		if got != want {
			t.Errorf("lock %s: %s, want %s", name, got, want)
		}
	}
	// What was closed before keeps its time, on the same clock.
	was, _ := before.Lock("once", 0)
	if is, _ := s.Lock("once", 0); is.OpensAt != was.OpensAt || s.Clock() != before.Clock() {
		t.Errorf("once opens at %v, would have at %v", is.OpensAt, was.OpensAt)
	}
	if m, gone := s.Members(); len(m) != 1 || m[0].ID != b.NodeID || len(gone) != 0 {
		t.Errorf("members %v, removed %v", m, gone)
	}
	// The records of operators' calls stay, and this is one more.
	records := s.Audits(10)
	if n := len(records); n != 2 || records[0].Call != "revoke" || records[1].Call != "restore" || records[1].By != "ann@here" ||
		records[1].On != fmt.Sprintf("the backup of entry %d", before.Index()) || records[1].Told != "2026-11-29T23:59:00Z" {
		t.Errorf("records %+v", records)
	}
	if s.Index() != before.Index()+1 {
		t.Errorf("index %d after %d", s.Index(), before.Index())
	}
}

// Numbers given out after the backup was taken, revisions of that time, and
// places in the stream of events mean nothing in the restored service.
func TestCasebookC75_NumbersAndRevisionsGoOnAboveTheLostRun(t *testing.T) {
	w := everyKind(t)
	file := backupOf(t, w.s)
	w.open(50)
	lost := w.acquire(core.Acquire{Session: 50, Lock: "later"}).Grant
	w.apply(core.Put{Lock: "kept", Value: []byte("later")})
	lostRevision := w.s.Revision()
	last := uint64(0)
	var incarnations []uint64
	// Each further restore of the same backup, on the same day, is told what
	// the one before gave out.
	for i := range 3 {
		o := options(t)
		o.Above = last
		_, b, err := Restore(bytes.NewReader(file), o)
		if err != nil {
			t.Fatal(err)
		}
		again := &service{t: t, s: opened(t, o.Dir, b), next: map[core.SessionID]uint64{}}
		again.open(1)
		for range 3 {
			g := again.acquire(core.Acquire{Session: 1, Lock: "later", Shared: true}).Grant
			if g.Number <= lost.Number || g.Number <= last {
				t.Fatalf("restore %d gave out %d, the lost run %d, the one before %d", i, g.Number, lost.Number, last)
			}
			last = g.Number
		}
		if again.s.Revision() <= lostRevision {
			t.Errorf("revision %d is one of the lost run, which came to %d", again.s.Revision(), lostRevision)
		}
		for rev := range lostRevision + 1 {
			if _, ok := again.s.EventsAfter(rev, 10); ok {
				t.Fatalf("a watcher that saw revision %d of the lost run goes on", rev)
			}
		}
		for _, seen := range incarnations {
			if seen == b.Incarnation {
				t.Error("two restores have one incarnation")
			}
		}
		incarnations = append(incarnations, b.Incarnation)
	}
	// A session of the backup is void, and its secret opens another one.
	o := options(t)
	_, s := restored(t, everyKind(t).s, o)
	if _, ok := s.Session(1); ok || s.HasSecret([32]byte{1, 3: 9}) {
		t.Error("a session of the backup lives on")
	}
}

// One backup restored twice on one day without Above: the epochs are equal, so
// the numbers are, and only the incarnation tells them apart.
func TestSecondRestoreOfOneDayNeedsAbove(t *testing.T) {
	file := backupOf(t, everyKind(t).s)
	begin := func(above uint64, day int) Begun {
		o := options(t)
		o.Above, o.Today = above, today.AddDate(0, 0, day)
		_, b, err := Restore(bytes.NewReader(file), o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first, second := begin(0, 0), begin(0, 0)
	if first.Lowest != second.Lowest || first.Incarnation == second.Incarnation || first.NodeID == second.NodeID {
		t.Errorf("first %+v, second %+v", first, second)
	}
	if third := begin(second.Lowest, 0); third.Epoch != second.Epoch+1 {
		t.Errorf("third %+v", third)
	}
	if tomorrow := begin(0, 1); tomorrow.Epoch != first.Epoch+1 {
		t.Errorf("tomorrow %+v", tomorrow)
	}
}

// A service of the first cluster version goes on in it, without a record that
// it does not know.
func TestRestoreOfTheFirstVersion(t *testing.T) {
	old := &service{t: t, s: core.New(core.Config{Domain: [16]byte{1}, Incarnation: 7}), next: map[core.SessionID]uint64{}}
	old.open(1)
	if b, s := restored(t, old.s, options(t)); s.Version() != 1 || b.Left.Events != 1 || len(s.Audits(1)) != 0 {
		t.Errorf("version %d, %+v", s.Version(), b)
	}
}

func TestNewDomain(t *testing.T) {
	w := everyKind(t)
	o := options(t)
	o.NewDomain = true
	b, s := restored(t, w.s.Clone(), o)
	other := options(t)
	other.NewDomain = true
	c, _ := restored(t, w.s.Clone(), other)
	if b.Domain == w.s.Domain() || b.Domain == c.Domain || b.Domain == ([16]byte{}) || s.Domain() != b.Domain {
		t.Errorf("domains %x, %x, %x", w.s.Domain(), b.Domain, c.Domain)
	}
}

func TestNextEpoch(t *testing.T) {
	for _, c := range []struct {
		data  uint16
		today time.Time
		above uint64
		want  uint16
	}{
		{0, today, 0, 697},
		{0, firstDay.AddDate(0, 0, 1), 0, 1},
		{0, today, 700<<48 + 5, 701},
		{0, today, 3<<48 + 5, 697},
		{696, today, 0, 697},
		{697, today, 0, 698},
		{800, today, 0, 801},
		{800, today, 900 << 48, 901},
		{0, today, 5, 697},
		{32766, today, 0, 32767},
		{0, time.Date(2026, 11, 30, 1, 0, 0, 0, time.FixedZone("east", 14*3600)), 0, 697},
	} {
		if got, err := NextEpoch(c.data, c.today, c.above); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
	}
	for _, wrong := range []time.Time{{}, time.Unix(0, 0), firstDay.Add(-time.Hour), firstDay.Add(23 * time.Hour)} {
		if _, err := NextEpoch(5, wrong, 0); !errors.Is(err, ErrClock) {
			t.Errorf("%v: %v", wrong, err)
		}
	}
	for _, c := range []struct{ data, above uint64 }{{32767, 0}, {0, 32767 << 48}} {
		if _, err := NextEpoch(uint16(c.data), today, c.above); !errors.Is(err, ErrNoEpoch) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A place that holds anything is refused, and so is a backup that is not
// good, before anything is touched.
func TestRestoreRefuses(t *testing.T) {
	file := backupOf(t, everyKind(t).s)
	full := options(t)
	for _, name := range []string{"META", ".hidden", "lost+found"} {
		o := options(t)
		mustDo(t, os.MkdirAll(o.Dir, 0o700))
		mustDo(t, os.WriteFile(filepath.Join(o.Dir, name), []byte("precious"), 0o600))
		_, _, err := Restore(bytes.NewReader(file), o)
		if !errors.Is(err, ErrNotEmpty) || !strings.Contains(err.Error(), "mv ") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		full = o
	}
	if b, err := os.ReadFile(filepath.Join(full.Dir, "lost+found")); string(b) != "precious" || err != nil {
		t.Errorf("what was there is %q, %v", b, err)
	}
	link := options(t)
	mustDo(t, os.Symlink("nowhere", link.Dir))
	inside := options(t)
	mustDo(t, os.WriteFile(inside.Dir, nil, 0o600))
	theirs := options(t)
	mustDo(t, os.MkdirAll(theirs.Dir+unfinished+"/photos", 0o700))
	for _, o := range []Options{link, inside, theirs, {Dir: "", Today: today}} {
		if _, _, err := Restore(bytes.NewReader(file), o); !errors.Is(err, ErrPlace) {
			t.Errorf("%q: %v", o.Dir, err)
		}
	}
	if _, err := os.Stat(theirs.Dir + unfinished + "/photos"); err != nil {
		t.Error(err)
	}
	node := options(t).Dir
	mustDo(t, os.MkdirAll(node, 0o700))
	for _, name := range []string{"META", "LOCK"} {
		mustDo(t, os.WriteFile(filepath.Join(node, name), nil, 0o600))
	}
	mustDo(t, os.Symlink(node, node+".link"))
	for _, dir := range []string{node + "/new", node + "/deep/er", node + ".link/new"} {
		o := options(t)
		o.Dir = dir
		if _, _, err := Restore(bytes.NewReader(file), o); !errors.Is(err, ErrPlace) || !strings.Contains(err.Error(), "inside "+node) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if names, err := os.ReadDir(node); err != nil || len(names) != 2 {
		t.Errorf("the node's directory has %v, %v", names, err)
	}
	damaged := options(t)
	if _, _, err := Restore(bytes.NewReader(file[:len(file)-1]), damaged); !errors.Is(err, ErrTruncated) {
		t.Error(err)
	}
	other := options(t)
	other.Above, other.AboveDomain = 5, [16]byte{1}
	if _, _, err := Restore(bytes.NewReader(file), other); !errors.Is(err, ErrOtherDomain) {
		t.Error(err)
	}
	early := options(t)
	early.Today = time.Unix(0, 0)
	if _, _, err := Restore(bytes.NewReader(file), early); !errors.Is(err, ErrClock) {
		t.Error(err)
	}
	for _, o := range []Options{damaged, early, other, full} {
		if left, _ := filepath.Glob(filepath.Dir(o.Dir) + "/*" + unfinished); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// An empty directory is replaced, and gives its mode; a link to one is
// followed.
func TestRestoreIntoAnEmptyDirectory(t *testing.T) {
	o := options(t)
	mustDo(t, os.MkdirAll(o.Dir, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	mustDo(t, os.Symlink(o.Dir, link))
	real := o.Dir
	o.Dir = link
	b, _ := restored(t, everyKind(t).s, o)
	if info, err := os.Stat(real); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 || b.Dir == link {
		t.Errorf("the link became %v, %v; told %s", info, err, b.Dir)
	}
}

func mustDo(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// survivor is a member's directory with a snapshot and entries after it, of
// which only the first are known to be committed.
func survivor(t *testing.T, w *service, committed int, cmds ...core.Command) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "old")
	st, err := store.Open(store.Options{Dir: dir, Logger: quiet})
	mustDo(t, err)
	w.apply(core.Members{Members: []core.Member{{ID: st.Meta().NodeID, Name: "left"}, {ID: 5, Name: "lost-1"}, {ID: 6, Name: "lost-2"}}})
	snap := &raftpb.Snapshot{Data: encoded(t, w.s), Metadata: &raftpb.SnapshotMetadata{
		Index: new(w.s.Index()), Term: new(uint64(3)), ConfState: &raftpb.ConfState{Voters: []uint64{st.Meta().NodeID, 5, 6}},
	}}
	mustDo(t, st.Bootstrap(w.s.Incarnation(), snap))
	var entries []*raftpb.Entry
	for i, c := range cmds {
		data, err := core.EncodeEntry(core.Header{Clock: w.clock}, []core.Command{c})
		mustDo(t, err)
		entries = append(entries, &raftpb.Entry{Index: new(w.s.Index() + uint64(i) + 1), Term: new(uint64(4)), Type: new(raftpb.EntryNormal), Data: data})
	}
	mustDo(t, st.Append(&raftpb.HardState{Term: new(uint64(6)), Vote: new(uint64(5)), Commit: new(w.s.Index() + uint64(committed))}, entries, nil))
	mustDo(t, st.Close())
	return dir
}

// The lone survivor's data goes on with all that was on its disk, under the
// rules of a restore; the old directory stays.
func TestRecoverFromALoneSurvivor(t *testing.T) {
	w := everyKind(t)
	from := survivor(t, w, 1,
		core.Put{Lock: "committed", Value: []byte("1")}, core.Put{Lock: "acknowledged", Value: []byte("2")},
		core.Acquire{Session: 1, Request: core.Request{Lane: 99, N: 1}, Lock: "held late"})
	o := options(t)
	found, b, err := Recover(from, o)
	if err != nil {
		t.Fatal(err)
	}
	s := opened(t, o.Dir, b)
	if found.Committed != w.s.Index()+1 || found.Last != w.s.Index()+3 || found.Domain != w.s.Domain() || len(found.Others) != 2 || found.Others[0].Name != "lost-1" {
		t.Errorf("found %+v", found)
	}
	for _, name := range []string{"committed", "acknowledged", "kept"} {
		if _, ok := s.Lock(name, 0); !ok {
			t.Errorf("%s is lost", name)
		}
	}
	if b.Epoch != 697 || s.SessionCount() != 0 || s.Domain() != w.s.Domain() || b.NodeID == found.NodeID || s.LastNumber() <= found.LastNumber || b.Incarnation == found.Incarnation {
		t.Errorf("begun %+v", b)
	}
	if r := s.Audits(1); len(r) != 1 || r[0].Call != "recover" || !strings.Contains(r[0].On, fmt.Sprintf("%016x, up to entry %d", found.NodeID, found.Last)) {
		t.Errorf("record %+v", r)
	}
	// The new term is above any that the old disk knows of.
	st, err := store.Open(store.Options{Dir: o.Dir, Logger: quiet})
	mustDo(t, err)
	defer st.Close()
	if term := st.Recovered().HardState.GetTerm(); term != 7 {
		t.Errorf("term %d", term)
	}
	// Once more from the same disk, with what the first gave out.
	o = options(t)
	o.Above = b.Lowest
	if _, c, err := Recover(from, o); err != nil || c.Lowest>>48 != b.Lowest>>48+1 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestRecoverRefuses(t *testing.T) {
	from := survivor(t, everyKind(t), 0)
	use, err := store.Open(store.Options{Dir: from, Logger: quiet})
	mustDo(t, err)
	if _, _, err := Recover(from, options(t)); !errors.Is(err, store.ErrInUse) {
		t.Error(err)
	}
	mustDo(t, use.Close())
	empty := t.TempDir()
	none := filepath.Join(empty, "none")
	fresh := filepath.Join(t.TempDir(), "fresh")
	st, err := store.Open(store.Options{Dir: fresh, Logger: quiet})
	mustDo(t, err)
	mustDo(t, st.Close())
	joined := filepath.Join(t.TempDir(), "joined")
	st, err = store.Open(store.Options{Dir: joined, Logger: quiet})
	mustDo(t, err)
	mustDo(t, st.Join(7))
	mustDo(t, st.Close())
	for _, dir := range []string{empty, none, fresh, joined, from + unfinished} {
		if _, _, err := Recover(dir, options(t)); !errors.Is(err, ErrNoData) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a directory was made to look into it")
	}
	o := options(t)
	o.Dir = from
	if _, _, err := Recover(from, o); !errors.Is(err, ErrNotEmpty) {
		t.Error(err)
	}
}
