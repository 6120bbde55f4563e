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
	// TermAt and KillAt go with orderExtend, KillAt with orderEnd.
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
	enc  *json.Encoder
}

func newLine(fd int) (*guardLine, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(uintptr(fd), "guardian line")
	return &guardLine{file: f, enc: json.NewEncoder(f)}, nil
}

// send writes one message. It is bounded: the other side may be stopped, and a
// stopped guardian must not keep the wrapper from killing the group itself.
func (l *guardLine) send(msg any) {
	_ = l.file.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_ = l.enc.Encode(msg)
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
