package main

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// An asking is what a wrapper does about a command that was asked to end by a
// signal. The command of elect has the grace to end, because the next primary
// waits for it; that of run has as long as it wants, because nobody else may
// know how long its end takes.
type asking struct {
	signal   syscall.Signal // the first that asked; 0: none did
	at       instant        // when it was forwarded
	noticeAt instant        // say that run waits; 0: not, or it was said
	killed   bool           // a later signal asked to kill at once
	backup   schedule       // of the kill, in case the guardian is stopped
}

// askedTwice is the least time between a signal that asks for the end and
// another one that means "at once": timeout(1), for one, sends each twice.
const askedTwice = 500 * time.Millisecond

// asksEnd reports whether a signal asks the command to end.
func asksEnd(s syscall.Signal) bool {
	switch s {
	case unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM:
		return true
	}
	return false
}

// ask notes a signal that was forwarded, and limits the time that elect's
// command has from then on.
func (w *wrapper) ask(s syscall.Signal) {
	if !asksEnd(s) || w.settled {
		return
	}
	a, now := &w.asked, bootNow()
	switch {
	case a.signal == 0:
		a.signal, a.at = s, now
		if !w.again {
			a.noticeAt = now + w.cmd.grace
			return
		}
		w.say("%s: forwarded; waiting up to %v for the command to end", signalName(s), w.cmd.grace)
		w.killBy(now + w.cmd.grace)
	case w.again && !a.killed && s != unix.SIGHUP && now-a.at >= askedTwice:
		a.killed = true
		w.say("%s again: killing the command", signalName(s))
		w.killBy(now)
	}
}

// killBy tells the guardian when to kill the group, and remembers to do it in
// its place.
func (w *wrapper) killBy(at instant) {
	w.line.send(order{Op: orderKill, KillAt: at})
	w.asked.backup.killBy(at + backupDelay)
}

// actAsked does what is due because a signal asked for the end, and says when
// to ask again.
func (w *wrapper) actAsked(now instant) instant {
	a := &w.asked
	_, kill, next := a.backup.due(now)
	if kill {
		w.killAll()
	}
	if a.noticeAt != 0 && now >= a.noticeAt {
		a.noticeAt = 0
		if w.exited != nil {
			return next // who is left of its group, another line says
		}
		w.say("%s was forwarded %v ago, and the command has not ended: still waiting for it, and the lock stays held; to kill it: kill -KILL -- -%d",
			signalName(a.signal), (now - a.at).Round(time.Millisecond), w.pgid)
	}
	return sooner(a.noticeAt, next)
}
