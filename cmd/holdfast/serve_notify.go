package main

import (
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// serviceNotes tell a service manager such as systemd how the server is, over
// the datagram socket that the manager names in the environment (sd_notify(3)).
// Without one, nothing is told.
type serviceNotes struct {
	conn  net.Conn // nil: nobody listens
	log   *slog.Logger
	every time.Duration // of the watchdog; 0: none is set
	quit  chan struct{}
	done  chan struct{} // nil: the watchdog is not fed
}

// noteTimeout is how long a note may wait for a manager that does not read.
const noteTimeout = time.Second

// openNotes finds out whom to tell.
func openNotes(log *slog.Logger) *serviceNotes {
	n := &serviceNotes{log: log, quit: make(chan struct{})}
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return n
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Net: "unixgram", Name: name})
	if err != nil {
		log.Warn("the service manager cannot be told anything: NOTIFY_SOCKET is no socket to send to", "error", err)
		return n
	}
	n.conn = conn
	if pid := os.Getenv("WATCHDOG_PID"); pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return n
	}
	text := os.Getenv("WATCHDOG_USEC")
	if text == "" {
		return n
	}
	usec, err := strconv.ParseInt(text, 10, 64)
	if err != nil || usec <= 0 || usec > int64(time.Duration(1<<63-1)/time.Microsecond) {
		log.Warn("the service manager's watchdog is not served: WATCHDOG_USEC is not a number of microseconds", "got", text)
		return n
	}
	n.every = time.Duration(usec) * time.Microsecond
	return n
}

// ready says that the server can be used. From then on the watchdog is fed, as
// long as beat, which counts the turns of the node's loop, rises.
func (n *serviceNotes) ready(address string, beat func() uint64) {
	if n.conn == nil {
		return
	}
	n.send("READY=1", "STATUS=serving on "+address)
	if n.every > 0 {
		n.done = make(chan struct{})
		go n.feed(beat)
	}
}

// feed looks four times in the watchdog's time whether the loop turns.
func (n *serviceNotes) feed(beat func() uint64) {
	defer close(n.done)
	t := time.NewTicker(max(n.every/4, time.Millisecond))
	defer t.Stop()
	for seen := beat(); ; {
		select {
		case <-n.quit:
			return
		case <-t.C:
		}
		if now := beat(); now != seen {
			seen = now
			n.send("WATCHDOG=1")
		}
	}
}

// stopping says that the server stops because it was asked to. The watchdog is
// fed until close.
func (n *serviceNotes) stopping() {
	if n.conn != nil {
		n.send("STOPPING=1", "STATUS=stopping")
	}
}

// close ends what ready began.
func (n *serviceNotes) close() {
	close(n.quit)
	if n.done != nil {
		<-n.done
	}
	if n.conn != nil {
		_ = n.conn.Close()
	}
}

func (n *serviceNotes) send(lines ...string) {
	_ = n.conn.SetWriteDeadline(time.Now().Add(noteTimeout))
	if _, err := n.conn.Write([]byte(strings.Join(lines, "\n"))); err != nil {
		n.log.Warn("the service manager was not told", "what", lines[0], "error", err)
	}
}
