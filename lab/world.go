package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/engine/cluster"
	"holdfast/lab/stage"
)

// A world is what one page plays with. One goroutine owns it: whatever happens
// to it (an action, a word of a worker, an event of the service) comes in as a
// function that this goroutine runs, so decisions need no lock.
type world struct {
	id      string
	lab     *Lab
	dir     string
	journal *journal
	mail    chan func()
	life    context.Context // ends with the world
	die     context.CancelFunc
	now     atomic.Pointer[round] // for the page's calls to the service
	calls   atomic.Int64          // of these, under way

	// Only the world's goroutine touches these.
	round  *round
	rounds int             // begun so far
	resets *errand         // a new round is being made
	before <-chan struct{} // closed when the last round is gone; nil: there was none
	// running are the goroutines that work for it.
	running sync.WaitGroup
}

// errOver answers what was asked of a world that ended.
var errOver = refusef(http.StatusNotFound, "this world has ended: reload the page to get a new one")

// newWorld makes a world with its first round.
func (l *Lab) newWorld(ctx context.Context, s settings) (*world, error) {
	w := &world{
		id: rand.Text(), lab: l, journal: newJournal(l.cfg.hooks.journalKeeps),
		mail: make(chan func()),
	}
	w.life, w.die = context.WithCancel(context.Background())
	// The directory can be read off the workers' command lines; the ID is for
	// the page alone.
	w.dir = filepath.Join(l.dir, fmt.Sprintf("world-%d", l.made.Add(1)))
	// A page that leaves while its world is made is one that does not look.
	ctx = context.WithoutCancel(ctx)
	err := os.Mkdir(w.dir, 0o700)
	if err == nil {
		var r *round
		var first event
		if r, first, err = w.nextRound(ctx, 1, s); err == nil {
			w.rounds = 1
			w.adopt(r, first)
			return w, nil
		}
	}
	l.cfg.Logger.Warn("a world could not be made", "error", err)
	return nil, errors.Join(refusef(http.StatusInternalServerError, "a world could not be made: %v", err), os.RemoveAll(w.dir))
}

func (w *world) nextRound(ctx context.Context, number int, s settings) (*round, event, error) {
	r, err := newRound(ctx, w.lab, filepath.Join(w.dir, fmt.Sprintf("round-%d", number)), number, s)
	if err != nil {
		return nil, event{}, err
	}
	first, err := r.begun(ctx)
	if err != nil {
		r.close()
		return nil, event{}, err
	}
	return r, first, nil
}

// run does what comes in, until the world ends; then it leaves nothing.
func (w *world) run() {
	for {
		select {
		case f := <-w.mail:
			f()
		case <-w.life.Done():
			w.round.close()
			w.running.Wait()
			if err := os.RemoveAll(w.dir); err != nil {
				w.lab.cfg.Logger.Warn("a world left files behind", "dir", w.dir, "error", err)
			}
			return
		}
	}
}

// post has the world's goroutine run f; false: the world has ended, and f is
// not run.
func (w *world) post(f func()) bool {
	select {
	case <-w.life.Done():
		return false
	default:
	}
	select {
	case w.mail <- f:
		return true
	case <-w.life.Done():
		return false
	}
}

// postOf is post for what was heard of one round.
func (w *world) postOf(r *round, f func()) bool {
	return w.post(func() {
		if w.round == r {
			f()
		}
	})
}

// end ends the world; it does not wait, and may be called again.
func (w *world) end(why string) {
	w.journal.finish(why)
	w.die()
}

// adopt makes r the world's round, and ends the one before it.
func (w *world) adopt(r *round, first event) {
	if old := w.round; old != nil {
		for _, s := range old.seats {
			if s.errand != nil {
				s.errand.answer(outcome{err: notNowf("the world was reset before %s could %s", s.name, s.errand.do)})
			}
		}
		if old.turning != nil {
			old.turning.answer(outcome{err: notNowf("the world was reset before the switch was turned")})
		}
		old.end() // so that nothing of it goes on while the new one runs
		closed := make(chan struct{})
		w.before = closed
		w.running.Go(func() {
			old.close()
			close(closed)
		})
	}
	w.round = r
	w.now.Store(r)
	w.journal.begin(first)
	for _, name := range cast {
		s := r.seats[name]
		w.tell(event{Kind: kindStarted, Who: name, PID: s.worker.PID()})
		w.listen(r, s, s.worker)
	}
	w.running.Go(func() { w.follow(r) })
}

func (w *world) tell(e event) uint64 { return w.journal.add(e) }

// listen passes on what a worker says.
func (w *world) listen(r *round, s *seat, worker stage.Worker) {
	w.running.Go(func() {
		for said := range worker.Said() {
			w.postOf(r, func() { w.hear(r, s, said) })
		}
		w.postOf(r, func() { w.gone(s) })
	})
}

// follow passes on what the service tells of the lock.
func (w *world) follow(r *round) {
	for batch, err := range r.client.Watch(r.over, cluster.WatchOptions{Lock: lockName, After: &r.revision}) {
		w.postOf(r, func() {
			for i := range batch.Events {
				w.served(&batch.Events[i])
			}
			if err != nil && r.over.Err() == nil {
				w.tell(event{Kind: kindError, Who: whoLab, Text: fmt.Sprintf("the lab does not hear the lock service any more: %v", err)})
			}
		})
	}
}

// act does what a visitor asks for, and returns the number of the last event
// that it caused, or why it cannot be done.
func (w *world) act(a action) (uint64, error) {
	reply := make(chan outcome, 1)
	if !w.post(func() { w.do(a, reply) }) {
		return 0, errOver
	}
	select {
	case o := <-reply:
		return o.seq, o.err
	case <-w.life.Done():
		return 0, errOver
	}
}

// begin makes an errand. If it takes long the visitor is told so; it goes on.
func (w *world) begin(do string, reply chan<- outcome) *errand {
	e := &errand{do: do, reply: reply}
	e.timer = time.AfterFunc(w.lab.cfg.hooks.patience, func() {
		w.post(func() {
			e.answer(outcome{err: refusef(http.StatusGatewayTimeout, "%s takes longer than %s; what comes of it will be told", do, spoken(w.lab.cfg.hooks.patience))})
		})
	})
	return e
}

// do decides about an action.
func (w *world) do(a action, reply chan<- outcome) {
	refuse := func(err error) { reply <- outcome{err: err} }
	if a.Do == doReset {
		w.reset(a, reply)
		return
	}
	if w.resets != nil {
		refuse(notNowf("the world is being reset: wait for the new round"))
		return
	}
	if full := w.journal.full(); full != "" {
		refuse(notNowf("%s", full))
		return
	}
	if a.Do == doCompare {
		w.turn(*a.On, reply)
		return
	}
	s := w.round.seats[a.Worker]
	if err := s.refuses(a.Do); err != nil {
		refuse(err)
		return
	}
	w.direct(s, a, reply)
}

// reset begins a new round. The present one goes on until the new one stands,
// so a reset that fails changes nothing.
func (w *world) reset(a action, reply chan<- outcome) {
	s, err := a.apply(w.present())
	if w.resets != nil {
		err = notNowf("the world is being reset already")
	}
	if err != nil {
		reply <- outcome{err: err}
		return
	}
	w.rounds++
	number, e := w.rounds, w.begin(doReset, reply)
	w.resets = e
	before := w.before
	w.running.Go(func() {
		if before != nil {
			<-before // however often a visitor resets, two rounds run at most
		}
		r, first, err := w.nextRound(w.life, number, s)
		done := func() {
			w.resets = nil
			if err != nil {
				w.tell(event{Kind: kindError, Who: whoLab, Text: "reset: " + err.Error()})
				e.answer(outcome{err: refusef(http.StatusInternalServerError, "the world could not be reset, and is as it was: %v", err)})
				return
			}
			w.adopt(r, first)
			e.answer(outcome{seq: w.journal.lastSeq()})
		}
		if !w.post(done) && err == nil {
			r.close()
		}
	})
}

// present is how the next round begins if nothing else is said.
func (w *world) present() settings {
	s := w.round.settings
	s.compare = w.round.comparing
	s.values = map[string]string{}
	for name, seat := range w.round.seats {
		s.values[name] = seat.value
	}
	return s
}

// turn turns the gate's switch.
func (w *world) turn(on bool, reply chan<- outcome) {
	r := w.round
	if r.turning != nil {
		reply <- outcome{err: notNowf("the switch is still being turned: wait for it")}
		return
	}
	if on == r.comparing {
		reply <- outcome{seq: w.journal.lastSeq()}
		return
	}
	e := w.begin(doCompare, reply)
	r.turning = e
	w.running.Go(func() {
		err := r.ledger.SetComparing(r.over, on)
		var mark uint64
		if err == nil {
			mark, err = r.ledger.Mark(r.over)
		}
		w.postOf(r, func() {
			r.turning = nil
			if err != nil {
				e.answer(outcome{err: refusef(http.StatusInternalServerError, "%v", err)})
				return
			}
			r.comparing = on
			e.answer(outcome{seq: w.tell(event{Kind: kindCompare, Who: whoGate, On: new(on), Mark: mark})})
		})
	})
}
