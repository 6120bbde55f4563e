package core

import (
	"crypto/sha256"
	"fmt"
)

// asked is what a request asked for, as its lane remembers it: enough to see
// that a copy is one, and to tell who sent something else under the same name
// what stands there (false retries: RFC 8881 §2.10.6.1.3.1). The zero value is
// for a name that was cancelled: it stands for no request any more.
type asked struct {
	kind uint8   // kindAcquire, kindPut or kindDelete
	lock string  // "" if what was given is no lock name
	sum  [8]byte // of all that was asked for, but see askedBy
}

// askedBy says what a command asks for. Session, lane and number are its name
// and not part of it, nor is Try: how long to wait may differ from copy to copy.
//
// It is a part of the state, so replicas must agree on it: it is drawn from the
// command's encoding in the log, which never changes within a format.
func askedBy(cmd Command) asked {
	x := codec{writing: true}
	var lock string
	switch c := cmd.(type) {
	case Acquire:
		c.Session, c.Request, c.Try = 0, Request{}, false
		x.acquire(&c)
		lock = c.Lock
	case Put:
		c.Session, c.Request = 0, Request{}
		x.put(&c)
		lock = c.Lock
	case Delete:
		c.Session, c.Request = 0, Request{}
		x.delete(&c)
		lock = c.Lock
	default:
		broken("command %T is no named request", cmd)
	}
	a := asked{kind: uint8(kindOf(cmd))}
	if nameFits(lock) {
		a.lock = lock
	}
	sum := sha256.Sum256(x.buf)
	copy(a.sum[:], sum[:])
	return a
}

// String names the request for people.
func (a asked) String() string {
	what := map[uint8]string{kindAcquire: "an acquire", kindPut: "a put", kindDelete: "a delete"}[a.kind]
	if a.lock == "" {
		return what + " with a bad lock name"
	}
	return fmt.Sprintf("%s of %q", what, a.lock)
}

// falseRetry refuses what came under the name of the lane's last request and is
// another one. Nothing of it is recorded.
func (n lane) falseRetry(a asked) Result {
	was, then := n.asked.String(), fmt.Sprintf("use n %d for another request", n.last+1)
	if n.asked.kind == a.kind && n.asked.lock == a.lock {
		was += " with other options"
	}
	switch {
	case n.outcome.status == Waiting:
		then = "it still waits: cancel it, or use another lane for another request"
	case n.last == MaxRequest:
		then = "use another lane for another request"
	}
	return (&refusal{rule: ruleFalseRetry}).saying(n.last, n.lane, was, then)
}

// checkAsked panics unless the lane's memory of what was asked fits its outcome.
func (n lane) checkAsked() {
	a, o := n.asked, n.outcome
	must((a == asked{}) == (o.status == Cancelled), "invariant 7: lane %d of session %d: asked %v, outcome %d", n.lane, n.session, a, o.status)
	must(a.lock == "" || nameFits(a.lock), "lane %d of session %d: bad lock name", n.lane, n.session)
	switch o.status {
	case Cancelled:
	case Waiting, Granted:
		must(a.kind == kindAcquire, "invariant 7: lane %d of session %d: a put or delete waits or is granted", n.lane, n.session)
		must(o.grant == nil || o.grant.Lock == a.lock, "invariant 7: lane %d of session %d: granted is not what was asked for", n.lane, n.session)
	case Done:
		must(a.kind == kindPut || a.kind == kindDelete, "invariant 7: lane %d of session %d: an acquire is done", n.lane, n.session)
	default:
		must(a.kind == kindAcquire || a.kind == kindPut || a.kind == kindDelete, "lane %d of session %d: asked for a command of kind %d", n.lane, n.session, a.kind)
	}
}

// asked is what a lane remembers of the question.
func (x *codec) asked(a *asked) {
	x.u8(&a.kind, kindDelete, "lane's kind of request")
	if a.kind == 0 || x.err != nil {
		return
	}
	x.text(&a.lock, MaxLockName, "lane's lock")
	x.fixed(a.sum[:])
}
