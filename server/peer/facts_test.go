package peer

import (
	"strings"
	"testing"
)

// TestFactsAreTold: what a member says of itself arrives, at all others, and
// nobody says who somebody else is.
func TestFactsAreTold(t *testing.T) {
	a, b, c := newNode(t, 1), newNode(t, 2), newNode(t, 3)
	a.knows(map[uint64]string{2: b.addr(), 3: c.addr()})
	a.reaches(2)
	a.reaches(3)
	want := Facts{ID: 1, Name: "n1", ClientAddr: "client.test:1", PeerAddr: "peer.test:2"}
	a.Tell(want)
	told := func(n *node) []Facts {
		n.mu.Lock()
		defer n.mu.Unlock()
		return append([]Facts(nil), n.told...)
	}
	for _, n := range []*node{b, c} {
		eventually(t, "the facts", func() bool { return len(told(n)) > 0 })
		if got := told(n); len(got) != 1 || got[0] != want {
			t.Errorf("%d was told %+v", n.self.ID, got)
		}
	}
	a.Tell(Facts{ID: 3, Name: "n3", PeerAddr: "elsewhere.test:1"})
	eventually(t, "the end of the line", func() bool { return strings.Contains(a.log.String(), "no line to a member") })
	a.reaches(2) // anew
	if got := told(b); len(got) != 1 {
		t.Errorf("it was told of another: %+v", got)
	}
}
