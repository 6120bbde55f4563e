package lab_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"holdfast/lab/internal/browser"
)

// looks are the screens and settings that must be accessible.
var looks = []browser.Look{
	{Theme: "light", Width: 1440, Height: 900}, {Theme: "dark", Width: 1440, Height: 900},
	{Theme: "light", Width: 390, Height: 844}, {Theme: "dark", Width: 390, Height: 844},
}

// clean checks the page as it is, in both themes, wide and narrow.
func (p *visitor) clean(when string) {
	p.t.Helper()
	where := map[string][]string{} // looks, by violation
	for _, look := range looks {
		look.Still = true
		p.ok(p.tab.SetLook(look))
		// Colours must not be measured half way.
		p.await(`document.getAnimations().every((a) => a.playState !== "running")`)
		found, err := p.tab.Axe()
		p.ok(err)
		for _, violation := range found {
			where[violation] = append(where[violation], fmt.Sprintf("%s at %d px", look.Theme, look.Width))
		}
	}
	for _, violation := range slices.Sorted(maps.Keys(where)) {
		p.t.Errorf("%s, %s: %s", when, strings.Join(where[violation], ", "), violation)
	}
	p.ok(p.tab.SetLook(browser.Look{Still: true}))
}

// accessible runs axe-core in every state that the story has.
func accessible(t *testing.T, v *venue) {
	lab := startLab(t)
	p := v.visit(t, lab, "#ttl=2", browser.Look{Still: true})
	p.clean("at the start")
	p.overlap()
	p.clean("two holders")
	p.do("A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	p.clean("corrupted")
	q := v.visit(t, lab, "#ttl=2&compare=on", browser.Look{Still: true})
	q.overlap()
	q.do("A", "wake")
	q.await(`document.querySelector("hf-ledger tr[data-verdict=refused]")`)
	q.click("#settings-open, summary, #settings")
	q.clean("refused, settings open")
}
