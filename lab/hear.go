package lab

import (
	"context"
	"strings"
	"time"

	"holdfast/engine/cluster"
	"holdfast/lab/stage"
)

// askWithin bounds what the lab asks the service and the ledger in between.
const askWithin = 3 * time.Second

// hear takes what a worker said.
func (w *world) hear(r *round, s *seat, said stage.Said) {
	token := said.Token.Number
	switch said.Event {
	case stage.SaidQueued:
		s.standing = waiting
		w.tell(event{Kind: kindQueued, Who: s.name})
	case stage.SaidAcquired:
		s.standing, s.token = holds, token
		w.tell(event{Kind: kindAcquired, Who: s.name, Token: token, TookMS: new(millis(said.Took)), LeftMS: new(millis(said.Left)), Mark: said.Mark})
	case stage.SaidPulse:
		w.pulse(r, s, token, said.Left)
	case stage.SaidLooked:
		w.looked(s, said)
	case stage.SaidWrote:
		w.wrote(r, s, said)
	case stage.SaidRefused:
		seq := w.tell(event{Kind: kindRefused, Who: s.name, Token: token, Mark: said.Mark, Value: said.Value, Text: said.Text})
		w.finish(s, outcome{seq: seq})
	case stage.SaidReleased:
		s.standing, s.token = idle, 0
		w.finish(s, outcome{seq: w.tell(event{Kind: kindReleased, Who: s.name, Token: token, Text: said.Text})})
	case stage.SaidGaveUp:
		s.standing = idle
		w.finish(s, outcome{seq: w.tell(event{Kind: kindGaveUp, Who: s.name, Text: said.Text})})
	case stage.SaidLost:
		if s.token == token {
			s.standing, s.token = lost, 0
		}
		w.tell(event{Kind: kindLost, Who: s.name, Token: token, Text: said.Text})
	case stage.SaidError:
		w.complained(s, said.Text)
	case stage.SaidEnded:
		s.ended = said.Text
	}
}

// pulse tells a renewal, and asks the service how it sees it. A worker that is
// idle keeps a session too; that is of no interest.
func (w *world) pulse(r *round, s *seat, token uint64, left time.Duration) {
	if token == 0 && s.standing != waiting {
		return
	}
	w.tell(event{Kind: kindPulse, Who: s.name, Token: token, LeftMS: new(millis(left))})
	if token == 0 || s.hearing {
		return
	}
	s.hearing = true
	w.running.Go(func() {
		ctx, cancel := context.WithTimeout(r.over, askWithin)
		defer cancel()
		lock, err := r.client.Get(ctx, lockName, cluster.GetOptions{})
		w.postOf(r, func() {
			s.hearing = false
			if err != nil {
				return // nobody holds it any more, or the next pulse asks again
			}
			for _, h := range lock.Holders {
				if workerOf(h.Label) == s.name {
					w.tell(event{Kind: kindHeard, Who: whoService, Worker: s.name, Token: h.Token.Number, TTLLeftMS: new(millis(h.TTLLeft))})
				}
			}
		})
	})
}

// looked takes what a worker found when it looked at its own lease.
func (w *world) looked(s *seat, said stage.Said) {
	s.vain = !said.Held
	if said.Held {
		w.tell(event{Kind: kindLooked, Who: s.name, Token: said.Token.Number, LeftMS: new(millis(said.Left))})
	}
	if s.errand != nil && s.errand.do == doPause && !s.stopped {
		s.poised, s.ticket = said.Held, said.Token.Number
		w.freeze(s)
	}
}

// complained takes why a worker could not do what it was told.
func (w *world) complained(s *seat, text string) {
	vain := s.vain
	s.vain = false
	if vain && (s.errand == nil || s.errand.do == doPause) {
		return // it looked, and knows that it lost: that is no defect
	}
	if s.errand != nil && s.errand.do != doKill {
		if !vain {
			w.tell(event{Kind: kindError, Who: s.name, Text: text})
		}
		w.finish(s, outcome{err: notNowf("%s: %s", s.name, text)})
		return
	}
	w.tell(event{Kind: kindError, Who: s.name, Text: text})
}

// wrote tells a write, and what it broke.
func (w *world) wrote(r *round, s *seat, said stage.Said) {
	seq := w.tell(event{
		Kind: kindWrote, Who: s.name, Token: said.Token.Number, Value: said.Value, Compare: new(said.Compared),
		Line: said.Line, Basis: said.Basis, Mark: said.Mark,
	})
	ctx, cancel := context.WithTimeout(r.over, askWithin)
	defer cancel()
	all, _, err := r.ledger.Lines(ctx)
	if err != nil {
		seq = w.tell(event{Kind: kindError, Who: whoLab, Text: err.Error()})
	}
	e := event{Kind: kindCorrupted, Who: whoGate}
	for _, f := range stage.Corruption(all) {
		if f.Line == said.Line {
			e.Texts = append(e.Texts, f.Text)
		}
	}
	if e.Texts != nil {
		e.BadLines = []int64{said.Line}
		seq = w.tell(e)
	}
	w.finish(s, outcome{seq: seq})
}

// gone takes the end of a worker's process.
func (w *world) gone(s *seat) {
	pid, token := s.worker.PID(), s.token
	if s.poised {
		token = s.ticket
	}
	e := s.errand
	*s = seat{name: s.name, value: s.value, standing: idle, hearing: s.hearing, ended: s.ended}
	if e != nil && e.do == doKill {
		e.answer(outcome{seq: w.tell(event{Kind: kindKilled, Who: s.name, PID: pid, Token: token})})
		return
	}
	seq := w.tell(event{Kind: kindEnded, Who: s.name, PID: pid, Token: token, Text: s.ended})
	if e != nil {
		e.answer(outcome{seq: seq, err: notNowf("%s ended by itself: %s", s.name, s.ended)})
	}
}

// served takes what the service told of the lock.
func (w *world) served(ev *cluster.Event) {
	kinds := map[string]string{"queued": kindServiceQueued, "left": kindServiceLeft, "granted": kindServiceGranted, "released": kindServiceFreed}
	kind := kinds[ev.Kind]
	if kind == "" {
		return
	}
	e := event{Kind: kind, Who: whoService, Worker: workerOf(ev.Label)}
	switch kind {
	case kindServiceGranted:
		e.Token = ev.Token.Number
	case kindServiceFreed:
		e.Token, e.Cause = ev.Token.Number, ev.Cause
	}
	w.tell(e)
}

// workerOf is whom a session's label names.
func workerOf(label string) string { return strings.TrimPrefix(label, "worker ") }
