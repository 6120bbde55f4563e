package lab_test

import (
	"bufio"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/lab/internal/browser"
)

// twoTabs gives two tabs of one person worlds of their own.
func twoTabs(t *testing.T, v *venue) {
	lab := startLab(t)
	p := v.visit(t, lab, "#ttl=10", browser.Look{Still: true})
	q := p.beside(lab, "#ttl=10")
	p.do("A", "acquire")
	p.shows("A", "33")
	q.do("B", "acquire")
	q.shows("B", "33")
	q.do("B", "write")
	q.awaitRows(1)
	if rows := p.rows(); len(rows) != 0 {
		t.Errorf("the first tab's ledger shows the second's rows: %+v", rows)
	}
	if got := p.attr("hf-worker[worker=B]", "data-status"); got != "idle" {
		t.Errorf("the first tab's B is %q by the second's doing", got)
	}
	p.do("A", "write")
	p.awaitRows(1)
}

// eightTabs fills the lab. A browser has six connections to a host, so most
// tabs must poll; all work, and a ninth visitor is told what to do.
func eightTabs(t *testing.T, v *venue) {
	begin := time.Now()
	lab := startLab(t)
	// Eight windows drawing sixty times a second at once are more than a small
	// machine without a graphics card has to give, and than a person looks at.
	tabs := []*visitor{v.visit(t, lab, "#ttl=10", browser.Look{Still: true})}
	for range 7 {
		tabs = append(tabs, tabs[0].beside(lab, "#ttl=10"))
	}
	t.Logf("%v: eight tabs are open", time.Since(begin))
	streams := 0
	for i, p := range tabs {
		p.do("A", "acquire")
		p.shows("A", "33")
		p.do("A", "write")
		p.awaitRows(1)
		if p.attr("body", "data-connection") == "live" {
			streams++
		}
		t.Logf("%v: tab %d is %s", time.Since(begin), i+1, p.attr("body", "data-connection"))
	}
	if streams == 0 || streams > 2 {
		t.Errorf("%d tabs stream: want one or two, so that six connections are enough", streams)
	}
	// The first tabs still hear of what happens.
	tabs[0].do("A", "release")
	tabs[0].await(`document.querySelector("hf-worker[worker=A]").dataset.status === "idle"`)
	ninth := v.arrive(t, lab, "", browser.Look{}, "status of 503")
	ninth.await(`document.querySelector("#banner").checkVisibility() && document.querySelector("#banner").innerText.trim().length > 20`)
	ninth.contains("the ninth's banner", ninth.text("#banner"), "8")
	t.Logf("%v: the ninth was told", time.Since(begin))
	// One leaves, and after some seconds its room is the ninth's to have.
	tabs[7].tab.Close()
	for deadline := time.Now().Add(patience); ; {
		ninth.ok(ninth.tab.Reload())
		ninth.await(`["live", "polling", "ended"].includes(document.body.dataset.connection)`)
		if ninth.attr("body", "data-connection") != "ended" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("one of eight pages was closed, and the ninth still has no world\n%s", ninth.situation())
		}
	}
	ninth.settled()
}

var saidAddress = regexp.MustCompile(`http://127\.0\.0\.1:(\d+)`)

// runLab starts the lab as a process of its own and returns its address.
func runLab(t *testing.T, binary, listen string) (*exec.Cmd, string) {
	t.Helper()
	cmd := exec.Command(binary, "lab", "--listen", listen)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if m := saidAddress.FindString(lines.Text()); m != "" {
			go func() {
				for lines.Scan() {
				}
			}()
			return cmd, m
		}
	}
	t.Fatalf("the lab ended without telling its address")
	return nil, ""
}

// killedServer kills the lab under a visitor, and starts it again.
func killedServer(t *testing.T, v *venue) {
	binary := buildHoldfast(t)
	lab, address := runLab(t, binary, "127.0.0.1:0")
	p := v.visit(t, address, "#ttl=2&a=kept", browser.Look{Still: true})
	p.do("A", "acquire")
	p.do("A", "write")
	p.awaitRows(1)
	p.tab.Forgive("ERR_CONNECTION_REFUSED", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "404", "410")
	p.ok(lab.Process.Kill())
	_ = lab.Wait() // killed: its error says so
	p.await(`document.body.dataset.connection === "lost"`)
	p.await(`document.querySelector("#banner").checkVisibility() && document.querySelector("#banner").innerText.trim().length > 20`)
	p.clean("the banner shown")
	for _, do := range []string{"write", "pause", "release"} {
		p.await(`document.querySelector(` + quoted(button("A", do)) + `).getAttribute("aria-disabled") === "true"`)
		why := eval[string](p, `document.querySelector(`+quoted(button("A", do))+`).title`)
		if len(why) < 8 {
			t.Errorf("%s does not say why it cannot be pressed: %q", do, why)
		}
	}
	_, again := runLab(t, binary, strings.TrimPrefix(address, "http://"))
	if again != address {
		t.Fatalf("the lab came back at %s: want %s", again, address)
	}
	p.await(`["live", "polling"].includes(document.body.dataset.connection)`)
	p.await(`document.querySelector("hf-gate").dataset.mark === "32"`)
	if rows := p.rows(); len(rows) != 0 {
		t.Errorf("a new world shows rows of the old: %+v", rows)
	}
	p.do("A", "acquire")
	p.shows("A", "33")
	p.do("A", "write")
	p.awaitRows(1)
	p.await(`document.querySelector("#value-A").value === "kept"`)
	p.await(`document.querySelector("hf-worker[worker=A]").dataset.status === "holds"`)
}
