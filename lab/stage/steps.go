package stage

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"

	"holdfast/fence"
)

// do does one word. What cannot be done is said, and nothing else happens.
func (p *program) do(ctx context.Context, word string) {
	word, rest, _ := strings.Cut(word, " ")
	if p.poised != nil && word != DoGo && word != doValue {
		p.complain("%q does not fit: the worker stands before a write; tell it %q, or end it", word, DoGo)
		return
	}
	switch word {
	case DoAcquire:
		switch {
		case p.acquiring != nil:
			p.complain("the worker waits for the lock already")
		case p.grant != nil && p.grant.Err() == nil:
			p.complain("the worker holds the lock already: let it release it first")
		default:
			p.grant = nil
			p.acquire(ctx)
		}
	case DoRelease:
		if p.acquiring != nil {
			p.acquiring.gaveUp = true
			p.acquiring.cancel()
			return
		}
		if p.needsGrant(word) {
			p.release(ctx)
		}
	case DoRead:
		if p.needsGrant(word) {
			p.read(ctx)
		}
	case DoWrite:
		if p.needsGrant(word) && p.look() {
			p.write(ctx, p.line())
		}
	case DoPoise:
		if p.needsGrant(word) && p.look() {
			n := p.line()
			p.poised = &n
		}
	case DoInside:
		if p.needsGrant(word) {
			p.inside(ctx)
		}
	case DoGo:
		if p.poised == nil {
			p.complain("%q does not fit: the worker does not stand before a write", word)
			return
		}
		n := *p.poised
		p.poised = nil
		p.write(ctx, n)
	case doValue:
		p.change(rest)
	default:
		p.complain("unknown word %q", clip(word))
	}
}

func (p *program) needsGrant(word string) bool {
	if p.grant == nil {
		p.complain("%q does not fit: the worker has no grant; let it acquire the lock first", word)
	}
	return p.grant != nil
}

func (p *program) change(text string) {
	var value string
	err := json.Unmarshal([]byte(text), &value)
	if err == nil {
		err = CheckValue(value)
	}
	if err != nil {
		p.complain("value: %v", err)
		return
	}
	p.value = value
	p.say(Said{Event: SaidValue, Value: value})
}

func (p *program) read(ctx context.Context) {
	seq, err := p.ledger.Last(ctx)
	if err != nil {
		p.complain("%v", err)
		return
	}
	p.basis = seq
	p.say(Said{Event: SaidRead, Line: seq, Token: p.grant.Token()})
}

// line is what the worker would write now.
func (p *program) line() Line {
	return Line{Worker: p.spec.Name, Token: p.grant.Token().Number, Value: p.value, Basis: p.basis}
}

// look asks the own watchdog whether the lease is held, and says what it says.
// A careful program looks just here. It does not help: the pause can come
// after the look.
func (p *program) look() bool {
	held := p.grant.Context().Err() == nil
	p.say(Said{Event: SaidLooked, Token: p.grant.Token(), Left: p.grant.Deadline(), Held: held})
	if !held {
		p.complain("the worker knows that its grant has ended, and does not write: %v", context.Cause(p.grant.Context()))
	}
	return held
}

// patience bounds one write. Its context is not the grant's: only the gate
// stands between a zombie and the ledger.
const patience = time.Minute

func (p *program) write(ctx context.Context, n Line) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !p.around.still.enter() {
		return
	}
	w, err := p.ledger.Write(ctx, p.spec.Fencing, p.grant.Token(), n)
	p.around.still.leave()
	p.wrote(n, w, err)
}

// inside writes in two parts, with a stop inside the gate's guarded step.
func (p *program) inside(ctx context.Context) {
	if p.spec.Fencing == Never {
		p.complain("the worker writes past the gate, so there is no guarded step")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, token := p.line(), p.grant.Token()
	w, err := p.ledger.WriteInside(ctx, token, n, func(basis int64) error {
		n.Basis = basis
		p.say(Said{Event: SaidInside, Token: token, Line: basis})
		return p.awaitGo(ctx)
	})
	p.wrote(n, w, err)
}

func (p *program) awaitGo(ctx context.Context) error {
	for {
		select {
		case word, ok := <-p.words:
			switch {
			case !ok || !p.around.still.pass(ctx):
				return io.ErrUnexpectedEOF
			case word == DoGo:
				return nil
			}
			p.complain("%q does not fit: the worker stands inside the guarded step; tell it %q, or end it", clip(word), DoGo)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wrote says what became of a write.
func (p *program) wrote(n Line, w Written, err error) {
	token := p.grant.Token()
	if stale, ok := errors.AsType[*fence.StaleError](err); ok {
		p.say(Said{Event: SaidRefused, Token: stale.Offered, Seen: stale.Seen, Mark: stale.Seen.Number, Value: n.Value, Text: err.Error()})
		return
	}
	if err != nil {
		p.complain("writing with token %d: %v", token.Number, err)
		return
	}
	p.basis = w.Line
	p.say(Said{Event: SaidWrote, Token: token, Value: n.Value, Line: w.Line, Basis: n.Basis, Compared: w.Compared, Mark: w.Mark})
}

func (p *program) release(ctx context.Context) {
	grant := p.grant
	if loss := grant.Cause(); loss != nil {
		p.complain("there is nothing to release: %v", loss)
		return
	}
	p.grant = nil
	s := Said{Event: SaidReleased, Token: grant.Token()}
	if err := grant.Release(ctx); err != nil {
		s.Text = err.Error() // no longer renewed, and asked for again until then
	}
	p.say(s)
}
