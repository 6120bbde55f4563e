package watchdog

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAgendaAgainstAList compares an agenda with a plain list.
func TestAgendaAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		var list []due
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := rapid.IntRange(0, 20).Draw(t, "n")
			list = slices.DeleteFunc(list, func(d due) bool { return d.n == n })
			if rapid.IntRange(0, 2).Draw(t, "input") == 0 {
				a.remove(n)
			} else {
				at := Instant(rapid.IntRange(-5, 5).Draw(t, "at"))
				a.set(n, at)
				list = append(list, due{at: at, n: n})
			}
			slices.SortFunc(list, due.compare)
			first, ok := a.first()
			if ok != (len(list) > 0) || ok && first != list[0] || len(a.heap) != len(list) {
				t.Fatalf("first is %v, %t of %d; want %v", first, ok, len(a.heap), list)
			}
		}
	})
}
