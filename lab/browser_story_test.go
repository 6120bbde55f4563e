package lab_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/lab/internal/browser"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// A hand is how a visitor presses a button: with the mouse, or with the
// keyboard alone.
type hand func(p *visitor, css string)

func byClick(p *visitor, css string) { p.t.Helper(); p.click(css) }

// byKeyboard goes to an element with Tab or Shift+Tab, whichever way is
// shorter, sees that the focus is drawn, and presses Enter or Space.
func byKeyboard(p *visitor, css string) {
	p.t.Helper()
	p.walkTo(css)
	key := kb.Enter
	if len(css)%2 == 0 {
		key = " "
	}
	p.ok(p.tab.Press(key))
}

// direction is 1 if an element comes after what has the focus, -1 if before.
const direction = `((css) => {
	const stops = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
		.filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility({checkVisibilityCSS: true}));
	const want = document.querySelector(css), here = document.activeElement ?? document.body;
	return stops.includes(want) && here.compareDocumentPosition(want) & Node.DOCUMENT_POSITION_PRECEDING ? -1 : 1;
})`

// drawnAs is how an element is drawn in what may show the focus: a button that
// the guide points at has a ring without it, too.
const drawnAs = `((e) => { const s = getComputedStyle(e); return [s.outlineStyle === "none" ? "" : s.outline + s.outlineOffset, s.boxShadow, s.border].join(" "); })`

// walkTo moves the focus with the keyboard alone.
func (p *visitor) walkTo(css string) {
	p.t.Helper()
	here := `document.activeElement?.matches(` + quoted(css) + `)`
	first, before := eval[bool](p, `!!`+here), eval[string](p, drawnAs+`(document.querySelector(`+quoted(css)+`))`)
	for range 300 {
		if eval[bool](p, `!!`+here) {
			if now := eval[string](p, drawnAs+`(document.activeElement)`); now == before && !first {
				p.t.Errorf("the focus on %s cannot be seen: it is drawn as without it: %s", css, now)
			}
			p.inView(css)
			return
		}
		var modifiers []chromedp.Modifier
		if eval[int](p, direction+`(`+quoted(css)+`)`) < 0 {
			modifiers = append(modifiers, chromedp.ModifierShift)
		}
		p.ok(p.tab.Press(kb.Tab, modifiers...))
	}
	p.t.Fatalf("%s cannot be reached with Tab\n%s", css, p.situation())
}

// inView fails if the element with the focus is hidden behind something that
// stays in place.
func (p *visitor) inView(css string) {
	p.t.Helper()
	seen := eval[bool](p, `(() => {
		const e = document.activeElement, r = e.getBoundingClientRect();
		const spots = [[.5, .5], [.1, .5], [.9, .5], [.5, .2], [.5, .8]];
		return spots.some(([x, y]) => {
			const top = document.elementFromPoint(r.left + r.width * x, r.top + r.height * y);
			return top && (e.contains(top) || top.contains(e) || e.labels && [...e.labels].some((l) => l.contains(top)));
		});
	})()`)
	if !seen {
		p.t.Errorf("%s has the focus but cannot be seen: something covers it, or it lies outside the window", css)
	}
}

// press presses a worker's button, once it can be pressed, by hand.
func (p *visitor) press(by hand, worker, do string) {
	p.t.Helper()
	p.can(worker, do)
	by(p, button(worker, do))
}

func fiveStepsByClicks(t *testing.T, v *venue) { fiveSteps(t, v, byClick, browser.Look{}) }

func fiveStepsByKeyboard(t *testing.T, v *venue) {
	fiveSteps(t, v, byKeyboard, browser.Look{Still: true, Theme: "dark"})
}

// fiveSteps is the guided break, as a person lives it, with what they must
// see at each step.
func fiveSteps(t *testing.T, v *venue, by hand, look browser.Look) {
	p := v.visit(t, startLab(t), "#ttl=2", look)
	p.listen()
	p.onStep(1)
	p.happyPath(by)
	p.pauseAndWatch(by)
	p.secondHolder(by)
	p.zombieOff(by)
	p.zombieOn(by)
}

// listen notes from now on what a screen reader would say by itself.
func (p *visitor) listen() {
	p.t.Helper()
	if got := p.attr("#said", "role"); got != "status" {
		p.t.Errorf("#said has the role %q", got)
	}
	eval[bool](p, `(() => {
		window.heard = [];
		new MutationObserver(() => window.heard.push(document.querySelector("#said").textContent))
			.observe(document.querySelector("#said"), {childList: true, characterData: true, subtree: true});
		return true;
	})()`)
}

// hears waits until a screen reader was given a text. The page takes its time,
// so that one sentence does not cut off the other; of a visitor who is faster
// than that it tells only the last few things.
func (p *visitor) hears(text string) {
	p.t.Helper()
	p.await(`window.heard.join(" | ").includes(` + quoted(text) + `)`)
}

// onStep waits for the guide to stand at a step, with something to do and
// something to watch said before the click.
func (p *visitor) onStep(n int) {
	p.t.Helper()
	p.await(`document.querySelector("hf-guide").dataset.step === "` + strconv.Itoa(n) + `"`)
	for _, part := range []string{"#guide-do", "#guide-watch"} {
		if len(p.text(part)) < 15 {
			p.t.Errorf("step %d: %s says only %q before the click", n, part, p.text(part))
		}
	}
}

// proved waits for the end of a step: one sentence says what it proved.
func (p *visitor) proved(n int) string {
	p.t.Helper()
	p.await(`Number(document.querySelector("hf-guide").dataset.done) >= ` + strconv.Itoa(n))
	p.await(`document.querySelector("#guide-proved").innerText.trim().length > 20`)
	return p.text("#guide-proved")
}

// cued fails unless the guide points at a worker's button.
func (p *visitor) cued(worker, do string) {
	p.t.Helper()
	p.await(`document.querySelector(` + quoted(button(worker, do)) + `).hasAttribute("data-cue")`)
}

// shows waits until the ticket in a worker's hand is one number, drawn.
func (p *visitor) shows(worker, token string) {
	p.t.Helper()
	card := `hf-worker[worker="` + worker + `"]`
	p.await(`document.querySelector(` + quoted(card) + `).dataset.token === ` + quoted(token))
	p.isShown(card+` hf-ticket`, token)
}

func (p *visitor) happyPath(by hand) {
	p.t.Helper()
	p.cued("A", "acquire")
	p.press(by, "A", "acquire")
	p.shows("A", "33")
	p.isShown("hf-service", "33")
	p.cued("A", "write")
	p.press(by, "A", "write")
	rows := p.awaitRows(1)
	if len(rows) != 1 || rows[0].Token != "33" || rows[0].Verdict != "accepted" || rows[0].Bad {
		p.t.Fatalf("the happy path's ledger: %+v", rows)
	}
	p.contains("the first row", rows[0].Text, "A", "33", "accepted")
	p.proved(1)
	p.hears("Step 1 is done")
	by(p, "#next")
}

// frozenSigns is what tells that A stands still: its own bar and what is
// written on its card.
const frozenSigns = `(() => { const c = document.querySelector("hf-worker[worker=A]"); return [
	document.querySelector("hf-lease [data-view=client]").getAttribute("aria-valuenow"), c.dataset.token,
	...[...c.querySelectorAll(".clock, [data-view=client], .lease-figure")].map((e) => e.innerText + (e.getAttribute("aria-valuenow") ?? ""))].join("|"); })()`

func (p *visitor) pauseAndWatch(by hand) {
	p.t.Helper()
	p.onStep(2)
	p.cued("A", "pause")
	p.press(by, "A", "pause")
	p.await(`document.querySelector("hf-worker[worker=A]").hasAttribute("data-stopped")`)
	p.isShown("hf-worker[worker=A]", "stopped")
	p.hears("A is stopped")
	p.await(`Number(document.querySelector("hf-lease [data-view=server]").getAttribute("aria-valuenow")) < 1.9`)
	before := eval[string](p, frozenSigns)
	p.await(`document.querySelector("hf-lease").hasAttribute("data-empty")`)
	p.await(`(document.querySelector("hf-service").dataset.holder ?? "") === ""`)
	if after := eval[string](p, frozenSigns); after != before {
		p.t.Errorf("A was frozen at %q, and now shows %q", before, after)
	}
	if got := p.attr("hf-lease [data-view=server]", "aria-valuenow"); got != "0" && got != "0.0" {
		p.t.Errorf("the lease ran out, and the server's bar stands at %s s", got)
	}
	if drawn := eval[float64](p, `document.querySelector("hf-lease [data-view=server]").firstElementChild.getBoundingClientRect().width`); drawn > 1 {
		p.t.Errorf("the lease ran out, and %v pixels of it are drawn", drawn)
	}
	p.shows("A", "33")
	p.proved(2)
	by(p, "#next")
}

func (p *visitor) secondHolder(by hand) {
	p.t.Helper()
	p.onStep(3)
	p.cued("B", "acquire")
	p.press(by, "B", "acquire")
	p.shows("B", "34")
	a, b := p.number(`hf-worker[worker="A"]`), p.number(`hf-worker[worker="B"]`)
	if b != a+1 {
		p.t.Errorf("A's ticket shows %d and B's %d: want one more", a, b)
	}
	p.isShown("hf-timeline [data-overlap], hf-timeline [data-overlap] *", "two holders")
	p.await(`document.querySelector("hf-timeline").dataset.overlaps === "1"`)
	p.press(by, "B", "write")
	rows := p.awaitRows(2)
	if rows[1].Token != "34" || rows[1].Verdict != "accepted" || rows[1].Bad {
		p.t.Errorf("B's row: %+v", rows[1])
	}
	p.proved(3)
	by(p, "#next")
}

// number is the number drawn on the ticket that a worker holds.
func (p *visitor) number(card string) int {
	p.t.Helper()
	text := eval[string](p, `document.querySelector(`+quoted(card+" hf-ticket")+`).textContent`)
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		p.t.Fatalf("the ticket of %s shows %q", card, text)
	}
	return n
}

func (p *visitor) zombieOff(by hand) {
	p.t.Helper()
	p.onStep(4)
	if got := p.attr("#compare", "aria-checked"); got != "false" {
		p.t.Errorf("the gate's switch says aria-checked=%q before the write past it", got)
	}
	if red := p.redThings(); len(red) != 0 {
		p.t.Errorf("red before anything is broken: %q", red)
	}
	p.cued("A", "wake")
	p.press(by, "A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	rows := p.awaitRows(3)
	last := rows[2]
	if last.Token != "33" || last.Verdict != "accepted" || !last.Bad {
		p.t.Errorf("the zombie's row with fencing off: %+v", last)
	}
	p.await(`document.querySelector("#ledger-verdict").innerText.toLowerCase().includes("corrupt")`)
	red := strings.Join(p.redThings(), " ")
	p.contains("what is red", red, "seq="+last.Seq, "around the verdict")
	if strings.Contains(red, "seq="+rows[0].Seq+" ") {
		p.t.Errorf("the honest first row is red: %s", red)
	}
	p.proved(4)
	p.hears("The ledger is corrupted")
	by(p, "#next")
}

func (p *visitor) zombieOn(by hand) {
	p.t.Helper()
	p.onStep(5)
	p.await(`document.querySelector("hf-gate").dataset.compare === "on" || document.querySelector("#compare[data-cue], #reset[data-cue]")`)
	p.replay(by)
	p.await(`document.querySelector("hf-ledger tr[data-verdict=refused]")`)
	rows := p.rows()
	last := rows[len(rows)-1]
	if len(rows) != 3 || last.Token != "33" || last.Verdict != "refused" || last.Bad {
		p.t.Errorf("the zombie's row with fencing on: %+v of %+v", last, rows)
	}
	p.contains("the refused row", last.Text, "33 < 34")
	p.isShown("hf-gate", "33 < 34")
	if got := p.attr("hf-gate", "data-arm"); got != "down" {
		p.t.Errorf("the arm is %q as it refuses: want it down", got)
	}
	if got := p.attr("hf-ledger", "data-verdict"); got != "whole" {
		p.t.Errorf("the ledger is %q with fencing on", got)
	}
	if red := p.redThings(); len(red) != 0 {
		p.t.Errorf("red, though nothing is broken: %q", red)
	}
	p.proved(5)
	p.hears("33 is less than 34")
	p.isShown("hf-guide", "could A have known")
	p.isShown(`hf-timeline [data-mark="last-look"], hf-timeline [data-mark="last-look"] *, hf-timeline [data-kind="last-look"], hf-timeline [data-kind="last-look"] *`, "")
}

// replay does what the guide's cue points at until the zombie has been woken:
// the fifth step is the same story once more.
func (p *visitor) replay(by hand) {
	p.t.Helper()
	deadline := time.Now().Add(2 * patience)
	for time.Now().Before(deadline) {
		p.await(`document.querySelector("hf-ledger tr[data-verdict=refused]") || document.querySelector("[data-cue]:not([aria-disabled=true])")`)
		if eval[bool](p, `!!document.querySelector("hf-ledger tr[data-verdict=refused]")`) {
			return
		}
		css := eval[string](p, `(e => !e ? "" : e.id ? "#" + e.id : "button[data-do=\"" + e.dataset.do + "\"][data-worker=\"" + e.dataset.worker + "\"]")(document.querySelector("[data-cue]:not([aria-disabled=true])"))`)
		if css == "" {
			continue
		}
		by(p, css)
		// One press a cue: wait until the page has taken it.
		p.await(`!document.querySelector(` + quoted(css+"[data-cue]:not([aria-disabled=true])") + `)`)
	}
	p.t.Fatalf("the fifth step never came to its end\n%s", p.situation())
}

// redThings lists what on the page is drawn in the one red: every visible
// element whose colour, background, border or fill is it and whose parent's is
// not (colour is inherited), by a short name.
func (p *visitor) redThings() []string {
	p.t.Helper()
	return eval[[]string](p, `(() => {
		const probe = document.createElement("span");
		document.body.append(probe);
		const reds = new Set();
		for (const name of ["--broken", "--broken-fill", "--broken-wash"]) {
			probe.style.setProperty("color", "var(" + name + ")");
			reds.add(getComputedStyle(probe).color);
		}
		probe.remove();
		const drawn = (e) => {
			const s = getComputedStyle(e), all = [];
			if ([...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) all.push(s.color);
			if (s.backgroundColor !== "rgba(0, 0, 0, 0)") all.push(s.backgroundColor);
			for (const side of ["Top", "Right", "Bottom", "Left"]) if (parseFloat(s["border" + side + "Width"]) > 0) all.push(s["border" + side + "Color"]);
			if (e instanceof SVGGeometryElement) all.push(s.fill, s.stroke);
			return all.some((c) => reds.has(c));
		};
		return [...document.body.querySelectorAll("*")].filter((e) => e.checkVisibility() && drawn(e)).map((e) => {
			const row = e.closest("tr[data-seq]"), near = e.closest("[id]"), box = e.closest("[data-hf]");
			return (e.contains(document.querySelector("#ledger-verdict")) && box !== null ? "around the verdict: " : "") + (row ? "seq=" + row.dataset.seq : near ? near.id : "") + " " + e.tagName + "." + e.getAttribute("class") + " in " + (box ? box.tagName.toLowerCase() : "the frame") + " ";
		});
	})()`)
}
