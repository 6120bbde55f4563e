package lab_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"holdfast/lab/internal/browser"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// hostile are values that a visitor might write, or put into a link that they
// send to another: all of them are text, everywhere.
var hostile = []struct{ name, value string }{
	{"markup", `<img src=x onerror="document.title='owned'">`},
	{"script", `</script><script>document.title='owned'</script>`},
	{"quotes", `'"` + "`" + `${document.title='owned'}&lt;&amp;&#x3c;b>`},
	{"attribute", `" autofocus onfocus="document.title='owned'" x="`},
	{"right to left", "\u05e9\u05dc\u05d5\u05dd 33 \u0645\u0631\u062d\u0628\u0627"},
	{"80 emoji", strings.Repeat("🧾", 80)},
	{"no spaces", strings.Repeat("W", 80)},
	{"formula", `=HYPERLINK("x") %00 \u0000 {{7*7}} __proto__`},
}

// hostileValues types each value into A's job, writes it, and looks wherever
// it may show up. Then the value comes in by a link.
func hostileValues(t *testing.T, v *venue) {
	lab := startLab(t)
	p := v.visit(t, lab, "#ttl=10", browser.Look{Still: true})
	p.do("A", "acquire")
	for i, c := range hostile {
		p.writeJob("A", c.value)
		p.do("A", "write")
		rows := p.awaitRows(i + 1)
		p.isText(c.name, c.value)
		if got := eval[string](p, `[...document.querySelectorAll("hf-ledger tr[data-seq]")].at(-1).textContent`); !strings.Contains(got, c.value) {
			t.Errorf("%s: the ledger's row has %q: want %q in it (%+v)", c.name, got, c.value, rows[len(rows)-1])
		}
		p.fits(c.name)
	}
	for i := 0; i < len(hostile); i += 2 {
		a, b := hostile[i], hostile[i+1]
		link := fmt.Sprintf("#scene=paused-holder&ttl=2&a=%s&b=%s", url.QueryEscape(a.value), url.PathEscape(b.value))
		q := v.visit(t, lab, link, browser.Look{Width: 360, Height: 740, Still: true})
		q.await(`document.querySelector("#value-A").value === ` + quoted(a.value))
		q.await(`document.querySelector("#value-B").value === ` + quoted(b.value))
		q.isText("by link: "+a.name+", "+b.name, a.value)
		q.fits("by link: " + a.name + ", " + b.name)
		q.tab.Close()
	}
}

// writeJob puts a value into a worker's job as a person does: go to the field,
// select what is there, type, leave.
func (p *visitor) writeJob(worker, value string) {
	p.t.Helper()
	field := "#value-" + worker
	p.click(field)
	p.ok(p.tab.Press("a", chromedp.ModifierCtrl))
	p.ok(p.tab.Type(value))
	p.ok(p.tab.Press(kb.Tab))
	p.await(`document.querySelector("` + field + `").value === ` + quoted(value))
}

// isText fails if a value has become anything but text.
func (p *visitor) isText(name, value string) {
	p.t.Helper()
	if got := eval[string](p, `document.title`); strings.Contains(got, "owned") {
		p.t.Fatalf("%s: the value %q was executed", name, value)
	}
	foreign := eval[[]string](p, `[...document.querySelectorAll("img:not([src='lab/icon.svg']), iframe, object, embed, [onerror], [onfocus], [onclick], [autofocus], body script, script:not([src])")].map((e) => e.outerHTML.slice(0, 200))`)
	if len(foreign) != 0 {
		p.t.Errorf("%s: the value %q became markup: %q", name, value, foreign)
	}
}

// fits fails if the page is wider than its window.
func (p *visitor) fits(name string) {
	p.t.Helper()
	wide := eval[[]string](p, `(() => {
		const w = document.documentElement.clientWidth;
		if (document.documentElement.scrollWidth <= w && document.body.scrollWidth <= w) return [];
		return [...document.body.querySelectorAll(":not(svg *)")].filter((e) => e.getBoundingClientRect().right > w + 0.5).slice(0, 5)
			.map((e) => e.tagName + "." + (e.className.baseVal ?? e.className) + " reaches to " + e.getBoundingClientRect().right + " of " + w);
	})()`)
	if len(wide) != 0 {
		p.t.Errorf("%s: the page scrolls sideways: %q", name, wide)
	}
}
