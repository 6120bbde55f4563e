package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"holdfast/fence"
)

// An event is one thing that happened in the drill; with -o json each is one
// line. Tokens and numbers are strings, as everywhere in JSON.
type event struct {
	AtMS       int64    `json:"at_ms"` // since the drill began
	Fencing    string   `json:"fencing,omitempty"`
	Act        string   `json:"act,omitempty"`
	Event      string   `json:"event"`
	Worker     string   `json:"worker,omitempty"`
	PID        int      `json:"pid,omitempty"`
	Token      string   `json:"token,omitempty"`
	Number     string   `json:"token_number,omitempty"`
	Seen       string   `json:"seen,omitempty"` // refused: the gate's mark
	SeenNumber string   `json:"seen_number,omitempty"`
	Value      string   `json:"value,omitempty"`
	Verdict    string   `json:"verdict,omitempty"`      // accepted, refused; whole, corrupted
	Expected   string   `json:"expected,omitempty"`     // verdict: what the theory says
	Hashes     []string `json:"state_hashes,omitempty"` // states: of each node, in order
	Holds      bool     `json:"as_theory_says,omitempty"`
	Text       string   `json:"text,omitempty"`
}

// A teller prints the drill: as a story, or as JSON. The story's goroutine
// alone calls it.
type teller struct {
	w            io.Writer
	json         bool
	start        time.Time
	fencing, act string
}

func newTeller(w io.Writer, asJSON bool) *teller {
	return &teller{w: w, json: asJSON, start: time.Now()}
}

func (t *teller) since() time.Duration { return time.Since(t.start) }

func (t *teller) line(format string, args ...any) {
	if !t.json {
		fmt.Fprintf(t.w, format+"\n", args...)
	}
}

func (t *teller) opening(o drillFlags) {
	ledger := map[string]string{gateSQLite: "SQLite", gatePostgres: "PostgreSQL", gateFile: "a file"}[o.gate]
	patient := ""
	if o.killLeader {
		patient = fmt.Sprintf("; B's is %v, which outlasts an election", drillWaiterTTL)
	}
	t.line("Holdfast drill: one lock %q, two workers, one ledger in %s. TTL %v%s.", drillLock, ledger, o.ttl, patient)
}

// service says where the service is.
func (t *teller) service(addr string) {
	t.tell(event{Event: "service", Worker: "service", Text: fmt.Sprintf("lock service at %s, data in a temporary directory", addr)})
}

// nodes says where the nodes of the service are, and who leads.
func (t *teller) nodes(c *drillCluster, lead *drillNode, term uint64) {
	for _, node := range c.nodes {
		t.tell(event{Event: "node", Worker: node.name, PID: node.PID(),
			Text: fmt.Sprintf("node of the lock service, pid %d, at %s, data in a temporary directory", node.PID(), node.addr)})
	}
	t.tell(event{Event: "leader", Worker: lead.name, Text: fmt.Sprintf("leads in term %d", term)})
}

func (t *teller) begin(fencing bool) {
	t.fencing, t.act = onOff(fencing), ""
	if fencing {
		t.line("\n=== Fencing ON: the ledger is written through a gate that remembers the highest token\n")
	} else {
		t.line("\n=== Fencing OFF: the ledger is written past the gate; the lock alone must do\n")
	}
}

func (t *teller) enter(name, title string) {
	t.act = name
	t.line("\n--- %s", title)
}

// tell prints one event.
func (t *teller) tell(e event) {
	at := t.since()
	if !t.json {
		if e.Event == "verdict" {
			fmt.Fprintf(t.w, "\n%s\n", e.Text)
			return
		}
		fmt.Fprintf(t.w, "%8.3fs  %-7s  %s\n", at.Seconds(), e.Worker, e.Text)
		return
	}
	e.AtMS, e.Fencing, e.Act = at.Milliseconds(), t.fencing, t.act
	e.Number, e.SeenNumber = numberOf(e.Token), numberOf(e.Seen)
	line, err := json.Marshal(e)
	if err != nil {
		line = []byte(`{"event":"error"}`)
	}
	fmt.Fprintf(t.w, "%s\n", line)
}

func numberOf(text string) string {
	token, err := fence.ParseToken(text)
	if err != nil {
		return ""
	}
	return fmt.Sprint(token.Number)
}

// table prints every write that was tried.
func (t *teller) table(writes []attempt) {
	if t.json {
		return // each write was an event of its own
	}
	fmt.Fprintf(t.w, "\nThe ledger, fencing %s:\n", t.fencing)
	tab := tabwriter.NewWriter(t.w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tab, "  TIME\tWORKER\tTOKEN\tVALUE\tVERDICT")
	var highest uint64
	for _, w := range writes {
		verdict := verdictOf(w)
		if !w.refused() && w.offered.Number < highest {
			verdict += fmt.Sprintf("   <-- after %d: a zombie's write", highest)
		}
		if !w.refused() {
			highest = max(highest, w.offered.Number)
		}
		fmt.Fprintf(tab, "  %.3fs\t%s\t%d\t%s\t%s\n", w.at.Seconds(), w.worker, w.offered.Number, w.value, verdict)
	}
	tab.Flush()
}

// closing sums up.
func (t *teller) closing(plays []bool, killed, holds bool) {
	t.fencing, t.act = "", ""
	text := "The drill did not go as the theory says. That is a defect; please report it with this output."
	switch {
	case holds && len(plays) == 2:
		text = "Same workers, same pause, same lock service. The lock could not prevent the second holder; the gate made it harmless."
	case holds && plays[0]:
		text = "The lock could not prevent the second holder; the gate made it harmless."
	case holds:
		text = "Nothing malfunctioned, and yet the ledger is corrupted: a lease plus a pause equals two holders."
	}
	if holds && killed {
		text += " And the leader died in the middle: no grant, no place in the queue and no number died with it."
	}
	t.line("")
	t.tell(event{Event: "end", Worker: "drill", Holds: holds, Text: text})
}
