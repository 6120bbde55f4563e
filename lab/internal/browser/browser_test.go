package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"holdfast/lab/internal/browser"

	"github.com/chromedp/chromedp/kb"
)

// stub is a page that does what a page must not, when asked to.
const stub = `<!doctype html><html lang="en"><head><meta charset="utf-8"><title>stub</title><link rel="icon" href="data:,">
<script src="/stub.js"></script></head><body><main><h1>Stub</h1>
<button id="good">Good</button>
<div style="position:relative;height:60px"><button id="under">Under</button><div style="position:absolute;inset:0">over</div></div>
<input id="text" aria-label="text"><p id="out"></p><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" %s></main></body></html>`

const script = `addEventListener("DOMContentLoaded", () => {
	document.getElementById("good").addEventListener("click", (e) => { document.getElementById("out").textContent = "pressed " + e.isTrusted; });
});`

func serve(t *testing.T, markup string) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src *; img-src data:; style-src 'unsafe-inline'")
		if r.URL.Path == "/stub.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, script)
			return
		}
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, markup)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// misdeeds are what a page may do wrong, each with the fault that must be
// heard.
var misdeeds = []struct{ do, want string }{
	{`console.error("broken")`, "console error: broken"},
	{`console.warn("odd")`, "console warning: odd"},
	{`setTimeout(() => { throw new Error("thrown") })`, "thrown"},
	{`Promise.reject(new Error("rejected"))`, "rejected"},
	{`fetch("/none").then(() => 1)`, "404"},
	{`fetch("http://127.0.0.1:9/x").catch(() => 1)`, "which is not http://127.0.0.1"},
	{`document.body.setAttribute("onclick", "1"), document.body.click()`, "CSP violation of script-src-attr"},
	{`document.body.insertAdjacentHTML("beforeend", "<img src=/x>")`, "CSP violation of img-src"},
}

// TestTheDriverSees holds the driver itself: it acts as a person does, and no
// kind of fault escapes it.
func TestTheDriverSees(t *testing.T) {
	b, err := browser.Launch()
	check(t, err)
	defer b.Close()
	open := func(t *testing.T, alt string) *browser.Tab {
		tab, err := b.Open(browser.Look{})
		check(t, err)
		t.Cleanup(tab.Close)
		check(t, tab.Go(serve(t, fmt.Sprintf(stub, alt))))
		return tab
	}
	t.Run("input", func(t *testing.T) {
		tab := open(t, `alt=""`)
		check(t, tab.Click("#good"))
		check(t, tab.Await(`document.getElementById("out").textContent === "pressed true"`, 5*time.Second))
		if err := tab.Click("#under"); err == nil || !strings.Contains(err.Error(), "covered") {
			t.Errorf("a covered button could be clicked: %v", err)
		}
		check(t, tab.Press(kb.Tab))
		check(t, tab.Press(kb.Tab))
		check(t, tab.Type("a\u202eb😀"))
		got, err := browser.Eval[string](tab, `document.getElementById("text").value`)
		check(t, err)
		if got != "a\u202eb😀" {
			t.Errorf("typed %q", got)
		}
		if faults := tab.Faults(); len(faults) != 0 {
			t.Errorf("faults of a good page: %q", faults)
		}
		if err := tab.Await("false", 50*time.Millisecond); err == nil {
			t.Error("awaiting what never comes succeeded")
		}
	})
	t.Run("faults", func(t *testing.T) {
		for _, c := range misdeeds {
			tab := open(t, `alt=""`)
			_, err := browser.Eval[*string](tab, `void (`+c.do+`)`)
			check(t, err)
			deadline := time.Now().Add(5 * time.Second)
			for !strings.Contains(strings.Join(tab.Faults(), "\n"), c.want) {
				if time.Now().After(deadline) {
					t.Fatalf("%s: faults %q: want %q", c.do, tab.Faults(), c.want)
				}
				check(t, tab.Await("true", time.Second))
			}
			tab.Close()
		}
	})
	t.Run("axe", func(t *testing.T) {
		good, bad := open(t, `alt=""`), open(t, ``)
		found, err := good.Axe()
		check(t, err)
		if len(found) != 0 {
			t.Errorf("violations of a good page: %q", found)
		}
		found, err = bad.Axe()
		check(t, err)
		if len(found) != 1 || !strings.HasPrefix(found[0], "image-alt") {
			t.Errorf("violations of an image without alt: %q", found)
		}
		shot, err := bad.Picture(true)
		check(t, err)
		if len(shot) < 1000 {
			t.Errorf("the picture has %d bytes", len(shot))
		}
	})
}
