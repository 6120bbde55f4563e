package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// stopFromOutside stops a process as somebody else than the lab, and waits
// until each of its threads stands still.
func stopFromOutside(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a stopped process", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, file := range threads {
			if state, _, ok := stat(file); ok && state != "T" {
				return false
			}
		}
		return err == nil
	})
}

// A worker that somebody else ends is told as one that ended by itself, also
// in the middle of an action, and the action is answered.
func TestAWorkerThatEndsByItself(t *testing.T) {
	t.Parallel()
	p := open(t).newPage(`{"ttlMs":2000}`)
	p.holds(workerB)
	p.act(doAcquire, workerA)
	p.await(0, kindQueued, workerA)
	pid := p.await(0, kindStarted, workerA).PID
	// Stopped from outside, it does not do what it is told; then it is ended.
	stopFromOutside(t, pid)
	type result struct {
		status int
		text   string
	}
	answered := make(chan result, 1)
	go func() {
		status, _, text := p.tryAct(`{"do":"release","worker":"A"}`)
		answered <- result{status, text}
	}()
	eventually(t, "that A is about something", func() bool {
		_, _, text := p.tryAct(`{"do":"wake","worker":"A"}`) // refused in any case
		return strings.Contains(text, "still about to release")
	})
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := <-answered; r.status != http.StatusConflict || !strings.Contains(r.text, "ended by itself") {
		t.Errorf("the release was answered %+v", r)
	}
	e := p.await(0, kindEnded, workerA)
	if e.PID != pid || !strings.Contains(e.Text, "killed") {
		t.Errorf("ended: %+v", e)
	}
	p.refused(doAcquire, workerA, "start it first")
	p.act(doStart, workerA)
	p.act(doRelease, workerB)
	p.holds(workerA)
}

// A worker that somebody else stopped keeps an action waiting: the visitor is
// told, can kill it, and what it was about is not lost if it goes on.
func TestAWorkerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.hooks.patience = 200 * time.Millisecond }).newPage(`{"ttlMs":10000}`)
	a := p.holds(workerA)
	pid := p.await(0, kindStarted, workerA).PID
	stopFromOutside(t, pid)
	if status, _, text := p.tryAct(`{"do":"pause","worker":"A"}`); status != http.StatusGatewayTimeout || !strings.Contains(text, "will be told") {
		t.Errorf("pause: %d %s", status, text)
	}
	p.refused(doWrite, workerA, "still about to pause")
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e := p.await(a.Seq, kindPaused, workerA); !*e.Poised {
		t.Errorf("paused: %+v", e)
	}
	p.asks(doWake, workerA)
	p.await(a.Seq, kindWrote, workerA)
	stopFromOutside(t, pid)
	if status, _, _ := p.tryAct(`{"do":"write","worker":"A"}`); status != http.StatusGatewayTimeout {
		t.Errorf("write: %d", status)
	}
	p.asks(doKill, workerA)
	killed := p.await(a.Seq, kindKilled, workerA)
	p.asks(doStart, workerA)
	p.await(killed.Seq, kindStarted, workerA)
}

// asks asks for an action that may take longer than the lab's patience.
func (p *page) asks(do, worker string) {
	p.t.Helper()
	status, _, text := p.tryAct(fmt.Sprintf(`{"do":%q,"worker":%q}`, do, worker))
	if status != http.StatusOK && status != http.StatusGatewayTimeout {
		p.t.Fatalf("%s %s: %d %s", do, worker, status, text)
	}
}

// A worker that looks in time does not write, and is not stopped before a
// write: its look finds the lease run out, by its own clock.
func TestALookThatFindsTheLeaseRunOut(t *testing.T) {
	t.Parallel()
	for do, want := range map[string]int{doPause: http.StatusOK, doWrite: http.StatusConflict} {
		p := open(t).newPage(`{"ttlMs":2000}`)
		a := p.holds(workerA)
		pid := p.await(0, kindStarted, workerA).PID
		stopFromOutside(t, pid)
		p.await(a.Seq, kindServiceFreed, workerA)
		answered := make(chan int, 1)
		go func() {
			status, _, _ := p.tryAct(fmt.Sprintf(`{"do":%q,"worker":"A"}`, do))
			answered <- status
		}()
		eventually(t, "that A is about something", func() bool {
			_, _, text := p.tryAct(`{"do":"wake","worker":"A"}`)
			return strings.Contains(text, "still about to "+do)
		})
		if err := unix.Kill(pid, unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if status := <-answered; status != want {
			t.Errorf("%s: %d, want %d", do, status, want)
		}
		if do == doPause {
			if e := p.await(a.Seq, kindPaused, workerA); *e.Poised {
				t.Errorf("paused: %+v", e)
			}
			p.act(doWake, workerA)
		}
		p.await(a.Seq, kindLost, workerA)
		if got := p.kinds(a.Seq, workerA); strings.Contains(got, kindError) || strings.Contains(got, kindWrote) || strings.Contains(got, kindLooked) {
			t.Errorf("%s: %s", do, got)
		}
		p.holds(workerA)
	}
}

// Actions that are under way when the world is reset are answered, and nothing
// of the old round is told in the new one.
func TestResetWhileSomethingGoesOn(t *testing.T) {
	t.Parallel()
	p := open(t).newPage(`{"ttlMs":2000}`)
	p.holds(workerA)
	pid := p.await(0, kindStarted, workerA).PID
	stopFromOutside(t, pid)
	answered := make(chan string, 1)
	go func() {
		_, _, text := p.tryAct(`{"do":"write","worker":"A"}`)
		answered <- text
	}()
	eventually(t, "that A is about something", func() bool {
		_, _, text := p.tryAct(`{"do":"wake","worker":"A"}`) // refused in any case
		return strings.Contains(text, "still about to write")
	})
	resets := make(chan int, 8)
	for range cap(resets) {
		go func() {
			status, _, _ := p.tryAct(`{"do":"reset"}`)
			resets <- status
		}()
	}
	done := 0
	for range cap(resets) {
		switch status := <-resets; status {
		case http.StatusOK:
			done++
		case http.StatusConflict:
		default:
			t.Errorf("reset: %d", status)
		}
	}
	if text := <-answered; !strings.Contains(text, "was reset") {
		t.Errorf("the write was answered %q", text)
	}
	p.hear()
	if e := p.events[0]; done == 0 || e.Round != 1+done {
		t.Errorf("%d resets, and then %+v", done, e)
	}
	a := p.holds(workerA)
	p.await(a.Seq, kindPulse, workerA)
	for _, e := range p.events {
		if a.Token != 33 || e.Token != 0 && e.Token != 33 || e.Kind == kindEnded || e.Kind == kindKilled || e.Kind == kindError {
			t.Errorf("in the new round: %+v", e)
		}
	}
}

// SIGKILL of the lab leaves nothing: no worker, not even a stopped one, no
// sweeper, no file, no port.
func TestKillingTheLabLeavesNothing(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	cmd := exec.Command(os.Args[0], asLab)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, url: strings.TrimSuffix(strings.TrimSpace(url), "/lab")}
	p := b.newPage("")
	p.holds(workerA)
	p.act(doPause, workerA)
	pids := children(t, cmd.Process.Pid)
	if len(pids) != 3 {
		t.Fatalf("the lab has the processes %v: want two workers and a sweeper", pids)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	eventually(t, "that nothing is left", func() bool {
		left, err := os.ReadDir(temp)
		for _, pid := range pids {
			if alive(pid) {
				return false
			}
		}
		return err == nil && len(left) == 0
	})
	if conn, err := net.Dial("tcp", strings.TrimPrefix(b.url, "http://")); err == nil {
		conn.Close()
		t.Error("the port is still served")
	}
}

// children are the processes that a process started.
func children(t *testing.T, parent int) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if state, ppid, ok := stat(file); ok && ppid == parent && state != "Z" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func stat(file string) (state string, parent int, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", 0, false
	}
	_, err = fmt.Sscan(string(text[strings.LastIndexByte(string(text), ')')+1:]), &state, &parent)
	return state, parent, err == nil
}

func alive(pid int) bool {
	state, _, ok := stat(fmt.Sprintf("/proc/%d/stat", pid))
	return ok && state != "Z"
}

// Stop ends it all: worlds in the middle of something, streams, goroutines,
// the directory.
func TestStopLeavesNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	cfg := testConfig()
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := &browser{t: t, lab: l, url: "http://" + l.Addr()}
	p, other := b.newPage(""), b.newPage("")
	p.holds(workerA)
	p.act(doPause, workerA)
	p.act(doAcquire, workerB)
	stream, watch := p.stream(), p.watch()
	pid := p.await(0, kindStarted, workerA).PID
	made := make(chan int, 1)
	go func() { // a world that is made while the lab stops is not left either
		status, _, _ := other.tryAct(`{"do":"reset"}`)
		made <- status
	}()
	silent, err := net.Dial("tcp", l.Addr()) // a browser connects in advance
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	at := time.Now()
	if err := l.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
	t.Logf("a stop takes %v", time.Since(at))
	if m, ok := stream.next("end"); !ok || !strings.Contains(m.data, "the lab was stopped") {
		t.Errorf("the page was told %+v", m)
	}
	stream.end()
	watch.end()
	<-made
	if err := l.Wait(); err != nil {
		t.Errorf("wait: %v", err)
	}
	if err := l.Stop(ctx); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if _, err := os.Stat(l.dir); !os.IsNotExist(err) {
		t.Errorf("the directory: %v", err)
	}
	if alive(pid) {
		t.Error("worker A lives on")
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// A directory of the caller's is emptied and left to it.
func TestADirectoryOfTheCallers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := testConfig()
	cfg.SweeperCommand, cfg.Dir, cfg.InProcess = nil, dir, true
	l, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	(&browser{t: t, lab: l, url: "http://" + l.Addr()}).newPage("")
	if made, err := os.ReadDir(dir); err != nil || len(made) != 1 {
		t.Errorf("in the directory: %v %v", made, err)
	}
	if err := l.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the directory: %v %v", left, err)
	}
}

// Connections beyond a number wait until one is closed.
func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	b := open(t, func(c *Config) { c.InProcess = true })
	var open []net.Conn
	for range maxConns {
		conn, err := net.Dial("tcp", b.lab.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	asked, err := net.Dial("tcp", b.lab.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	answered := make(chan string, 1)
	go func() {
		_, _ = asked.Write([]byte("GET /lab HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		line, _ := bufio.NewReader(asked).ReadString('\n')
		answered <- line
	}()
	select {
	case line := <-answered:
		t.Errorf("answered at once: %q", line)
	case <-time.After(100 * time.Millisecond):
	}
	open[0].Close()
	if line := <-answered; !strings.Contains(line, " 200 ") {
		t.Errorf("answered %q", line)
	}
}
