package browser

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// faults collects what a page must not do. It hears events on the goroutine
// that reads from the browser, so it does nothing but note them.
type faults struct {
	mu      sync.Mutex
	origin  string // empty until the tab has gone somewhere
	all     []string
	ignored []string
}

// tellViolations runs before any script of a page: a violation of the content
// security policy becomes an error on the console, with its place.
const tellViolations = `addEventListener("securitypolicyviolation", (e) => {
	console.error("CSP violation of " + e.effectiveDirective + " by " + e.blockedURI + " at " + e.sourceFile + ":" + e.lineNumber + " " + e.sample);
}, true);`

// watch makes every document of the tab tell its violations.
func (f *faults) watch(ctx context.Context, t *chromedp.Target) error {
	_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: tellViolations})
	return err
}

func (f *faults) setOrigin(origin string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.origin = origin
}

func (f *faults) forgive(parts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ignored = append(f.ignored, parts...)
}

func (f *faults) list() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// hear notes an event that is a fault.
func (f *faults) hear(event any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			var words []string
			for _, arg := range e.Args {
				words = append(words, strings.Trim(string(arg.Value)+" "+arg.Description, ` "`))
			}
			f.note("console %s: %s", e.Type, strings.Join(words, " "))
		}
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		f.note("exception: %s at %s:%d", text, e.ExceptionDetails.URL, e.ExceptionDetails.LineNumber+1)
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			f.note("log %s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case *network.EventRequestWillBeSent:
		f.request(e.Request.URL)
	case *network.EventWebSocketCreated:
		f.note("a web socket to %s", e.URL)
	}
}

func (f *faults) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, part := range f.ignored {
		if strings.Contains(text, part) {
			return
		}
	}
	f.all = append(f.all, text)
}

// request notes a request that leaves the page's origin. What a page makes in
// itself (data:, blob:) leaves nothing.
func (f *faults) request(address string) {
	if f.origin == "" || strings.HasPrefix(address, "data:") || strings.HasPrefix(address, "blob:"+f.origin) {
		return
	}
	if address != f.origin && !strings.HasPrefix(address, f.origin+"/") {
		f.note("a request to %s, which is not %s", address, f.origin)
	}
}
