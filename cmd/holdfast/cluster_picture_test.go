package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/engine/cluster"
	"holdfast/fence"
)

// A picture is what the service shows of the locks whose names begin with some
// prefix, of all sessions, and of the last token. If nobody changes those locks
// and no session comes or ends by its owner's will, two pictures are the same,
// whatever became of the nodes in between.
type picture struct {
	// lines tell one thing each: a lock, a holder, a place in a queue, a
	// session. None comes twice.
	lines []string
	last  uint64 // the number of the last token; it may rise, and never falls
}

// takePicture looks at everything, in answers that a quorum confirms.
func takePicture(t *testing.T, c *cluster.Client, prefix string) (p picture) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var index uint64 // as of which the newest answer was
	for l, err := range c.List(ctx, prefix, cluster.ListOptions{}) {
		if err != nil {
			t.Fatalf("listing locks: %v", err)
		}
		if l, err = c.Get(ctx, l.Name, cluster.GetOptions{QueueLimit: 1000}); err != nil {
			t.Fatalf("a lock that is listed: %v", err)
		}
		p.lines = append(p.lines, lockLines(l)...)
		index = max(index, l.Read.Index)
	}
	for s, err := range c.Sessions(ctx, cluster.ListOptions{}) {
		if err != nil {
			t.Fatalf("listing sessions: %v", err)
		}
		p.lines = append(p.lines, sessionLine(s, prefix))
		index = max(index, s.Read.Index)
	}
	// A status is one node's own: it counts once it is as new as the rest.
	eventually(t, "the status of a node that is not behind", func() bool {
		st, err := c.Status(ctx)
		if err != nil || st.AppliedIndex < index {
			return false
		}
		p.last = st.LastNumber
		return true
	})
	return p
}

func lockLines(l *cluster.Lock) []string {
	about := fmt.Sprintf("lock %s: ", l.Name)
	what := fmt.Sprintf("created at %d, limit %d", l.CreateRevision, l.Limit)
	if l.HasValue {
		what += fmt.Sprintf(", value %q of %d, bound to session %d", l.Value, l.ModifyRevision, l.ValueSession)
	}
	if l.Closed {
		what += ", closed: " + l.ClosedCause
	}
	if l.Sealed {
		what += ", sealed"
	}
	lines := []string{about + what + fmt.Sprintf(", %d holders, %d waiters", len(l.Holders), l.Waiters)}
	for i, h := range l.Holders {
		line := fmt.Sprintf("holder %d: session %d, %s, grant %d, token %s", i+1, h.SessionID, mode(h.Shared), h.Grant, h.Token)
		if h.Revoked {
			line += ", revoked: " + h.RevokeWhy
		}
		lines = append(lines, about+line)
	}
	for _, w := range l.Queue {
		lines = append(lines, about+fmt.Sprintf("place %d: session %d, %s", w.Place, w.SessionID, mode(w.Shared)))
	}
	return lines
}

func mode(shared bool) string {
	if shared {
		return "shared"
	}
	return "exclusive"
}

func sessionLine(s *cluster.Session, prefix string) string {
	mine := func(locks []string) string {
		locks = slices.DeleteFunc(slices.Clone(locks), func(l string) bool { return !strings.HasPrefix(l, prefix) })
		slices.Sort(locks)
		return fmt.Sprint(locks)
	}
	return fmt.Sprintf("session %d: %q at %q, TTL %v, holds %s, waits for %s", s.ID, s.Label, s.Host, s.TTL, mine(s.Holds), mine(s.WaitsFor))
}

// still is the picture of a service in which no lock at all is granted: the
// last token must be the same, too.
func (p picture) still() picture {
	p.lines = append(slices.Clone(p.lines), fmt.Sprint("last token: ", p.last))
	return p
}

// changes tells what is not as it was, for people; "" if all is.
func (p picture) changes(after picture) string {
	var out []string
	only := func(sign string, these, those []string) {
		for _, line := range these {
			if !slices.Contains(those, line) {
				out = append(out, sign+" "+line)
			}
		}
	}
	only("-", p.lines, after.lines)
	only("+", after.lines, p.lines)
	// What was and what is of one thing stand together.
	slices.SortStableFunc(out, func(a, b string) int { return strings.Compare(subject(a), subject(b)) })
	if after.last < p.last {
		out = append(out, fmt.Sprintf("the last token is %d, was %d", after.last, p.last))
	}
	return strings.Join(out, "\n")
}

// subject is what a line of changes is about.
func subject(line string) string {
	words := strings.SplitN(line[2:], ": ", 3)
	return strings.Join(words[:len(words)-1], ": ")
}

// TestPictureTellsWhatChanged: the tests of clusters see what they look for.
func TestPictureTellsWhatChanged(t *testing.T) {
	t.Parallel()
	look := func(change func(l *cluster.Lock, s *cluster.Session)) picture {
		token := fence.Token{Domain: fence.Domain{1}, Incarnation: 1, Lock: "a", Mode: fence.Shared, Number: 7}
		l := &cluster.Lock{
			Name: "a", CreateRevision: 3, HasValue: true, Value: []byte("v"), ModifyRevision: 4, Waiters: 2,
			Holders: []cluster.Holder{{Grant: 8, Token: token, SessionID: 1, Shared: true}},
			Queue:   []cluster.Waiter{{SessionID: 2, Place: 1}, {SessionID: 3, Place: 2, Shared: true}},
		}
		s := &cluster.Session{ID: 1, Label: "x", TTL: time.Second, Holds: []string{"other", "a"}}
		p := picture{last: 9}
		if change != nil {
			change(l, s)
		}
		p.lines = append(lockLines(l), sessionLine(s, "a"))
		return p
	}
	before := look(nil)
	lower := look(nil)
	lower.last = 8
	token := strings.TrimPrefix(before.lines[1], "lock a: holder 1: session 1, shared, grant 8, token ")
	for _, c := range []struct {
		name, want string
		after      picture
	}{
		{"nothing", "", look(nil)},
		{"what is others'", "", look(func(_ *cluster.Lock, s *cluster.Session) {
			s.Holds, s.Age, s.Suspected = []string{"a", "more"}, time.Hour, true
		})},
		{"a queue's order", "- lock a: place 1: session 2, exclusive\n+ lock a: place 1: session 3, exclusive\n" +
			"- lock a: place 2: session 3, shared\n+ lock a: place 2: session 2, shared", look(func(l *cluster.Lock, _ *cluster.Session) {
			l.Queue[0].SessionID, l.Queue[1].SessionID = 3, 2
		})},
		{"a lost holder", "- lock a: created at 3, limit 0, value \"v\" of 4, bound to session 0, 1 holders, 2 waiters\n" +
			"+ lock a: created at 3, limit 0, value \"v\" of 4, bound to session 0, 0 holders, 2 waiters\n" +
			"- lock a: holder 1: session 1, shared, grant 8, token " + token, look(func(l *cluster.Lock, _ *cluster.Session) { l.Holders = nil })},
		{"another session", "- session 1: \"x\" at \"\", TTL 1s, holds [a], waits for []\n+ session 5: \"x\" at \"\", TTL 1s, holds [a], waits for []",
			look(func(_ *cluster.Lock, s *cluster.Session) { s.ID = 5 })},
		{"a token that fell", "the last token is 8, was 9", lower},
	} {
		if got := before.changes(c.after); got != c.want {
			t.Errorf("%s: changes are\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
	if got := before.still().changes(lower.still()); !strings.HasPrefix(got, "- last token: 9\n+ last token: 8\n") {
		t.Errorf("changes of a still picture are\n%s", got)
	}
}
