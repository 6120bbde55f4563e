package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/chromedp/chromedp"
)

// A Browser is one Chromium process with any number of tabs. Its methods may
// be called from several goroutines.
type Browser struct {
	ctx  context.Context
	stop context.CancelFunc
}

// names are what Chromium is called by Debian and by others.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"}

// find returns the path of the browser that CHROMIUM names, or of the first
// that is installed.
func find() (string, error) {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path, nil
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("no Chromium is installed: on Debian, run as root: apt-get update && apt-get install -y --no-install-recommends chromium; elsewhere, install it and name it in CHROMIUM=/path/to/it")
}

// Launch starts Chromium. The error says what to install if there is none.
// The process ends with [Browser.Close], and with this process in any case.
func Launch() (*Browser, error) {
	path, err := find()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		// As root, as in CI, Chromium runs only without its sandbox. It
		// visits nothing but our own page.
		chromedp.NoSandbox,
		chromedp.Flag("headless", "new"),
		// Nothing of the browser's own may speak to the network.
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-pings", true),
		// Scrollbars take room, as they do on most desks.
		chromedp.Flag("hide-scrollbars", false),
	)
	alloc, stopAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(alloc)
	both := func() { stop(); stopAlloc() }
	// The first Run starts the process and binds its life to this context,
	// so it must have no deadline of its own.
	if err := chromedp.Do(ctx); err != nil {
		both()
		return nil, fmt.Errorf("starting %s: %w", path, err)
	}
	return &Browser{ctx: ctx, stop: both}, nil
}

// Close ends the browser and waits until its process is gone.
func (b *Browser) Close() {
	ctx, cancel := context.WithTimeout(b.ctx, 10*time.Second)
	defer cancel()
	// An error here means that it is gone already: the rest is the same.
	_ = chromedp.Cancel(ctx)
	b.stop()
}
