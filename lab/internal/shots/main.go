// Command shots takes pictures of the lab's page at each step of the guided
// story, light and dark, wide and narrow, with a real browser before a real
// lab: make shots.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"holdfast/lab/internal/browser"
)

// patience bounds every wait for the page.
const patience = 30 * time.Second

// screens are what is pictured; the names stand in the file names.
var screens = []struct {
	name string
	look browser.Look
}{
	{"light-wide", browser.Look{Theme: "light", Width: 1440, Height: 1000}},
	{"dark-wide", browser.Look{Theme: "dark", Width: 1440, Height: 1000}},
	{"light-narrow", browser.Look{Theme: "light", Width: 390, Height: 844, Scale: 2}},
	{"dark-narrow", browser.Look{Theme: "dark", Width: 390, Height: 844, Scale: 2}},
}

// steps are the story's, by number from 1.
var steps = []string{"happy-path", "pause", "second-holder", "zombie", "fenced"}

func main() {
	binary := flag.String("holdfast", "bin/holdfast", "the program whose lab is pictured")
	out := flag.String("out", "docs/pictures/lab", "the folder for the pictures")
	scale := flag.Float64("scale", 1, "device pixels a CSS pixel of the wide pictures")
	flag.Parse()
	for i := range screens {
		if screens[i].look.Scale == 0 {
			screens[i].look.Scale = *scale
		}
	}
	if err := run(*binary, *out); err != nil {
		fmt.Fprintln(os.Stderr, "shots:", err)
		os.Exit(1)
	}
}

func run(binary, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	cmd, address, err := startLab(binary)
	if err != nil {
		return err
	}
	// The lab's processes end with it, and its files are swept, however it ends.
	defer func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Wait() }()
	b, err := browser.Launch()
	if err != nil {
		return err
	}
	defer b.Close()
	var all sync.WaitGroup
	errs := make([]error, len(screens))
	for i, screen := range screens {
		all.Go(func() {
			if err := picture(b, address, screen.look, filepath.Join(out, "%s-"+screen.name+".png")); err != nil {
				errs[i] = fmt.Errorf("%s: %w", screen.name, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

var page = regexp.MustCompile(`http://\S+/lab\b`)

// startLab runs the lab until it has told the address of its page.
func startLab(binary string) (*exec.Cmd, string, error) {
	cmd := exec.Command(binary, "lab", "--listen", "127.0.0.1:0")
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if at := page.FindString(lines.Text()); at != "" {
			go func() { _, _ = io.Copy(io.Discard, said) }()
			return cmd, at, nil
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
	return nil, "", fmt.Errorf("%s lab ended before it told its address: %w", binary, cmd.Wait())
}

// cued is the button that the guide points at, as a selector, or "". To go on
// to the next step is not part of a step.
const cued = `(e => !e ? "" : e.id ? "#" + e.id : "button[data-do='" + e.dataset.do + "'][data-worker='" + e.dataset.worker + "']")(
	document.querySelector("[data-cue]:not([aria-disabled=true], #next)"))`

// picture lives the story on one screen and takes a picture before it and
// after each step. name has a %s for the moment.
func picture(b *browser.Browser, address string, look browser.Look, name string) error {
	tab, err := b.Open(look)
	if err != nil {
		return err
	}
	defer tab.Close()
	if err := tab.Go(address + "#ttl=4"); err != nil {
		return err
	}
	if err := tab.Await(`["live", "polling"].includes(document.body.dataset.connection) && document.querySelector("[data-cue]")`, patience); err != nil {
		return err
	}
	if err := shoot(tab, fmt.Sprintf(name, "0-start")); err != nil {
		return err
	}
	for i, step := range steps {
		if err := live(tab, i+1); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		if err := shoot(tab, fmt.Sprintf(name, fmt.Sprintf("%d-%s", i+1, step))); err != nil {
			return err
		}
		if i+1 < len(steps) {
			if err := tab.Click("#next"); err != nil {
				return err
			}
		}
	}
	if faults := tab.Faults(); len(faults) != 0 {
		return fmt.Errorf("the page did what it must not: %q", faults)
	}
	return nil
}

// live presses what the guide points at until the step is done.
func live(tab *browser.Tab, step int) error {
	done := fmt.Sprintf(`Number(document.querySelector("hf-guide").dataset.done) >= %d`, step)
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); {
		if err := tab.Await(done+` || `+cued, patience); err != nil {
			return err
		}
		css, err := browser.Eval[string](tab, done+` ? "" : `+cued)
		if err != nil || css == "" {
			return err
		}
		// A look at the bar between two clicks, as a person takes one.
		if _, err := browser.Eval[bool](tab, `new Promise((r) => setTimeout(() => r(true), 700))`); err != nil {
			return err
		}
		if err := tab.Click(css); err != nil {
			return err
		}
		if err := tab.Await(done+` || `+cued+` !== "`+css+`"`, patience); err != nil {
			return err
		}
	}
	return errors.New("it never came to its end")
}

// shoot lets what moves come to rest, and writes a picture of the whole page.
func shoot(tab *browser.Tab, name string) error {
	// The mouse points at nothing, which would explain itself.
	if err := tab.MoveTo(0, 0); err != nil {
		return err
	}
	// From the top; what has come into view stays drawn.
	rest := `(scrollTo({top: 0, behavior: "instant"}), new Promise((r) => setTimeout(r, 900)).then(() => true))`
	if _, err := browser.Eval[bool](tab, rest); err != nil {
		return err
	}
	png, err := tab.Picture(true)
	if err != nil {
		return err
	}
	return os.WriteFile(name, png, 0o644)
}
