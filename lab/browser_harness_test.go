package lab_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/lab/internal/browser"
)

// patience bounds every wait for something that should come at once. The
// machine may be busy with other packages' tests.
const patience = time.Minute

// A visitor is a person with a browser of their own before one lab.
type visitor struct {
	t   *testing.T
	tab *browser.Tab
}

// A venue is what the tests of the page share: one browser.
type venue struct {
	browser *browser.Browser
}

// TestPageInBrowser lets visitors use the real page, served by the real lab,
// in a real browser. Every visitor is also watched for faults: whatever the
// page writes to the console as an error, throws, asks of another origin, or
// does against its own policy fails the test.
func TestPageInBrowser(t *testing.T) {
	b, err := browser.Launch()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	v := &venue{browser: b}
	for _, c := range pageTests {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(t, v)
		})
	}
}

// pageTests are what visitors do; the longest come first.
var pageTests = []struct {
	name string
	test func(*testing.T, *venue)
}{
	{"eight tabs and a ninth", eightTabs},
	{"five steps by clicks", fiveStepsByClicks},
	{"five steps by keyboard", fiveStepsByKeyboard},
	{"small screens", smallScreen},
	{"accessible in every state", accessible},
	{"killed server", killedServer},
	{"hostile values", hostileValues},
	{"play it for me", playItForMe},
	{"pause, step and speed", pauseStepSpeed},
	{"the bar drains and snaps", barDrains},
	{"link carries the settings", linkCarries},
	{"reset is quick", resetIsQuick},
	{"two tabs", twoTabs},
	{"imitated workers", imitated},
	{"free play", freePlay},
	{"reload keeps the world", reloadKeeps},
	{"reduced motion", reducedMotion},
	{"no sideways scroll", noSidewaysScroll},
	{"nothing is cut", nothingCut},
	{"forced colours", forcedColours},
	{"a double press resets once", resetOnce},
	{"a written setting stays", ttlSetting},
	{"marking an event everywhere", marking},
	{"log downloads", logDownloads},
}

// visit opens the lab's page with a hash (which may be empty) in a browser of
// its own, and waits until its world is there.
func (v *venue) visit(t *testing.T, lab string, hash string, look browser.Look) *visitor {
	t.Helper()
	p := v.arrive(t, lab, hash, look)
	p.settled()
	return p
}

// arrive is visit without the wait; faults with a forgiven text are none.
func (v *venue) arrive(t *testing.T, lab string, hash string, look browser.Look, forgiven ...string) *visitor {
	t.Helper()
	tab, err := v.browser.Open(look)
	if err != nil {
		t.Fatal(err)
	}
	p := &visitor{t: t, tab: tab}
	p.watch()
	tab.Forgive(forgiven...)
	p.ok(tab.Go(lab + "/lab" + hash))
	return p
}

// beside opens a second tab of the same person.
func (p *visitor) beside(lab, hash string) *visitor {
	p.t.Helper()
	tab, err := p.tab.Beside()
	p.ok(err)
	q := &visitor{t: p.t, tab: tab}
	q.watch()
	q.ok(tab.Go(lab + "/lab" + hash))
	q.settled()
	return q
}

// watch closes the tab at the end, and fails the test for each of its faults.
func (p *visitor) watch() {
	p.t.Cleanup(func() {
		p.tab.Close()
		for _, fault := range p.tab.Faults() {
			p.t.Errorf("the page did what it must not: %s", fault)
		}
	})
}

func (p *visitor) ok(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// settled waits until the page is connected to its world.
func (p *visitor) settled() {
	p.t.Helper()
	p.await(`["live", "polling"].includes(document.body.dataset.connection)`)
	p.await(`document.querySelector("hf-gate")?.dataset.mark === "32"`)
}

// await waits until a JavaScript expression is truthy.
func (p *visitor) await(expression string) {
	p.t.Helper()
	if err := p.tab.Await(expression, patience); err != nil {
		p.t.Fatalf("%v\n%s", err, p.situation())
	}
}

// situation is what the page shows, for a failure that can be understood.
func (p *visitor) situation() string {
	text, err := browser.Eval[string](p.tab, `[document.body.dataset.connection, document.querySelector("hf-guide")?.outerHTML.match(/^<[^>]*>/)?.[0], document.body.innerText].join("\n")`)
	if err != nil {
		return err.Error()
	}
	return "the page shows: " + text
}

func eval[T any](p *visitor, expression string) T {
	p.t.Helper()
	v, err := browser.Eval[T](p.tab, expression)
	p.ok(err)
	return v
}

func (p *visitor) click(css string) {
	p.t.Helper()
	if err := p.tab.Click(css); err != nil {
		p.t.Fatalf("%v\n%s", err, p.situation())
	}
}

// quoted is a Go string as a JavaScript literal.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// text is what a person reads in the first element that css selects.
func (p *visitor) text(css string) string {
	p.t.Helper()
	return eval[string](p, `document.querySelector(`+quoted(css)+`).innerText`)
}

// attr is an attribute's value, or "" without it.
func (p *visitor) attr(css, name string) string {
	p.t.Helper()
	return eval[string](p, `document.querySelector(`+quoted(css)+`).getAttribute(`+quoted(name)+`) ?? ""`)
}

// button is the selector of one of a worker's buttons.
func button(worker, do string) string {
	return `button[data-do="` + do + `"][data-worker="` + worker + `"]`
}

// can waits until a worker's button may be pressed.
func (p *visitor) can(worker, do string) {
	p.t.Helper()
	p.await(`(b => b && b.getAttribute("aria-disabled") !== "true" && !b.disabled)(document.querySelector(` + quoted(button(worker, do)) + `))`)
}

// do clicks a worker's button once it can be pressed.
func (p *visitor) do(worker, do string) {
	p.t.Helper()
	p.can(worker, do)
	p.click(button(worker, do))
}

// isShown waits until a text is visible within the element that css selects.
func (p *visitor) isShown(css, text string) {
	p.t.Helper()
	p.await(`[...document.querySelectorAll(` + quoted(css) + `)].some((e) => e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true}) && (e.innerText ?? e.textContent).replace(/\s+/g, " ").includes(` + quoted(text) + `))`)
}

// A row is one write of this round in the ledger.
type row struct {
	Token, Verdict string
	Bad            bool
	Text           string
	Seq            string
}

// readRows reads what the ledger shows.
const readRows = `[...document.querySelectorAll("hf-ledger tr[data-seq]")].map((r) => ({
	Token: r.dataset.token, Verdict: r.dataset.verdict, Bad: r.hasAttribute("data-bad") && r.dataset.bad !== "false",
	Text: r.innerText.replace(/\s+/g, " ").trim(), Seq: r.dataset.seq}))`

// rows are the ledger's writes since the round began, as a person reads them.
func (p *visitor) rows() []row {
	p.t.Helper()
	var own []row
	for _, r := range eval[[]row](p, readRows) {
		if r.Seq != "" && r.Seq != "0" {
			own = append(own, r)
		}
	}
	return own
}

// awaitRows waits until the ledger shows so many writes of this round.
func (p *visitor) awaitRows(n int) []row {
	p.t.Helper()
	p.await(`document.querySelectorAll("hf-ledger tr[data-seq]:not([data-seq=''])").length >= ` + strconv.Itoa(n))
	return p.rows()
}

// contains fails unless text has every one of parts.
func (p *visitor) contains(what, text string, parts ...string) {
	p.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			p.t.Errorf("%s says %q: want %q in it", what, text, part)
		}
	}
}
