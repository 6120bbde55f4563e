package lab

import (
	"net/http"
	"time"

	"holdfast/lab/stage"
)

// direct has a worker do what it can do now.
func (w *world) direct(s *seat, a action, reply chan<- outcome) {
	switch a.Do {
	case doValue:
		w.change(s, *a.Value, reply)
	case doAcquire:
		if w.word(s, reply, stage.DoAcquire) {
			s.standing = asking
			reply <- outcome{seq: w.journal.lastSeq()}
		}
	case doWrite:
		if w.word(s, reply, stage.DoWrite) {
			s.errand = w.begin(doWrite, reply)
		}
	case doRelease:
		if w.word(s, reply, stage.DoRelease) {
			s.errand = w.begin(doRelease, reply)
		}
	case doPause:
		w.pause(s, reply)
	case doWake:
		w.wake(s, reply)
	case doKill:
		w.kill(s, reply)
	case doStart:
		w.start(s, reply)
	}
}

// word tells a worker a word, or the visitor why that was not possible.
func (w *world) word(s *seat, reply chan<- outcome, words ...string) bool {
	err := s.worker.Tell(words...)
	if err != nil {
		reply <- outcome{err: refusef(http.StatusConflict, "%s could not be told: %v", s.name, err)}
	}
	return err == nil
}

// change gives a worker another value to write. One that stands still hears of
// it when it is woken; the write before which it stands stays as it is.
func (w *world) change(s *seat, value string, reply chan<- outcome) {
	s.value = value
	seq := w.tell(event{Kind: kindValue, Who: s.name, Value: value})
	reply <- outcome{seq: seq}
	w.tellValue(s)
}

// tellValue tells a worker its value, if it does not know it and can hear.
func (w *world) tellValue(s *seat) {
	if s.worker == nil || s.stopped || s.told == s.value {
		return
	}
	if err := s.worker.Tell(stage.DoValue(s.value)); err == nil {
		s.told = s.value
	}
}

// pause stops a worker. One that holds is stopped at the worst moment: when it
// has looked at its lease and found it good, and the next thing it does is the
// write.
func (w *world) pause(s *seat, reply chan<- outcome) {
	if s.standing == holds {
		if w.word(s, reply, stage.DoPoise) {
			s.errand = w.begin(doPause, reply) // goes on when it says that it looked
		}
		return
	}
	s.errand = w.begin(doPause, reply)
	w.freeze(s)
}

// freeze makes a worker stand still. The stop itself cannot fail while its
// process lives.
func (w *world) freeze(s *seat) {
	r, worker := w.round, s.worker
	w.running.Go(func() {
		err := worker.Freeze(r.over)
		w.postOf(r, func() {
			if s.worker == worker && s.errand != nil && s.errand.do == doPause {
				w.frozen(s, err)
			}
		})
	})
}

func (w *world) frozen(s *seat, err error) {
	if err != nil {
		w.finish(s, outcome{err: notNowf("%s was not stopped: %v", s.name, err)})
		return
	}
	s.stopped, s.stoppedAt = true, time.Now()
	e := event{Kind: kindPaused, Who: s.name, Token: s.token, Poised: new(s.poised)}
	if s.poised {
		e.Token, e.Value = s.ticket, s.told
	}
	w.finish(s, outcome{seq: w.tell(e)})
}

// wake lets a worker go on. For one that stands before a write, no time has
// passed, and the write is what it does next.
func (w *world) wake(s *seat, reply chan<- outcome) {
	if s.poised && !w.word(s, reply, stage.DoGo) {
		return
	}
	if err := s.worker.Thaw(); err != nil {
		reply <- outcome{err: notNowf("%s could not be woken: %v", s.name, err)}
		return
	}
	e := event{Kind: kindWoken, Who: s.name, Token: s.token, Poised: new(s.poised), PausedMS: new(millis(time.Since(s.stoppedAt)))}
	writes := s.poised
	if writes {
		e.Token = s.ticket
	}
	s.stopped, s.poised = false, false
	seq := w.tell(e)
	w.tellValue(s)
	if !writes {
		reply <- outcome{seq: seq}
		return
	}
	s.errand = w.begin(doWake, reply) // until it says what became of its write
}

// kill ends a worker, however it stands.
func (w *world) kill(s *seat, reply chan<- outcome) {
	s.errand = w.begin(doKill, reply)
	worker := s.worker
	w.running.Go(worker.Kill) // its end is heard
}

// start gives a seat a fresh worker.
func (w *world) start(s *seat, reply chan<- outcome) {
	e := w.begin(doStart, reply)
	s.errand = e
	r, value := w.round, s.value
	w.running.Go(func() {
		worker, err := r.hire(r.over, s.name, value)
		taken := w.postOf(r, func() {
			if err != nil {
				w.finish(s, outcome{err: refusef(http.StatusInternalServerError, "%s could not be started: %v", s.name, err)})
				return
			}
			*s = seat{name: s.name, value: s.value, worker: worker, told: value, standing: idle, errand: e}
			seq := w.tell(event{Kind: kindStarted, Who: s.name, PID: worker.PID()})
			w.listen(r, s, worker)
			w.finish(s, outcome{seq: seq})
			w.tellValue(s)
		})
		if !taken && err == nil {
			worker.Kill() // the world has ended meanwhile
		}
	})
}

// finish ends what a worker is about, if it is about something.
func (w *world) finish(s *seat, o outcome) {
	if e := s.errand; e != nil {
		s.errand = nil
		e.answer(o)
	}
}
