package lab_test

import (
	"strconv"
	"testing"
	"time"

	"holdfast/lab/internal/browser"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// pressAtSight presses a worker's button as somebody on a phone does, who
// presses what the guide points at, where it is: nothing is scrolled for it.
func (p *visitor) pressAtSight(css string) {
	p.t.Helper()
	p.await(`document.querySelector(` + quoted(css) + `)?.hasAttribute("data-cue")`)
	p.inSight(css)
	if err := p.tab.ClickInPlace(css); err != nil {
		p.t.Fatalf("%v\n%s", err, p.situation())
	}
}

// inSight waits until something is seen whole, with nothing on top of it.
func (p *visitor) inSight(css string) {
	p.t.Helper()
	hidden := `((e) => {
		if (!e) return "it is not there";
		const r = e.getBoundingClientRect(), lies = " lies from " + r.top + " to " + r.bottom + " of " + innerHeight + ", scrolled by " + scrollY;
		if (r.width === 0 || r.top < 0 || r.bottom > innerHeight) return "outside the window:" + lies;
		for (const [x, y] of [[.5, .5], [.5, .04], [.5, .96]]) {
			const top = document.elementFromPoint(r.left + r.width * x, r.top + r.height * y);
			if (!top || !(e.contains(top) || top.contains(e))) return "covered by " + (top?.outerHTML ?? "nothing").slice(0, 80) + ":" + lies;
		}
		return "";
	})(document.querySelector(` + quoted(css) + `))`
	deadline := time.Now().Add(patience)
	for eval[string](p, hidden) != "" {
		if time.Now().After(deadline) {
			p.t.Fatalf("%s cannot be seen: %s\n%s", css, eval[string](p, hidden), p.situation())
		}
	}
}

// smallScreen goes through the story with windows in which the stage does not
// fit: what the guide tells to watch is seen when it happens, and nobody has
// to look for it.
func smallScreen(t *testing.T, v *venue) {
	for _, size := range [][2]int{{390, 844}, {360, 740}, {1280, 720}} {
		p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Width: size[0], Height: size[1], Still: size[0] != 390})
		p.pressAtSight(button("A", "acquire"))
		p.pressAtSight(button("A", "write"))
		p.inSight("hf-ledger")
		p.pressAtSight("#next")
		p.pressAtSight(button("A", "pause"))
		p.inSight("hf-lease")
		p.proved(2)
		p.inSight("hf-lease")
		p.pressAtSight("#next")
		p.pressAtSight(button("B", "acquire"))
		p.pressAtSight(button("B", "write"))
		p.inSight("[data-overlap] .overlap-label")
		p.inSight("hf-ledger tr[data-token='34']")
		p.pressAtSight("#next")
		p.inSight("hf-worker[worker=A]")
		p.pressAtSight(button("A", "wake"))
		p.inSight("hf-ledger[data-verdict=corrupted]")
		p.pressAtSight("#next")
		p.notDone()
		p.replay(func(p *visitor, css string) { p.t.Helper(); p.pressAtSight(css) })
		p.inSight("hf-gate[data-arm=down]")
	}
}

// notDone fails if the fifth step, which begins with a reset, counts what was
// done before it.
func (p *visitor) notDone() {
	p.t.Helper()
	p.onStep(5)
	p.await(`document.querySelectorAll("#guide-actions li").length > 5`)
	if done := eval[[]string](p, `[...document.querySelectorAll("#guide-actions li[data-done]")].map((e) => e.innerText)`); len(done) != 0 {
		p.t.Errorf("before the reset these count as done: %q", done)
	}
}

// nothingCut looks at every word of the stage in windows of many sizes: all of
// it lies within its card, and within the window.
func nothingCut(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	look := func(when string) {
		for _, size := range [][2]int{{360, 740}, {390, 844}, {768, 1024}, {1200, 700}, {1280, 720}, {1366, 768}, {1440, 900}, {1920, 1080}, {2560, 1440}} {
			p.ok(p.tab.SetLook(browser.Look{Width: size[0], Height: size[1], Still: true}))
			p.await(`innerWidth === ` + strconv.Itoa(size[0]))
			if cut := p.cut(); len(cut) != 0 {
				t.Errorf("%s, at %d × %d: %q", when, size[0], size[1], cut)
			}
		}
		p.ok(p.tab.SetLook(browser.Look{Still: true}))
	}
	look("at the start")
	p.overlap()
	// From ten seconds on the clocks need another figure.
	deadline := time.Now().Add(patience)
	for eval[float64](p, `parseFloat(document.querySelector("hf-service .clock .figures").innerText)`) < 10 {
		if time.Now().After(deadline) {
			t.Fatal("the service's clock never shows ten seconds")
		}
	}
	look("two holders")
	p.do("A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	look("corrupted")
}

// cut lists the texts that reach out of the card in which they stand, and the
// heads that need a second line.
func (p *visitor) cut() []string {
	p.t.Helper()
	return eval[[]string](p, `(() => {
		const bad = [];
		for (const card of document.querySelectorAll(".stage > *, .guide-bar > button, #guide-body, .tools > *")) {
			const room = card.getBoundingClientRect(), texts = document.createTreeWalker(card, NodeFilter.SHOW_TEXT);
			for (let node = texts.nextNode(); node; node = texts.nextNode()) {
				const e = node.parentElement;
				if (!node.data.trim() || e.closest(".unseen, option") || !e.checkVisibility({checkVisibilityCSS: true})) continue;
				const range = document.createRange();
				range.selectNodeContents(node);
				const r = range.getBoundingClientRect();
				if (r.width > 0 && (r.left < room.left - 0.5 || r.right > room.right + 0.5))
					bad.push(node.data.trim() + " reaches from " + r.left + " to " + r.right + " in " + (card.id || card.tagName) + ", which lies from " + room.left + " to " + room.right);
			}
		}
		for (const head of document.querySelectorAll("hf-worker .piece-head")) {
			const who = head.querySelector(".worker-who").getBoundingClientRect(), clock = head.querySelector(".clock").getBoundingClientRect();
			if (clock.top > who.bottom) bad.push("the clock of " + head.innerText + " lies below the name");
		}
		return bad;
	})()`)
}

// forcedColours looks at the page as people with a contrast theme do. Chromium
// puts paper in the page's own colour behind words then, unless it is told not
// to: whatever is written in that very colour would be blank.
func forcedColours(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true, Forced: true})
	p.do("A", "acquire")
	p.do("A", "write")
	p.proved(1)
	p.noBlanks("a step is done")
	p.do("A", "pause")
	p.do("B", "acquire")
	p.shows("B", "34")
	p.do("B", "write")
	p.awaitRows(2)
	p.do("A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	p.noBlanks("the ledger is corrupted")
}

// noBlanks looks for words in the colour of the page, in both themes.
func (p *visitor) noBlanks(when string) {
	p.t.Helper()
	for _, theme := range []string{"light", "dark"} {
		p.ok(p.tab.SetLook(browser.Look{Still: true, Forced: true, Theme: theme}))
		p.await(`matchMedia("(forced-colors: active) and (prefers-color-scheme: ` + theme + `)").matches`)
		blank := eval[[]string](p, `(() => {
			const probe = document.createElement("span");
			probe.style.setProperty("color", "Canvas");
			document.body.append(probe);
			const paper = getComputedStyle(probe).color;
			probe.remove();
			return [...document.querySelectorAll("body *:not(svg *)")].filter((e) => e.checkVisibility({checkVisibilityCSS: true}) && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
				.filter((e) => getComputedStyle(e).forcedColorAdjust !== "none" && getComputedStyle(e).color === paper).map((e) => e.textContent);
		})()`)
		if len(blank) != 0 {
			p.t.Errorf("%s: with forced colours, %s, these words are blank: %q", when, theme, blank)
		}
	}
}

// resetOnce presses reset as impatient people do.
func resetOnce(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	p.do("A", "acquire")
	p.shows("A", "33")
	eval[bool](p, `(b => (b.click(), b.click(), b.click(), true))(document.querySelector("#reset"))`)
	p.await(`document.querySelector("hf-worker[worker=A]").dataset.token === ""`)
	p.do("A", "acquire") // a second reset would still be under way, or take this away
	p.shows("A", "33")
	log := eval[string](p, `fetch(document.querySelector("#download").href).then((r) => r.text())`)
	p.contains("the log", log, `"round":2`)
}

// ttlSetting has a visitor write another length of a lease with the keyboard,
// and take their time over it while a worker renews its lease.
func ttlSetting(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	p.do("A", "acquire")
	p.shows("A", "33")
	p.click("#settings summary")
	p.click("#ttl")
	p.ok(p.tab.Press("a", chromedp.ModifierCtrl))
	p.ok(p.tab.Type("5"))
	p.walkTo("#apply-ttl")
	ticks := `document.querySelectorAll("hf-timeline .tick").length`
	before := eval[int](p, ticks)
	p.await(ticks + ` > ` + strconv.Itoa(before+1))
	if got := eval[string](p, `document.querySelector("#ttl").value`); got != "5" {
		t.Errorf("after the visitor wrote 5, the field says %q", got)
	}
	p.ok(p.tab.Press(kb.Enter))
	p.await(`Number(document.querySelector("hf-lease [data-view=server]").getAttribute("aria-valuemax")) === 5`)
	p.await(`!document.querySelector("#settings").open`)
}
