package backup

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"holdfast/server/core"
)

// Options say how a service begins anew.
type Options struct {
	// Dir is the data directory to make. It must not exist, or be empty.
	Dir string
	// NewDomain draws a new domain: no existing gate accepts its tokens.
	// Without it the domain is kept, and gates go on.
	NewDomain bool
	// Above, if not 0, is the number of a token that must lie below every
	// new one; AboveDomain, if not zero, is its domain.
	Above       uint64
	AboveDomain [16]byte
	// Today is the wall clock's time.
	Today time.Time
	// By names who does it, for the audit.
	By string
	// Logger gets warnings; default slog.Default().
	Logger *slog.Logger
	// Step, if set, is called before each step that changes something on the
	// disk, with the step's name; an error from it is taken for the step's
	// own.
	Step func(name string) error
}

// Begun is what was made.
type Begun struct {
	Dir         string
	Domain      [16]byte
	Incarnation uint64
	Epoch       uint16
	// Lowest is the lowest number that the service can give out.
	Lowest uint64
	NodeID uint64
	// Ended are the sessions that are void, with the grants and waits that
	// ended with them.
	Ended core.Size
	// Left is what the service begins with.
	Left core.Size
}

var (
	// ErrClock: the wall clock cannot be right.
	ErrClock = errors.New("this machine's clock cannot be right")
	// ErrOtherDomain: the token to go above is of another domain.
	ErrOtherDomain = errors.New("token is of another domain")
	// ErrNoEpoch: no epoch is left above what must lie below.
	ErrNoEpoch = errors.New("no epoch is left")
)

// firstDay is the day from which epochs count.
var firstDay = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

const epochShift = 48

// NextEpoch is the epoch of a start that is not by quorum (A4): above that of
// the data, at least the number of days since 2025-01-01 UTC, and above that
// of a number which must lie below (0: none).
func NextEpoch(data uint16, today time.Time, above uint64) (uint16, error) {
	days := today.Sub(firstDay) / (24 * time.Hour)
	if today.Before(firstDay) || days < 1 {
		return 0, fmt.Errorf("%w: it says %s: set it, because the new numbers depend on the day", ErrClock, today.UTC().Format(time.RFC3339))
	}
	next := max(uint64(data)+1, uint64(days))
	if above != 0 {
		next = max(next, above>>epochShift+1)
	}
	if next > core.MaxEpoch {
		return 0, fmt.Errorf("%w: it would be %d, and the highest is %d; only a new domain can go on", ErrNoEpoch, next, core.MaxEpoch)
	}
	return uint16(next), nil
}

// Restore makes a new service's data directory from a backup. Nothing is
// touched before all of the backup was read and found good.
func Restore(r io.Reader, o Options) (Header, Begun, error) {
	h, s, err := Read(r)
	if err != nil {
		return h, Begun{}, err
	}
	b, err := begin(s, h.Term, o, fmt.Sprintf("restore of the backup of entry %d", h.Index))
	return h, b, err
}

// begin makes a data directory whose service goes on from s, which is last
// changed in a term, and records what that is. It changes s.
func begin(s *core.State, term uint64, o Options, what string) (Begun, error) {
	if o.AboveDomain != ([16]byte{}) && o.AboveDomain != s.Domain() {
		return Begun{}, fmt.Errorf("%w: it is of %x, and the data of %x: the numbers of two domains have no order; take a token of the right one", ErrOtherDomain, o.AboveDomain, s.Domain())
	}
	epoch, err := NextEpoch(s.Epoch(), o.Today, o.Above)
	if err != nil {
		return Begun{}, err
	}
	raise := core.RaiseEpoch{Epoch: epoch, Incarnation: drawNumber()}
	for raise.Incarnation == s.Incarnation() {
		raise.Incarnation = drawNumber()
	}
	if o.NewDomain {
		rand.Read(raise.NewDomain[:]) // never fails
	}
	before := s.Size()
	d, err := newDirectory(o)
	if err != nil {
		return Begun{}, err
	}
	defer d.close()
	cmds := []core.Command{raise, core.Members{Members: []core.Member{{ID: d.store.Meta().NodeID}}}}
	if record := recordOf(what, o); s.Version() >= core.VersionOf(record) {
		cmds = append(cmds, record)
	}
	snap, err := beginning(s, term, d.store.Meta().NodeID, cmds)
	if err != nil {
		return Begun{}, err
	}
	if err := d.finish(raise.Incarnation, snap); err != nil {
		return Begun{}, err
	}
	return Begun{
		Dir: d.place, Domain: s.Domain(), Incarnation: s.Incarnation(), Epoch: s.Epoch(), Lowest: s.LastNumber() + 1, NodeID: d.store.Meta().NodeID,
		Ended: core.Size{Sessions: before.Sessions, Grants: before.Grants, Waits: before.Waits}, Left: s.Size(),
	}, nil
}

// recordOf is the record of who began a service, and how.
func recordOf(what string, o Options) core.Audit {
	call, on, _ := strings.Cut(what, " of ")
	return core.Audit{AuditCall: core.AuditCall{
		Call: call, By: o.By, Credential: "this machine", On: on, Outcome: core.AuditDone, Count: 1, Told: o.Today.UTC().Format(time.RFC3339),
	}}
}

// beginning applies the raised epoch, and what goes with it, as an entry of its
// own in a term of its own. What it returns is the first snapshot of the new
// service, whose only member is this node.
func beginning(s *core.State, term, node uint64, cmds []core.Command) (*raftpb.Snapshot, error) {
	e := core.Entry{Index: s.Index() + 1, Term: term + 1, Header: core.Header{Clock: s.Clock()}, Commands: cmds}
	did, err := s.Apply(e)
	if err != nil {
		return nil, err
	}
	for i, r := range did.Results {
		if r.Status != core.Done {
			return nil, fmt.Errorf("%T was refused: %+v", e.Commands[i], r.Refusal)
		}
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := s.Encode(&b); err != nil {
		return nil, err
	}
	return &raftpb.Snapshot{Data: b.Bytes(), Metadata: &raftpb.SnapshotMetadata{
		Index: new(e.Index), Term: new(e.Term), ConfState: &raftpb.ConfState{Voters: []uint64{node}},
	}}, nil
}

// drawNumber returns a random number from 1 to 2^63−1.
func drawNumber() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:])>>1 | 1
}
