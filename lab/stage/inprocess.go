package stage

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// inProcess is a [Worker] without a process of its own: the same program, with
// its line to the service, its clock and its steps made to stand still.
type inProcess struct {
	name  string
	words chan string
	still *stillness
	lines *lines
	said  *sayings
	end   context.CancelFunc
	ended chan struct{} // closed when the program has returned

	mu     sync.Mutex
	killed bool
}

// StartInProcess starts the worker's program in this process. Its pause is an
// imitation: bytes from and to the service wait, its lease's clock stands
// still, and it begins no step; to the service and to the ledger that looks
// as if the process had been stopped. Its clock does not count the sleep of
// the machine. It is killed when ctx ends.
func StartInProcess(ctx context.Context, spec WorkerSpec) (Worker, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	p := &inProcess{
		name: spec.Name, words: make(chan string, mostUnread), still: newStillness(),
		said: newSayings(ctx), end: end, ended: make(chan struct{}),
	}
	p.lines = &lines{still: p.still}
	go func() {
		err := perform(running, spec, surroundings{out: p.said.put, still: p.still, clock: p.still.clock, dial: p.lines.dial}, p.words)
		p.mu.Lock()
		killed := p.killed
		p.mu.Unlock()
		if !killed {
			if err == nil {
				err = errors.New("its words ended")
			}
			p.said.put(Said{Event: SaidEnded, Text: clip(fmt.Sprintf("worker %s ended: %v", p.name, err))})
		}
		p.said.close()
		close(p.ended)
	}()
	context.AfterFunc(ctx, p.Kill)
	return p, nil
}

func (p *inProcess) PID() int          { return 0 }
func (p *inProcess) Said() <-chan Said { return p.said.to }

func (p *inProcess) Tell(words ...string) error {
	for _, word := range words {
		if err := checkWord(word); err != nil {
			return err
		}
		select {
		case <-p.ended:
			return fmt.Errorf("worker %s: %w", p.name, errGone)
		default:
		}
		select {
		case p.words <- word:
		default:
			return fmt.Errorf("worker %s has more words lying than it can take", p.name)
		}
	}
	return nil
}

func (p *inProcess) Freeze(ctx context.Context) error {
	select {
	case <-p.ended:
		return fmt.Errorf("stopping worker %s: %w", p.name, errGone)
	default:
	}
	if err := p.still.freeze(ctx); err != nil {
		return fmt.Errorf("stopping worker %s: %w", p.name, err)
	}
	p.said.handed(ctx)
	return nil
}

func (p *inProcess) Thaw() error {
	select {
	case <-p.ended:
		return fmt.Errorf("waking worker %s: %w", p.name, errGone)
	default:
	}
	p.still.thaw()
	return nil
}

// Kill cuts the lines first, so that no goodbye can leave.
func (p *inProcess) Kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	p.still.kill()
	p.lines.cut()
	p.end()
	<-p.ended
}
