package lab

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// journalKeeps is how many events one round can have. A round with both
// workers busy makes about a dozen a second.
const journalKeeps = 20_000

// A journal is what happened in a world since its round began. One goroutine
// writes it; any number read it, each at its own pace: a reader costs the
// journal nothing, so nobody is ever waited for.
type journal struct {
	most int // events in a round

	mu struct {
		sync.Mutex
		began time.Time
		// entries[i] is the event with number first+i, as JSON.
		first   uint64
		entries []json.RawMessage
		changed chan struct{} // closed at the next change; nil if nobody waits
		end     string        // why the world ended; "" while it lives
	}
}

func newJournal(most int) *journal {
	j := &journal{most: most}
	j.mu.began, j.mu.first = time.Now(), 1
	return j
}

// begin drops what is known and starts a round with its first event.
func (j *journal) begin(e event) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.began = time.Now()
	j.mu.first += uint64(len(j.mu.entries))
	j.mu.entries = nil
	return j.append(e)
}

// add appends an event and returns its number. A full journal takes nothing
// more but one event that says so.
func (j *journal) add(e event) uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch n := len(j.mu.entries); {
	case n >= j.most || j.mu.end != "":
		return j.last()
	case n == j.most-1:
		e = event{Kind: kindError, Who: whoLab, Text: j.fullText()}
	}
	return j.append(e)
}

// full says why nothing more is written, or "".
func (j *journal) full() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.mu.entries) < j.most {
		return ""
	}
	return j.fullText()
}

func (j *journal) fullText() string {
	return fmt.Sprintf("this round has its %d events and no more are recorded: reset to begin a new round", j.most)
}

// append runs with the lock held.
func (j *journal) append(e event) uint64 {
	e.Seq = j.mu.first + uint64(len(j.mu.entries))
	e.AtMS = millis(time.Since(j.mu.began))
	text, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and finite numbers
	}
	j.mu.entries = append(j.mu.entries, text)
	j.broadcast()
	return e.Seq
}

func (j *journal) last() uint64 { return j.mu.first + uint64(len(j.mu.entries)) - 1 }

func (j *journal) broadcast() {
	if j.mu.changed != nil {
		close(j.mu.changed)
		j.mu.changed = nil
	}
}

// finish says that the world has ended, and why.
func (j *journal) finish(why string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.end == "" {
		j.mu.end = why
	}
	j.broadcast()
}

// lastSeq is the number of the newest event.
func (j *journal) lastSeq() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last()
}

// A reading is what a reader learns at once.
type reading struct {
	entries []json.RawMessage
	first   uint64          // the number of entries[0]
	wait    <-chan struct{} // closed at the next change
	end     string          // why the world ended; "" while it lives
	nowMS   float64
}

// read returns the events after a number. A reader that does not know the
// round's first event, or claims to know more than there is, gets the round
// from its beginning.
func (j *journal) read(after uint64) reading {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.changed == nil {
		j.mu.changed = make(chan struct{})
	}
	if after < j.mu.first || after > j.last() {
		after = j.mu.first - 1
	}
	n := len(j.mu.entries)
	return reading{
		entries: j.mu.entries[after+1-j.mu.first : n : n], first: after + 1,
		wait: j.mu.changed, end: j.mu.end, nowMS: millis(time.Since(j.mu.began)),
	}
}
