package lab_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast/lab/internal/browser"

	"github.com/chromedp/chromedp/kb"
)

// barDrains looks at the lease for some seconds as a person does: what is
// drawn shrinks with time and snaps back at each renewal.
func barDrains(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=3", browser.Look{})
	p.do("A", "acquire")
	for _, view := range []string{"server", "client"} {
		p.await(`Number(document.querySelector("hf-lease [data-view=` + view + `]").getAttribute("aria-valuenow")) > 0`)
		looks := eval[[]glance](p, `new Promise((done) => {
			const looks = [], from = performance.now(), bar = document.querySelector("hf-lease [data-view=`+view+`]");
			const look = () => {
				looks.push({Now: Number(bar.getAttribute("aria-valuenow")), Width: bar.firstElementChild.getBoundingClientRect().width / bar.getBoundingClientRect().width});
				if (performance.now() - from < 4000) requestAnimationFrame(look); else done(looks);
			};
			look();
		})`)
		d := drains(looks)
		t.Logf("%s: %d looks, %d times shorter, %d snaps, between %.2f and %.2f of the bar; the figure fell %d times", view, len(looks), d.fell, d.snaps, d.low, d.high, d.figures)
		if d.fell < 20 || d.snaps < 3 || d.high-d.low < 0.08 || d.figures < 3 {
			t.Errorf("the %s's bar does not drain and snap back", view)
		}
	}
}

// A glance is what a bar shows at one moment: its figure, and how much of it
// is drawn full.
type glance struct{ Now, Width float64 }

// drained is what a bar did while it was looked at.
type drained struct {
	fell, snaps, figures int
	low, high            float64
}

// drains counts. A snap is drawn over some frames, so it counts once.
func drains(looks []glance) drained {
	d := drained{low: looks[0].Width, high: looks[0].Width}
	rising := false
	for i := 1; i < len(looks); i++ {
		switch by := looks[i].Width - looks[i-1].Width; {
		case by < 0:
			d.fell++
			rising = false
		case by > 0.01 && !rising:
			d.snaps++
			rising = true
		}
		if looks[i].Now < looks[i-1].Now {
			d.figures++
		}
		d.low, d.high = min(d.low, looks[i].Width), max(d.high, looks[i].Width)
	}
	return d
}

// playItForMe lets the page play the whole story by itself.
func playItForMe(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2&speed=4", browser.Look{Still: true})
	for n, sign := range []string{
		`document.querySelectorAll("hf-ledger tr[data-seq][data-token='33'][data-verdict=accepted]").length === 1`,
		`document.querySelector("hf-worker[worker=A]").hasAttribute("data-stopped")`,
		`document.querySelector("hf-worker[worker=B]").dataset.token === "34"`,
		`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`,
		`document.querySelector("hf-ledger tr[data-verdict=refused]") && document.querySelector("hf-ledger").dataset.verdict === "whole"`,
	} {
		p.onStep(n + 1)
		p.click("#play")
		p.await(sign)
		p.proved(n + 1)
		if n < 4 {
			p.click("#next")
		}
	}
	p.isShown("hf-guide", "could A have known")
}

// pauseStepSpeed holds the player's own buttons.
func pauseStepSpeed(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{})
	p.walkTo("#speed")
	p.ok(p.tab.Press(kb.ArrowDown))
	p.await(`Number(document.querySelector("#speed").value) === 2 && location.hash.includes("speed=2")`)
	playing := `document.querySelector("hf-guide").hasAttribute("data-playing")`
	p.click("#play")
	p.await(playing)
	p.click("#play-pause")
	p.isShown("#play-pause", "Go on")
	before := p.attr("hf-worker[worker=A]", "data-token")
	rows := len(p.rows())
	// While the player stands still, only steps move the story on.
	for range 6 {
		if len(p.rows()) > rows {
			break
		}
		p.await(`document.querySelector("#play-step").getAttribute("aria-disabled") !== "true"`)
		p.click("#play-step")
		p.await(`document.querySelector("hf-worker[worker=A]").dataset.token === "33"`)
	}
	if got := p.attr("hf-worker[worker=A]", "data-token"); got != "33" {
		t.Errorf("after single steps A shows %q (before: %q)", got, before)
	}
	p.click("#play-pause")
	p.isShown("#play-pause", "Pause")
	p.proved(1)
}

// resetIsQuick measures, in the page, how long a new round takes.
func resetIsQuick(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{})
	for range 3 {
		p.do("A", "acquire")
		p.do("A", "write")
		p.awaitRows(1)
		p.do("A", "pause")
		p.await(`document.querySelector("hf-worker[worker=A]").hasAttribute("data-stopped")`)
		eval[bool](p, `(() => {
			window.resetMs = 0;
			document.querySelector("#reset").addEventListener("click", () => {
				const from = performance.now();
				const look = () => {
					const a = document.querySelector("hf-worker[worker=A]");
					if (a.dataset.token === "" && !a.hasAttribute("data-stopped") && a.dataset.status === "idle" && document.querySelector("hf-gate").dataset.mark === "32")
						window.resetMs = performance.now() - from;
					else requestAnimationFrame(look);
				};
				look();
			}, {once: true, capture: true});
			return true;
		})()`)
		p.click("#reset")
		p.await(`window.resetMs > 0`)
		took := eval[float64](p, `window.resetMs`)
		t.Logf("a reset took %.0f ms", took)
		// An idle machine needs a twentieth of this; a busy one must not fail.
		if took > 5000 {
			t.Errorf("a reset took %.0f ms: want it within a second on an idle machine", took)
		}
		if rows := p.rows(); len(rows) != 0 {
			t.Errorf("after a reset the ledger still shows %+v", rows)
		}
	}
}

// linkCarries sets things by hand, takes the link, and opens it elsewhere.
func linkCarries(t *testing.T, v *venue) {
	lab := startLab(t)
	p := v.visit(t, lab, "#scene=paused-holder&ttl=5&compare=on&a=one%20%26%20two&b=%C3%A9t%C3%A9&theme=dark", browser.Look{Still: true})
	p.hasSettings("the link's", "one & two", "été", "on")
	if got := eval[string](p, `getComputedStyle(document.documentElement).colorScheme`); !strings.HasPrefix(got, "dark") {
		t.Errorf("a link with theme=dark shows %q", got)
	}
	p.walkTo("#theme")
	p.ok(p.tab.Press(kb.ArrowUp))
	p.await(`getComputedStyle(document.documentElement).colorScheme === "light" && location.hash.includes("theme=light")`)
	p.writeJob("A", "three = 3")
	p.click("#compare")
	p.await(`document.querySelector("hf-gate").dataset.compare === "off"`)
	p.await(`decodeURIComponent(location.hash.replaceAll("+", " ")).includes("three = 3")`)
	hash := eval[string](p, `location.hash`)
	q := v.visit(t, lab, hash, browser.Look{Still: true})
	q.hasSettings("the copied link's", "three = 3", "été", "off")
	q.await(`document.querySelector("#settings").textContent !== null && Number(document.querySelector("hf-lease [data-view=server]").getAttribute("aria-valuemax")) === 5`)
	// A link with nonsense opens the page all the same, with what is usual.
	r := v.visit(t, lab, "#scene=../../x&ttl=abc&compare=maybe&a=%&speed=-1&theme=plaid&__proto__=1", browser.Look{Still: true})
	r.await(`document.querySelector("hf-guide").dataset.step === "1"`)
}

func (p *visitor) hasSettings(what, a, b, compare string) {
	p.t.Helper()
	p.await(`document.querySelector("#value-A").value === ` + quoted(a))
	p.await(`document.querySelector("#value-B").value === ` + quoted(b))
	p.await(`document.querySelector("hf-gate").dataset.compare === ` + quoted(compare))
}

// awaitFile waits for a file that a browser saves, and returns what is in it.
func awaitFile(t *testing.T, folder, pattern string) []byte {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		// While it is being written it has another ending.
		names, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 1 {
			text, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
	t.Fatalf("no %s was saved", pattern)
	return nil
}

// logDownloads clicks the link to the event log, and reads what was saved.
func logDownloads(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	p.do("A", "acquire")
	p.do("A", "write")
	p.awaitRows(1)
	folder := t.TempDir()
	p.ok(p.tab.SaveIn(folder))
	p.click("#download")
	text := awaitFile(t, folder, "holdfast-lab-*.json")
	var log struct {
		Format string
		Events []struct {
			Seq   int
			Kind  string
			Token int
		}
	}
	if err := json.Unmarshal(text, &log); err != nil {
		t.Fatalf("the log is not JSON: %v: %.300s", err, text)
	}
	wrote := false
	for i, e := range log.Events {
		wrote = wrote || e.Kind == "wrote" && e.Token == 33
		if i > 0 && e.Seq <= log.Events[i-1].Seq {
			t.Errorf("the log's numbers do not rise: %d after %d", e.Seq, log.Events[i-1].Seq)
		}
	}
	if log.Format != "holdfast-lab-log/1" || !wrote {
		t.Errorf("the log has format %q and %d events; wrote with 33: %v", log.Format, len(log.Events), wrote)
	}
}

// freePlay leaves the guide and uses every button.
func freePlay(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	p.click("#free")
	p.do("A", "acquire")
	p.shows("A", "33")
	p.do("B", "acquire")
	p.await(`document.querySelector("hf-service").dataset.queue === "1"`)
	p.do("A", "release")
	p.shows("B", "34")
	p.do("B", "kill")
	p.await(`document.querySelector("hf-worker[worker=B]").dataset.status === "dead"`)
	p.do("A", "acquire")
	// The killed holder's lease must run out first.
	p.shows("A", "35")
	p.do("B", "start")
	p.await(`document.querySelector("hf-worker[worker=B]").dataset.status === "idle"`)
	p.can("B", "acquire")
	// A button that makes no sense says why not, can be reached, and does nothing.
	blocked := button("B", "wake")
	if p.attr(blocked, "aria-disabled") != "true" || eval[bool](p, `document.querySelector(`+quoted(blocked)+`).disabled`) {
		t.Error("B's wake cannot make sense, and is not marked as such in a way that keeps it reachable")
	}
	why := eval[string](p, `(b => (b.getAttribute("aria-describedby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ") + b.title)(document.querySelector(`+quoted(blocked)+`))`)
	if len(strings.TrimSpace(why)) < 8 {
		t.Errorf("B's wake does not say why not: %q", why)
	}
	p.click(blocked)
	p.await(`document.querySelector("hf-worker[worker=B]").dataset.status === "idle"`)
}

// reloadKeeps reloads the page in the middle of the story.
func reloadKeeps(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=8", browser.Look{Still: true})
	p.do("A", "acquire")
	p.do("A", "write")
	p.awaitRows(1)
	pid := p.text("hf-worker[worker=A]")
	p.ok(p.tab.Reload())
	p.await(`["live", "polling"].includes(document.body.dataset.connection)`)
	p.shows("A", "33")
	p.awaitRows(1)
	for _, word := range strings.Fields(pid) {
		if len(word) > 3 && strings.Trim(word, "0123456789") == "" && !strings.Contains(p.text("hf-worker[worker=A]"), word) {
			t.Errorf("after a reload A is another process: %s is gone", word)
		}
	}
}

// reducedMotion finds nothing that moves by itself for a visitor who asked
// for stillness, while everything still works.
func reducedMotion(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	p.do("A", "acquire")
	p.shows("A", "33")
	p.do("A", "write")
	p.awaitRows(1)
	moving := eval[[]string](p, `new Promise((done) => {
		const seen = new Set(), from = performance.now();
		const look = () => {
			for (const a of document.getAnimations()) {
				if (a.playState === "running" && (a.effect.getComputedTiming().duration > 10)) seen.add(a.effect.target?.outerHTML.slice(0, 80) ?? "?");
			}
			if (performance.now() - from < 1500) requestAnimationFrame(look); else done([...seen]);
		};
		look();
	})`)
	if len(moving) != 0 {
		t.Errorf("with reduced motion these still move: %q", moving)
	}
	p.do("A", "pause")
	p.await(`document.querySelector("hf-lease").hasAttribute("data-empty")`)
}

// noSidewaysScroll visits with narrow and wide windows.
func noSidewaysScroll(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=2", browser.Look{Still: true})
	look := func(when string) {
		for _, width := range []int{320, 360, 390, 600, 768, 1024, 1280, 1440, 1920, 3840} {
			p.ok(p.tab.SetLook(browser.Look{Width: width, Height: 800, Still: true}))
			p.await(`innerWidth === ` + strconv.Itoa(width))
			p.fits(when + " at " + strconv.Itoa(width) + " px")
		}
		p.ok(p.tab.SetLook(browser.Look{Still: true}))
	}
	look("at the start")
	p.overlap()
	p.do("A", "wake")
	p.await(`document.querySelector("hf-ledger").dataset.verdict === "corrupted"`)
	look("corrupted")
}

// overlap brings the story to where two think that they hold.
func (p *visitor) overlap() {
	p.t.Helper()
	p.do("A", "acquire")
	p.do("A", "write")
	p.awaitRows(1)
	p.do("A", "pause")
	p.await(`document.querySelector("hf-worker[worker=A]").hasAttribute("data-stopped")`)
	p.do("B", "acquire")
	p.shows("B", "34")
	p.do("B", "write")
	p.awaitRows(2)
}

// marking selects an event in one place and finds it marked elsewhere.
func marking(t *testing.T, v *venue) {
	p := v.visit(t, startLab(t), "#ttl=4", browser.Look{})
	p.do("A", "acquire")
	p.do("A", "write")
	rows := p.awaitRows(1)
	row := `hf-ledger tr[data-seq="` + rows[0].Seq + `"]`
	lit := `document.querySelectorAll("hf-timeline [data-lit], hf-timeline [data-selected], hf-timeline [aria-current]").length`
	before := eval[int](p, lit)
	at := eval[struct{ X, Y float64 }](p, `(r => ({X: r.left + r.width / 2, Y: r.top + r.height / 2}))((e => (e.scrollIntoView({block: "center", behavior: "instant"}), e.getBoundingClientRect()))(document.querySelector(`+quoted(row)+`)))`)
	p.ok(p.tab.MoveTo(at.X, at.Y))
	deadline := time.Now().Add(patience)
	for eval[int](p, lit) <= before {
		if time.Now().After(deadline) {
			t.Fatalf("pointing at the ledger's row marks nothing on the timeline\n%s", p.situation())
		}
	}
	// The same with the keyboard, both ways.
	p.ok(p.tab.MoveTo(0, 0))
	p.await(lit + ` === ` + strconv.Itoa(before))
	p.do("A", "write")
	rows = p.awaitRows(2)
	p.walkTo(`hf-ledger tr[data-seq="` + rows[1].Seq + `"]`)
	p.ok(p.tab.Press(kb.ArrowUp))
	p.await(`document.activeElement.matches(` + quoted(row) + `)`)
	p.await(`document.querySelector("hf-timeline [data-seq='` + rows[0].Seq + `']").matches("[data-lit], [data-selected], [aria-current]")`)
	p.walkTo(`hf-timeline [role=option]`)
	p.ok(p.tab.Press(kb.Home))
	for range 30 {
		p.await(`document.activeElement.matches("hf-timeline [role=option][data-lit]")`)
		if eval[bool](p, `document.querySelector(`+quoted(row)+`).hasAttribute("data-lit")`) {
			return
		}
		p.ok(p.tab.Press(kb.ArrowRight))
	}
	t.Errorf("walking along the timeline never marks the ledger's row\n%s", p.situation())
}
