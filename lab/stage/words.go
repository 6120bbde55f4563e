package stage

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"holdfast"
	"holdfast/fence"
)

// The words that a worker is told.
const (
	// DoAcquire: ask for the lock, and wait for it in the queue. Other words
	// may be told meanwhile.
	DoAcquire = "acquire"
	// DoRead: look which line is the ledger's last, and write on top of it.
	DoRead = "read"
	// DoWrite: look whether the lease is held, and write at once if so.
	DoWrite = "write"
	// DoPoise: look whether the lease is held, and if so stand before the
	// write, as it is now, until DoGo.
	DoPoise = "poise"
	// DoInside: open the guarded step of the gate, read in it, say
	// SaidInside, and stand there until DoGo.
	DoInside = "write-inside"
	// DoGo: write. Nothing is looked at again.
	DoGo = "go"
	// DoRelease: give the lock back; while waiting, give the wait up.
	DoRelease = "release"
	doValue   = "value" // and a space, and the value as a JSON string
)

// DoValue is the word that changes what a worker writes from now on. A write
// before which it stands already stays as it is.
func DoValue(value string) string {
	text, err := json.Marshal(value)
	if err != nil { // a string always can
		panic(err)
	}
	return doValue + " " + string(text)
}

// What a worker says; see the comment of the package for the order.
const (
	SaidReady    = "ready"    // it waits for words
	SaidQueued   = "queued"   // the service has put it in the lock's queue
	SaidAcquired = "acquired" // Token, Took, Left, Line (the ledger's last), Mark
	SaidPulse    = "pulse"    // a renewal was answered: Token (zero: it holds nothing yet), Left
	SaidRead     = "read"     // Line, Token
	SaidLooked   = "looked"   // Token, Left, Held
	SaidInside   = "inside"   // Token, Line (what it read)
	SaidWrote    = "wrote"    // Token, Value, Line, Basis, Compared, Mark
	SaidRefused  = "refused"  // Token, Value, Seen, Mark, Text
	SaidReleased = "released" // Token; Text: not confirmed, and why
	SaidGaveUp   = "gave-up"  // it waits no more; Text: why, if nobody asked for it
	SaidLost     = "lost"     // Token, Text: its watchdog's words
	SaidValue    = "value"    // Value: what it writes from now on
	SaidError    = "error"    // Text: why a word could not be done; it goes on
	// SaidEnded is said for a worker that ended though nobody ended it: a
	// defect. It is the last. Text: what it left on standard error.
	SaidEnded = "ended"
)

// A Said is one thing that a worker says.
type Said struct {
	Event    string        `json:"event"`
	Token    fence.Token   `json:"token,omitzero"`
	Seen     fence.Token   `json:"seen,omitzero"`    // refused: the gate's mark
	Mark     uint64        `json:"mark,omitzero"`    // the number of the gate's mark; 0: no gate was asked
	Line     int64         `json:"line,omitzero"`    // a line's number
	Basis    int64         `json:"basis,omitzero"`   // the last line that the writer knew
	Left     time.Duration `json:"left,omitzero"`    // how long it may rely on its lease, by its own view
	Took     time.Duration `json:"took,omitzero"`    // how long the acquire took
	Held     bool          `json:"held,omitzero"`    // looked: it believes that it holds
	Compared bool          `json:"compare,omitzero"` // wrote: the token was compared
	Value    string        `json:"value,omitzero"`
	Text     string        `json:"text,omitzero"` // for people
}

// A WorkerSpec says who a worker is and where it works. All fields are needed.
type WorkerSpec struct {
	Name    string        `json:"name"`    // its session's label is "worker " and this
	Value   string        `json:"value"`   // what it writes
	TTL     time.Duration `json:"ttl"`     // of its session
	Server  string        `json:"server"`  // address of the lock service
	Lock    string        `json:"lock"`    // the lock's name
	Ledger  string        `json:"ledger"`  // the ledger's file
	Fencing Fencing       `json:"fencing"` // how it writes
}

// Arg returns the spec as the one argument of a worker's process.
func (s WorkerSpec) Arg() string {
	text, err := json.Marshal(s)
	if err != nil { // no field can fail
		panic(err)
	}
	return string(text)
}

// ParseWorkerSpec reads what [WorkerSpec.Arg] wrote, and checks it.
func ParseWorkerSpec(arg string) (WorkerSpec, error) {
	var s WorkerSpec
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return s, fmt.Errorf("the worker's description: %w", err)
	}
	return s, s.check()
}

func (s WorkerSpec) check() error {
	switch {
	case s.Name == "" || len(s.Name) > 64:
		return fmt.Errorf("the worker's name has %d bytes: want 1–64", len(s.Name))
	case s.TTL < holdfast.MinTTL || s.TTL > holdfast.MaxTTL:
		return fmt.Errorf("TTL %v: want %v – %v", s.TTL, holdfast.MinTTL, holdfast.MaxTTL)
	case s.Server == "" || s.Ledger == "":
		return fmt.Errorf("worker %s needs the address of a server and a ledger's file", s.Name)
	}
	if err := fence.ValidateLockName(s.Lock); err != nil {
		return err
	}
	if err := CheckValue(s.Value); err != nil {
		return err
	}
	return s.Fencing.check()
}

// MaxValue is the longest value of a line, in bytes: 80 characters of any
// script.
const MaxValue = 320

// CheckValue refuses a value that does not fit on one line of a ledger's
// table: 1–MaxValue bytes of printable UTF-8.
func CheckValue(v string) error {
	if v == "" || len(v) > MaxValue {
		return fmt.Errorf("the value has %d bytes: want 1–%d", len(v), MaxValue)
	}
	for _, r := range v {
		if r < ' ' || r == 0x7f || r == utf8.RuneError {
			return fmt.Errorf("the value %q has the character %U: want printable UTF-8 on one line", v, r)
		}
	}
	return nil
}
