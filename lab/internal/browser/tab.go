package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// limit bounds every single command to a tab, so that a page that hangs fails
// its test instead of stopping it.
const limit = 60 * time.Second

// A Tab is one page with storage of its own (unless it was opened beside
// another). Use it from one goroutine at a time.
type Tab struct {
	ctx    context.Context
	stop   context.CancelFunc
	look   Look
	faults faults
}

// A Look is how a person's screen and settings are. The zero value of a field
// takes what [Browser.Open] documents.
type Look struct {
	Width, Height int     // CSS pixels; 1440 by 900 if zero
	Scale         float64 // device pixels a CSS pixel; 1 if zero
	Theme         string  // "light" or "dark"; light if empty
	Still         bool    // prefers-reduced-motion: reduce
	Forced        bool    // forced-colors: active, as with a contrast theme
}

// Open opens an empty tab in a window of its own, with storage of its own, as
// if it were the browser of another person.
func (b *Browser) Open(look Look) (*Tab, error) {
	return open(b.ctx, look, chromedp.WithNewBrowserContext())
}

// Beside opens a second tab that shares cookies and storage with t, as when
// one person has two tabs.
func (t *Tab) Beside() (*Tab, error) {
	return open(t.ctx, t.look)
}

func open(parent context.Context, look Look, more ...chromedp.ContextOption) (*Tab, error) {
	t := &Tab{}
	t.ctx, t.stop = chromedp.NewContext(parent, append(more, chromedp.WithListener(t.faults.hear))...)
	if err := chromedp.Do(t.ctx); err != nil {
		t.stop()
		return nil, fmt.Errorf("opening a tab: %w", err)
	}
	if err := t.do(chromedp.Func(t.faults.watch)); err != nil {
		t.Close()
		return nil, err
	}
	if err := t.SetLook(look); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// Close closes the tab. Faults stay readable.
func (t *Tab) Close() { t.stop() }

// Faults returns what the page did that no page may do, in order. Requests
// count from the first [Tab.Go] on.
func (t *Tab) Faults() []string { return t.faults.list() }

// Forgive makes the tab ignore faults whose text contains one of parts, from
// now on: for tests that break something on purpose.
func (t *Tab) Forgive(parts ...string) { t.faults.forgive(parts) }

// do runs steps with the tab's limit.
func (t *Tab) do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

// SetLook changes screen and settings of the tab; zero fields take their
// defaults.
func (t *Tab) SetLook(look Look) error {
	if look.Width == 0 {
		look.Width, look.Height = 1440, 900
	}
	if look.Scale == 0 {
		look.Scale = 1
	}
	if look.Theme == "" {
		look.Theme = "light"
	}
	motion := "no-preference"
	if look.Still {
		motion = "reduce"
	}
	forced := "none"
	if look.Forced {
		forced = "active"
	}
	t.look = look
	return t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: look.Theme},
				{Name: "prefers-reduced-motion", Value: motion},
				{Name: "forced-colors", Value: forced},
			},
		})
		if err != nil {
			return err
		}
		_, err = cdp.Call(ctx, target, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: int64(look.Width), Height: int64(look.Height), DeviceScaleFactor: look.Scale,
		})
		return err
	}))
}

// Go opens address and waits until the page has loaded. The origin of address
// is the page's own from now on.
func (t *Tab) Go(address string) error {
	// What follows the hash is the page's own business, however it is written.
	before, _, _ := strings.Cut(address, "#")
	at, err := url.Parse(before)
	if err != nil {
		return err
	}
	t.faults.setOrigin(at.Scheme + "://" + at.Host)
	return t.do(chromedp.Navigate(address))
}

// Reload loads the page again.
func (t *Tab) Reload() error { return t.do(chromedp.Reload()) }

// Eval evaluates a JavaScript expression in the page, awaiting it if it is a
// promise, and decodes its JSON value into T.
func Eval[T any](t *Tab, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		return v, fmt.Errorf("evaluating %.200q: %w", expression, err)
	}
	return v, nil
}

// Await polls a JavaScript expression until it is truthy. The error says what
// the expression gave at last.
func (t *Tab) Await(expression string, within time.Duration) error {
	deadline := time.Now().Add(within)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := Eval[bool](t, "!!("+expression+")")
		if err == nil && ok {
			return nil
		}
		if time.Now().After(deadline) {
			if err != nil {
				return err
			}
			return fmt.Errorf("after %v still not: %s", within, expression)
		}
		select {
		case <-tick.C:
		case <-t.ctx.Done():
			return fmt.Errorf("awaiting %s: %w", expression, context.Cause(t.ctx))
		}
	}
}

// spot finds the middle of an element, scrolled into view if that is wanted,
// and who is drawn there on top.
const spot = `(async (css, scroll) => {
	const e = document.querySelector(css);
	if (!e) return {why: "there is no " + css};
	if (scroll) e.scrollIntoView({block: "center", inline: "nearest", behavior: "instant"});
	let r = e.getBoundingClientRect();
	for (let before = null, looks = 0; (!before || before.top !== r.top || before.left !== r.left) && looks < 60; looks++) {
		await new Promise((then) => setTimeout(then, 20));
		[before, r] = [r, e.getBoundingClientRect()];
	}
	if (r.width === 0 || r.height === 0) return {why: css + " has no size"};
	const x = r.left + r.width / 2, y = r.top + r.height / 2;
	const top = document.elementFromPoint(x, y);
	const label = top && top.closest("label");
	if (!top || !(e === top || e.contains(top) || (label && label.control === e)))
		return {why: css + " is covered at its middle (" + x + ", " + y + ") by " + (top ? top.outerHTML.slice(0, 120) : "nothing: it lies outside the window")};
	return {x, y};
})(%s, %t)`

// Click scrolls to the first element that css selects and presses the left
// mouse button in the middle of it, once it stands still. It fails if something
// else lies on top of that place, as a person would.
func (t *Tab) Click(css string) error { return t.click(css, true) }

// ClickInPlace is Click without scrolling: it fails if the place is not in view.
func (t *Tab) ClickInPlace(css string) error { return t.click(css, false) }

func (t *Tab) click(css string, scroll bool) error {
	quoted, err := json.Marshal(css)
	if err != nil {
		return err
	}
	at, err := Eval[struct {
		X, Y float64
		Why  string
	}](t, fmt.Sprintf(spot, quoted, scroll))
	if err != nil {
		return err
	}
	if at.Why != "" {
		return fmt.Errorf("cannot click: %s", at.Why)
	}
	return t.do(chromedp.MouseClickXY(at.X, at.Y))
}

// MoveTo moves the mouse to a place in the window, in CSS pixels.
func (t *Tab) MoveTo(x, y float64) error {
	return t.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, x, y))
}

// Press presses and releases a key: one of package kb, such as kb.Tab, or a
// character.
func (t *Tab) Press(key string, modifiers ...chromedp.Modifier) error {
	return t.do(chromedp.KeyEvent(key, chromedp.KeyModifiers(modifiers...)))
}

// Type inserts text at the caret as an input method does, in one piece: any
// character can be typed.
func (t *Tab) Type(text string) error {
	return t.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// SaveIn makes the tab save what it downloads in a folder, under its own name.
func (t *Tab) SaveIn(folder string) error {
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	_, err := chromedp.CallBrowser(ctx, cdpbrowser.SetDownloadBehavior, cdpbrowser.SetDownloadBehaviorParams{
		Behavior:         cdpbrowser.SetDownloadBehaviorBehaviorAllow,
		BrowserContextID: chromedp.FromContext(t.ctx).BrowserContextID,
		DownloadPath:     folder,
	})
	return err
}

// Picture returns what the tab shows now as a PNG, without scrollbars. With
// whole the window is made as high as the page for the moment, so that all of
// it is on the picture and what stays at the window's edge is at the page's.
func (t *Tab) Picture(whole bool) (png []byte, err error) {
	if whole {
		before := t.look
		for range 2 { // a higher window may change the height of what is in it
			height, err := Eval[int](t, `Math.ceil(document.documentElement.scrollHeight)`)
			if err != nil {
				return nil, err
			}
			look := before
			look.Height = max(height, before.Height)
			if err := t.SetLook(look); err != nil {
				return nil, err
			}
		}
		defer func() { err = errors.Join(err, t.SetLook(before)) }()
	}
	ctx, cancel := context.WithTimeout(t.ctx, limit)
	defer cancel()
	return chromedp.Run(ctx, func(ctx context.Context, target *chromedp.Target) ([]byte, error) {
		if err := hideScrollbars(ctx, target, true); err != nil {
			return nil, err
		}
		shot, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{Format: page.CaptureScreenshotFormatPng})
		if err != nil {
			return nil, err
		}
		return shot.Data, hideScrollbars(ctx, target, false)
	})
}

func hideScrollbars(ctx context.Context, target *chromedp.Target, hide bool) error {
	_, err := cdp.Call(ctx, target, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: hide})
	return err
}
