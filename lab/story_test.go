package lab

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The five steps of the lesson, by the API, with real processes: a good day;
// the pause; B's turn; the zombie's write without and with the comparison.
func TestTheWholeStory(t *testing.T) {
	t.Parallel()
	p := open(t).newPage(`{"ttlMs":2000,"values":{"A":"<img src=x onerror=alert(1)>","B":"zwölf & 12 €"}}`)
	p.hear()
	first := p.events[0]
	if first.Mark != 32 || first.LastToken != 32 || string(first.Lines) != "32" || len(first.Earlier) != 3 || !*first.Signals || *first.Compare ||
		first.TTLMS != 2000 || first.Earlier[2].Line != 32 || first.Earlier[2].Token != 32 || first.Earlier[2].Worker != earlierName || first.Service == "" {
		t.Errorf("the round begins with %+v", first)
	}
	for i, name := range cast {
		if e := p.events[1+i]; e.Kind != kindStarted || e.Who != name || e.PID == 0 {
			t.Errorf("then %v", e)
		}
	}
	p.disaster(false)

	// Reset, and the same with the comparison on.
	before := time.Now()
	p.acts(`{"do":"reset","compare":true}`)
	took := time.Since(before)
	t.Logf("a reset takes %v", took)
	if took > 10*time.Second {
		t.Errorf("a reset took %v", took)
	}
	if e := p.events[0]; e.Kind != kindRound || e.Round != 2 || !*e.Compare || e.Values["A"] != "<img src=x onerror=alert(1)>" || e.TTLMS != 2000 || e.Mark != 32 {
		t.Errorf("after the reset: %+v", e)
	}
	p.disaster(true)
	for _, e := range p.events {
		if e.Kind == kindCorrupted || e.Kind == kindError || e.Kind == kindEnded {
			t.Errorf("with the comparison on: %v", e)
		}
	}
}

// disaster plays a whole round and looks at what it tells.
func (p *page) disaster(compare bool) {
	p.t.Helper()
	from := p.goodDay(compare)
	p.turnOfB(from)
	seq := p.act(doWake, workerA)
	if got := p.kinds(from, workerA); !strings.HasPrefix(got, "woken ") {
		p.t.Errorf("A: %s", got)
	}
	woken := p.await(from, kindWoken, workerA)
	if !*woken.Poised || woken.Token != 33 || *woken.PausedMS < 1000 {
		p.t.Errorf("woken: %+v", woken)
	}
	if compare {
		r := p.await(from, kindRefused, workerA)
		if r.Token != 33 || r.Mark != 34 || r.Seq > seq || r.Text == "" || r.Value == "" {
			p.t.Errorf("refused: %+v, and wake caused %d", r, seq)
		}
	} else {
		w := p.await(from, kindWrote, workerA)
		c := p.await(from, kindCorrupted, whoGate)
		if w.Token != 33 || w.Line != 35 || w.Basis != 33 || w.Mark != 34 || *w.Compare {
			p.t.Errorf("the zombie wrote %+v", w)
		}
		if c.Seq != seq || c.Seq != w.Seq+1 || string(c.Lines) != "[35]" || len(c.Texts) != 2 {
			p.t.Errorf("corrupted: %+v, and wake caused %d", c, seq)
		}
	}
	if l := p.await(from, kindLost, workerA); l.Token != 33 || l.Text == "" {
		p.t.Errorf("lost: %+v", l)
	}
	p.refused(doWrite, workerA, "acquire again")
	if !compare { // B's next line rests on its last: it is told alone
		seq := p.act(doWrite, workerB)
		if c := p.await(seq-1, kindCorrupted, whoGate); c.Seq != seq || string(c.Lines) != "[36]" || len(c.Texts) != 1 {
			p.t.Errorf("after B's second write: %+v", c)
		}
	}
}

// goodDay has A acquire, renew and write, and then stops it before another
// write. It returns the number of the last event.
func (p *page) goodDay(compare bool) (last uint64) {
	p.t.Helper()
	a := p.holds(workerA)
	if a.Token != 33 || a.Mark != 33 || a.LeftMS == nil || *a.LeftMS <= 0 || *a.LeftMS > 2000 || a.TookMS == nil {
		p.t.Errorf("A acquired: %+v", a)
	}
	pulse := p.await(a.Seq, kindPulse, workerA)
	if pulse.Token != 33 || *pulse.LeftMS <= 0 || *pulse.LeftMS > 2000 {
		p.t.Errorf("A's pulse: %+v", pulse)
	}
	heard := p.await(pulse.Seq, kindHeard, workerA)
	if heard.Who != whoService || heard.Token != 33 || *heard.TTLLeftMS <= *pulse.LeftMS-500 || *heard.TTLLeftMS > 2000 {
		p.t.Errorf("the service's view: %+v, after %+v", heard, pulse)
	}
	p.act(doWrite, workerA)
	if w := p.await(a.Seq, kindWrote, workerA); w.Token != 33 || w.Line != 33 || w.Basis != 32 || w.Mark != 33 || *w.Compare != compare || w.Value != "<img src=x onerror=alert(1)>" {
		p.t.Errorf("A wrote %+v", w)
	}
	seq := p.act(doPause, workerA)
	if e := p.events[seq-p.events[0].Seq]; e.Kind != kindPaused || !*e.Poised || e.Token != 33 || e.Value == "" {
		p.t.Errorf("paused: %+v", e)
	}
	if got := p.kinds(a.Seq, workerA); got != "looked wrote looked paused" {
		p.t.Errorf("A: %s", got)
	}
	for do, says := range map[string]string{doWrite: "wake it first", doRelease: "wake it first", doAcquire: "wake it first", doPause: "stopped already"} {
		p.refused(do, workerA, says)
	}
	return p.last
}

// turnOfB has B wait until A's lease has run out, acquire and write.
func (p *page) turnOfB(from uint64) {
	p.t.Helper()
	p.act(doAcquire, workerB)
	p.await(from, kindQueued, workerB)
	p.await(from, kindServiceQueued, workerB)
	p.refused(doAcquire, workerB, "waiting already")
	freed := p.await(from, kindServiceFreed, workerA)
	if freed.Token != 33 || freed.Cause != "expired" {
		p.t.Errorf("freed: %+v", freed)
	}
	b := p.await(from, kindAcquired, workerB)
	if b.Token != 34 || b.Mark != 34 || *b.TookMS < 500 {
		p.t.Errorf("B acquired: %+v", b)
	}
	if granted := p.await(from, kindServiceGranted, workerB); granted.Token != 34 {
		p.t.Errorf("granted: %+v", granted)
	}
	p.act(doWrite, workerB)
	if w := p.await(b.Seq, kindWrote, workerB); w.Line != 34 || w.Basis != 33 || w.Token != 34 {
		p.t.Errorf("B wrote %+v", w)
	}
}

// What each worker can and cannot do, in each state it can be in.
func TestWhatCanBeDoneWhen(t *testing.T) {
	t.Parallel()
	p := open(t).newPage(`{"ttlMs":4000}`)
	for do, says := range map[string]string{
		doWrite: "acquire first", doRelease: "holds nothing", doWake: "is not stopped", doStart: "is running",
	} {
		p.refused(do, workerA, says)
	}
	p.act(doPause, workerA) // idle: just stopped
	if e := p.await(0, kindPaused, workerA); *e.Poised || e.Token != 0 {
		t.Errorf("paused while idle: %+v", e)
	}
	p.acts(`{"do":"value","worker":"A","value":"said while stopped"}`)
	p.act(doWake, workerA)
	p.holds(workerA)
	p.refused(doAcquire, workerA, "holds 33 already")
	p.act(doWrite, workerA)
	if e := p.await(0, kindWrote, workerA); e.Value != "said while stopped" {
		t.Errorf("wrote %+v", e)
	}

	// A wait is given up; a stopped waiter is woken; a killed one is started.
	p.act(doAcquire, workerB)
	queued := p.await(0, kindQueued, workerB)
	p.act(doPause, workerB)
	if e := p.await(queued.Seq, kindPaused, workerB); *e.Poised {
		t.Errorf("a waiter was poised: %+v", e)
	}
	p.act(doWake, workerB)
	seq := p.act(doRelease, workerB)
	if e := p.await(queued.Seq, kindGaveUp, workerB); e.Seq != seq {
		t.Errorf("gave up: %+v, caused %d", e, seq)
	}
	p.await(queued.Seq, kindServiceLeft, workerB)
	p.act(doAcquire, workerB)
	p.await(seq, kindQueued, workerB)
	seq = p.act(doKill, workerB)
	if e := p.await(queued.Seq, kindKilled, workerB); e.Seq != seq || e.PID == 0 {
		t.Errorf("killed: %+v", e)
	}
	for _, do := range []string{doAcquire, doWrite, doPause, doWake, doRelease, doKill} {
		p.refused(do, workerB, "start it first")
	}
	p.acts(`{"do":"value","worker":"B","value":"said while dead"}`)
	p.act(doStart, workerB)
	p.act(doRelease, workerA)
	b := p.holds(workerB) // the dead one's place in the queue is skipped
	p.act(doWrite, workerB)
	if e := p.await(b.Seq, kindWrote, workerB); e.Value != "said while dead" {
		t.Errorf("wrote %+v", e)
	}
	// A holder that is killed while it stands stopped.
	p.act(doPause, workerB)
	p.act(doKill, workerB)
	if e := p.await(b.Seq, kindKilled, workerB); e.Token != b.Token {
		t.Errorf("killed: %+v", e)
	}
	p.orderly()
}

// orderly looks for what must not happen on a day on which nobody does harm.
func (p *page) orderly() {
	p.t.Helper()
	waits := map[string]bool{}
	for _, e := range p.events {
		switch e.Kind {
		case kindError, kindEnded, kindCorrupted:
			p.t.Errorf("%v", e)
		case kindQueued, kindAcquired, kindGaveUp, kindKilled:
			waits[e.Who] = e.Kind == kindQueued
		case kindPulse:
			if e.Token == 0 && !waits[e.Who] {
				p.t.Errorf("a pulse of a worker that neither holds nor waits: %v", e)
			}
		}
	}
}

// The switch can be turned at any time, and is one truth for both workers.
func TestTheSwitch(t *testing.T) {
	t.Parallel()
	p := open(t).newPage("")
	p.holds(workerA)
	seq := p.acts(`{"do":"compare","on":true}`)
	if e := p.events[len(p.events)-1]; e.Kind != kindCompare || !*e.On || e.Mark != 33 || e.Seq != seq {
		t.Errorf("turned: %+v", e)
	}
	if again := p.acts(`{"do":"compare","on":true}`); again != seq && p.await(seq, kindPulse, workerA).Seq == 0 {
		t.Errorf("turning it on twice caused %d", again)
	}
	p.act(doWrite, workerA)
	if e := p.await(seq, kindWrote, workerA); !*e.Compare {
		t.Errorf("wrote %+v", e)
	}
	p.acts(`{"do":"compare","on":false}`)
	from := p.last
	p.act(doWrite, workerA)
	if e := p.await(from, kindWrote, workerA); *e.Compare || e.Basis != 33 {
		t.Errorf("wrote %+v", e)
	}
	// What is not said stays as it was over a reset.
	p.acts(`{"do":"value","worker":"A","value":"kept"}`)
	p.acts(`{"do":"reset","ttlMs":5000,"values":{"B":"new"}}`)
	if e := p.events[0]; e.TTLMS != 5000 || *e.Compare || e.Values["A"] != "kept" || e.Values["B"] != "new" || e.Round != 2 {
		t.Errorf("reset: %+v", e)
	}
}

// While a worker is about something, it takes nothing else, and nothing of it
// is lost.
func TestOneThingAtATime(t *testing.T) {
	t.Parallel()
	p := open(t).newPage("")
	a := p.holds(workerA)
	type result struct {
		status int
		text   string
	}
	results := make(chan result, 20)
	for i := range 20 {
		go func() {
			status, _, text := p.tryAct(fmt.Sprintf(`{"do":%q,"worker":"A"}`, []string{doPause, doWrite}[i%2]))
			results <- result{status, text}
		}()
	}
	done := 0
	for range 20 {
		switch r := <-results; {
		case r.status == http.StatusOK:
			done++
		case r.status != http.StatusConflict || r.text == "":
			t.Errorf("%d %s", r.status, r.text)
		}
	}
	p.hear()
	told := 0
	for _, e := range p.events {
		if e.Seq > a.Seq && (e.Kind == kindWrote || e.Kind == kindPaused) {
			told++
		}
	}
	if done == 0 || done != told {
		t.Errorf("%d actions were done, %d are told: %v", done, told, p.events)
	}
}

// The same story with workers in this process, as where there are no signals.
func TestInProcess(t *testing.T) {
	t.Parallel()
	p := open(t, func(c *Config) { c.InProcess, c.WorkerCommand = true, nil }).newPage(`{"ttlMs":2000}`)
	p.hear()
	if *p.events[0].Signals {
		t.Error("signals are claimed")
	}
	p.holds(workerA)
	p.act(doPause, workerA)
	from := p.last
	p.act(doAcquire, workerB)
	if b := p.await(from, kindAcquired, workerB); b.Token != 34 {
		t.Errorf("B: %+v", b)
	}
	p.act(doWrite, workerB)
	p.act(doWake, workerA)
	p.await(from, kindCorrupted, whoGate)
}
