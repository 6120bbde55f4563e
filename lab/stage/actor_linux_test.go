package stage

import (
	"context"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestUnreadPulsesAreDropped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := newSayings(ctx)
	for range 10 * mostUnread {
		q.put(Said{Event: SaidPulse})
	}
	for range 3 {
		q.put(Said{Event: SaidWrote})
	}
	q.close()
	q.put(Said{Event: SaidError})
	count := map[string]int{}
	for s := range q.to {
		count[s.Event]++
	}
	if count[SaidWrote] != 3 || count[SaidError] != 0 || count[SaidPulse] > 2*mostUnread+1 || count[SaidPulse] < mostUnread {
		t.Errorf("of what was said there came %v", count)
	}
	cancel()
}

func TestSayingsEndWithTheirContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := newSayings(ctx)
	q.put(Said{Event: SaidWrote})
	cancel()
	for range q.to { // ends, though nobody closed it
	}
}

// TestHandedWaitsForTheReader, and not for one that is gone.
func TestHandedWaitsForTheReader(t *testing.T) {
	q := newSayings(t.Context())
	q.put(Said{Event: SaidWrote})
	began := time.Now()
	q.handed(t.Context())
	if took := time.Since(began); took < slowReader {
		t.Errorf("nobody has read, and it is called handed after %v", took)
	}
	q.close()
	for range q.to {
	}
}

func TestMouth(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close()
	m := &mouth{File: read}
	defer m.Close()
	if _, err := write.WriteString("one"); err != nil {
		t.Fatal(err)
	}
	if m.exhausted() {
		t.Error("three bytes are in the pipe, and it is called exhausted")
	}
	b := make([]byte, 3)
	if _, err := m.Read(b); err != nil {
		t.Fatal(err)
	}
	if m.exhausted() {
		t.Error("the reader has not yet dealt with what it got")
	}
	done := make(chan struct{})
	go func() { _, _ = m.Read(b); close(done) }()
	eventually(t, "an exhausted pipe", m.exhausted)
	write.Close()
	<-done
}

// TestWordsForOneThatStandsStill: a pipe that is full must not block whoever
// directs the worker, and no word may be torn.
func TestWordsForOneThatStandsStill(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		a := p.hire("A", "from A")
		a.freeze()
		word := strings.Repeat("x", 700)
		taken := 0
		for ; taken < 10_000; taken++ {
			if err := a.Tell(word); err != nil {
				break
			}
		}
		if taken == 10_000 {
			t.Fatal("a worker that stands still takes words without end")
		}
		a.thaw()
		for range taken {
			if s := a.await(SaidError); !strings.Contains(s.Text, word) {
				t.Fatalf("a word was torn: %q", s.Text)
			}
		}
		a.tell(DoAcquire, SaidAcquired)
	})
}

// TestCrashed: a worker that ends though nobody ended it is told of.
func TestCrashed(t *testing.T) {
	t.Parallel()
	p := newPlay(t, "process")
	a := p.hire("A", "from A")
	if err := syscall.Kill(a.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if s := a.await(SaidEnded); !strings.Contains(s.Text, "worker A") || len(s.Text) > maxText+10 || !strings.Contains(s.Text, "goroutine") && !strings.Contains(s.Text, "rax") {
		t.Errorf("what it left behind: %q", s.Text)
	}
	if s, more := <-a.Said(); more {
		t.Errorf("after its end it says %+v", s)
	}
}

// TestNoServiceToBeginWith: a worker that cannot begin says why, and ends.
func TestNoServiceToBeginWith(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		spec := p.spec("A", "from A")
		p.stopService()
		var w Worker
		var err error
		if p.kind == "process" {
			w, err = StartProcess(t.Context(), exe(t, "worker"), spec)
		} else {
			w, err = StartInProcess(t.Context(), spec)
		}
		if err != nil {
			t.Fatal(err)
		}
		a := &actor{Worker: w, t: t, name: "A"}
		a.await(SaidError)
		if s := a.await(SaidEnded); !strings.Contains(s.Text, p.srv.Addr()) {
			t.Errorf("ended: %q does not name the server", s.Text)
		}
		a.Kill()
	})
}

// TestEndOfTheContext ends the worker, also one that stands still.
func TestEndOfTheContext(t *testing.T) {
	kinds(t, func(t *testing.T, p *play) {
		ctx, cancel := context.WithCancel(t.Context())
		var w Worker
		var err error
		if p.kind == "process" {
			w, err = StartProcess(ctx, exe(t, "worker"), p.spec("A", "from A"))
		} else {
			w, err = StartInProcess(ctx, p.spec("A", "from A"))
		}
		if err != nil {
			t.Fatal(err)
		}
		a := &actor{Worker: w, t: t, name: "A"}
		a.await(SaidReady)
		a.freeze()
		cancel()
		for range a.Said() {
		}
		eventually(t, "the worker's end", func() bool { return a.Tell(DoRead) != nil })
	})
}

func TestBadSpecs(t *testing.T) {
	good := WorkerSpec{Name: "A", Value: "v", TTL: time.Second, Server: "127.0.0.1:1", Lock: "l", Ledger: "x", Fencing: Always}
	if s, err := ParseWorkerSpec(good.Arg()); err != nil || s != good {
		t.Fatalf("%+v, %v", s, err)
	}
	for name, spoil := range map[string]func(*WorkerSpec){
		"name": func(s *WorkerSpec) { s.Name = "" }, "ttl": func(s *WorkerSpec) { s.TTL = time.Millisecond },
		"server": func(s *WorkerSpec) { s.Server = "" }, "ledger": func(s *WorkerSpec) { s.Ledger = "" },
		"lock": func(s *WorkerSpec) { s.Lock = "" }, "fencing": func(s *WorkerSpec) { s.Fencing = "" },
		"empty value": func(s *WorkerSpec) { s.Value = "" }, "two lines": func(s *WorkerSpec) { s.Value = "a\nb" },
		"not UTF-8": func(s *WorkerSpec) { s.Value = "a\xff" }, "long value": func(s *WorkerSpec) { s.Value = strings.Repeat("x", MaxValue+1) },
	} {
		s := good
		spoil(&s)
		if s.check() == nil {
			t.Errorf("%s: %+v is accepted", name, s)
		}
		if _, err := StartInProcess(t.Context(), s); err == nil {
			t.Errorf("%s: a worker starts in the process", name)
		}
		if _, err := StartProcess(t.Context(), exe(t, "worker"), s); err == nil {
			t.Errorf("%s: a process starts", name)
		}
	}
	if _, err := ParseWorkerSpec("no JSON"); err == nil {
		t.Error("text that is no spec is accepted")
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var w tail
	for range 1000 {
		if n, err := w.Write([]byte("0123456789")); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	_, _ = w.Write([]byte("the end"))
	if s := w.String(); len(s) > tailBytes || !strings.HasSuffix(s, "the end") {
		t.Errorf("%d bytes, ending in %q", len(s), s[len(s)-20:])
	}
}
