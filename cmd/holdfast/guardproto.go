package main

import (
	"encoding/json"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An order is what the wrapper tells the guardian.
type order struct {
	Op orderKind
	// TermAt and KillAt go with orderExtend, KillAt with orderEnd and orderKill.
	TermAt, KillAt instant
	// Signal goes with orderSignal.
	Signal int
}

type orderKind string

const (
	orderGo     orderKind = "go"     // become the command
	orderExtend orderKind = "extend" // the lease was renewed: schedule.extend
	orderEnd    orderKind = "end"    // the lock is lost: schedule.end from now on
	orderSignal orderKind = "signal" // forward Signal to the group
	orderKill   orderKind = "kill"   // it was asked to end: schedule.killBy
)

// A report is what the guardian tells the wrapper.
type report struct {
	Event     reportKind
	PID       int           // started: the child, and its process group
	Errno     int           // exec-failed; failed, 0 if there is none
	Reason    string        // failed
	Signal    int           // stopped; exited by a signal; denied
	Code      int           // exited
	At        instant       // when the guardian saw it
	Processes []procEntry   // lingering: in the group; ended: outside of it
	Grace     time.Duration // lingering: until SIGTERM
}

type reportKind string

const (
	reportStarted    reportKind = "started"
	reportRunning    reportKind = "running" // exec succeeded
	reportExecFailed reportKind = "exec-failed"
	reportStopped    reportKind = "stopped"
	reportTermed     reportKind = "termed"    // SIGTERM sent: the lease
	reportKilled     reportKind = "killed"    // SIGKILL sent: the lease
	reportExited     reportKind = "exited"    // the child itself
	reportLingering  reportKind = "lingering" // others of its group live on
	reportEnded      reportKind = "ended"     // the whole group
	reportDenied     reportKind = "denied"    // nobody of the group may be signalled
	reportFailed     reportKind = "failed"    // nothing was started
)

// A guardLine is one end of the stream between wrapper and guardian.
type guardLine struct {
	file *os.File
	out  chan any
	quit chan struct{} // closed when nobody reads any more
	sent chan struct{} // closed when everything before finish was written
}

// lineBacklog is how many messages may wait for a side that does not read.
const lineBacklog = 1024

func newLine(fd int) (*guardLine, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	l := &guardLine{file: os.NewFile(uintptr(fd), "guardian line"), out: make(chan any, lineBacklog), quit: make(chan struct{}), sent: make(chan struct{})}
	go func() {
		defer close(l.sent)
		enc := json.NewEncoder(l.file)
		for {
			select {
			case msg, ok := <-l.out:
				if !ok {
					return
				}
				_ = enc.Encode(msg) // the reading side finds out that the line broke
			case <-l.quit:
				return
			}
		}
	}()
	return l, nil
}

// send sends one message, in order, and never waits: the other side may be
// stopped, and a stopped guardian must not keep the wrapper from killing the
// group itself. What a stopped side does not take is dropped in the end.
func (l *guardLine) send(msg any) {
	select {
	case l.out <- msg:
	default:
	}
}

// finish waits until everything was written. send must not be called after it.
func (l *guardLine) finish() {
	close(l.out)
	<-l.sent
}

// close ends the line. What is sent after it goes nowhere.
func (l *guardLine) close() {
	l.file.Close()
	close(l.quit)
}

// receive passes each message of the stream on until it ends.
func receive[T any](r io.Reader, to chan<- T) {
	dec := json.NewDecoder(r)
	for {
		var msg T
		if dec.Decode(&msg) != nil {
			close(to)
			return
		}
		to <- msg
	}
}
