package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A guardian is the process between the wrapper (holdfast run) and the child
// (the user's command):
//
//	wrapper ── holds the lease, forwards signals, owns the terminal
//	└─ guardian ── in a group of its own; follows the schedule; reaps
//	   └─ child ── leads a group of its own, which everything it starts is in
//
// How the group ends, whoever dies (PROTOCOL F2, casebook C58):
//   - the wrapper dies: the kernel kills the group through the tie; the
//     guardian also sees the end of its line, or its parent-death signal, kills
//     the group, and names those that left it;
//   - the guardian dies: the kernel kills the group through the tie, and the
//     child by its parent-death signal; the wrapper adopts and reaps;
//   - both die, in any order or at once: the tie, see type tie;
//   - the wrapper is stopped: the guardian follows the schedule that it was
//     told last; the guardian is stopped: the wrapper does (see wrapper.go).
//
// The child stays a zombie until its group is empty: that keeps its number
// from being given to another group, so a signal to the group is never sent to
// strangers.
type guardian struct {
	line   *guardLine
	parent int // the wrapper
	pgid   int // the child, and its group
	stub   int // descriptor to the stub: the word, then exec's error or end
	grace  time.Duration

	lease schedule // told by the wrapper
	drain schedule // for those that outlive the child in its group
	asked schedule // once the group was asked to end, whatever the lease says

	execs    chan int // gets exec's error number, 0 for none; nil once it is known
	orphaned bool     // the wrapper is gone
	exited   instant  // of the child itself; 0: it lives
	told     bool     // lingering was reported
	denied   bool     // that the group may not be signalled was reported
	done     bool
}

// guardMain is the guardian process.
func guardMain(args []string) int {
	if len(args) < 4 {
		fmt.Fprintln(os.Stderr, "holdfast: this subcommand is started by 'holdfast run' only")
		return exitUsage
	}
	fds, err := adoptFDs(args[0])
	grace, err2 := time.ParseDuration(args[1])
	if err != nil || err2 != nil || len(fds) != 3 {
		fmt.Fprintln(os.Stderr, "holdfast: this subcommand is started by 'holdfast run' only")
		return exitUsage
	}
	var name [16]byte
	copy(name[:15], "holdfast-guard")
	_ = setProcessName(&name)
	l, err := newLine(fds[0])
	if err != nil {
		return exitFailure
	}
	g := &guardian{line: l, parent: unix.Getppid(), grace: grace}
	if err := g.start(args[2], args[3:], fds[1]); err != nil {
		g.failed(err)
		return exitFailure
	}
	dropStdio()
	return g.run()
}

// start forks the stub as leader of its own group, and ties the group to the
// wrapper's life.
func (g *guardian) start(path string, argv []string, tieRead int) error {
	// Orphans of the child come to the guardian: it can name those that left
	// the group, and no zombie keeps a group alive.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	stub := append([]string{childCommand, strconv.Itoa(pair[1]), strconv.Itoa(os.Getpid()), path}, argv...)
	g.pgid, err = spawnSelf(stub, os.Environ(), &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}, pair[1])
	unix.Close(pair[1])
	if err != nil {
		return err
	}
	g.stub = pair[0]
	if err := armTie(tieRead, g.pgid); err != nil {
		unix.Close(g.stub) // the stub ends by itself
		return err
	}
	return nil
}

// caught are the signals that must not end the guardian: they are meant for
// the wrapper, which forwards them, or come from the terminal. They are caught
// and not ignored, because the child would inherit that.
var caught = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2,
	unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, unix.SIGPIPE, unix.SIGALRM, unix.SIGWINCH, unix.SIGCHLD,
}

func (g *guardian) run() int {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, caught...)
	timer, err := newBootTimer()
	if err != nil {
		g.failed(err)
		return exitFailure // the stub dies with its parent
	}
	defer timer.close()
	orders := make(chan order, 16)
	go receive(g.line.file, orders)
	changes := make(chan childChange, 16)
	go followChild(g.pgid, changes)
	sweep := time.NewTicker(20 * time.Millisecond)
	defer sweep.Stop()
	g.line.send(report{Event: reportStarted, PID: g.pgid, At: bootNow()})
	for !g.done {
		var sweeps <-chan time.Time
		if g.exited != 0 {
			sweeps = sweep.C
		}
		select {
		case o, ok := <-orders:
			if !ok {
				g.orphan()
				orders = nil
				break
			}
			g.obey(o)
		case errno := <-g.execs:
			g.execDone(errno)
		case c := <-changes:
			g.changed(c)
		case s := <-signals:
			g.signalled(s)
		case <-timer.C:
		case <-sweeps:
			g.sweep()
		}
		timer.set(g.act(bootNow()))
	}
	if !g.orphaned {
		for range orders { // the wrapper has the last word
		}
	}
	return exitOK
}

func (g *guardian) obey(o order) {
	switch o.Op {
	case orderGo:
		_, _ = unix.Write(g.stub, []byte{1})
		g.execs = make(chan int, 1)
		go readErrno(g.stub, g.execs)
	case orderExtend:
		g.lease.extend(o.TermAt, o.KillAt)
	case orderEnd:
		g.lease.end(bootNow(), o.KillAt)
	case orderSignal:
		g.kill(syscall.Signal(o.Signal))
	case orderKill:
		g.asked.killBy(o.KillAt)
	}
}

// readErrno tells what the stub says of exec: its error number, or, when exec
// closes the line, 0.
func readErrno(stub int, to chan<- int) {
	var errno [1]byte
	if n, _ := readRetry(stub, errno[:]); n == 1 {
		to <- int(errno[0])
		return
	}
	to <- 0
}

// orphan: the wrapper is gone, and with it the renewals.
func (g *guardian) orphan() {
	if g.orphaned {
		return
	}
	g.orphaned = true
	g.kill(unix.SIGKILL)
}

func (g *guardian) signalled(s os.Signal) {
	switch {
	case unix.Getppid() != g.parent:
		g.orphan()
	case s == unix.SIGCHLD:
		g.reap()
	}
}

func (g *guardian) execDone(errno int) {
	g.execs = nil
	unix.Close(g.stub)
	if errno != 0 {
		g.line.send(report{Event: reportExecFailed, Errno: errno})
		return
	}
	g.line.send(report{Event: reportRunning, At: bootNow()})
}

func (g *guardian) changed(c childChange) {
	if c.stopped {
		g.line.send(report{Event: reportStopped, Signal: c.status, At: bootNow()})
		return
	}
	if g.execs != nil {
		g.execDone(<-g.execs) // the stub is dead, so this is known
	}
	g.exited = bootNow()
	g.drain.extend(g.exited+g.grace, g.exited+2*g.grace)
	r := report{Event: reportExited, At: g.exited}
	if c.signalled {
		r.Signal = c.status
	} else {
		r.Code = c.status
	}
	g.line.send(r)
	g.sweep()
}

// act sends what is due, and says when something is due next.
func (g *guardian) act(now instant) instant {
	if g.done {
		return 0
	}
	term, kill, next := g.lease.due(now)
	drainTerm, drainKill, drainNext := g.drain.due(now)
	_, askedKill, askedNext := g.asked.due(now)
	if term || drainTerm {
		g.kill(unix.SIGTERM)
		// A stopped process acts on SIGTERM only once it is continued.
		g.kill(unix.SIGCONT)
	}
	if term {
		g.line.send(report{Event: reportTermed, At: now})
	}
	if kill || drainKill || askedKill {
		g.kill(unix.SIGKILL)
	}
	if kill {
		g.line.send(report{Event: reportKilled, At: now})
	}
	return sooner(next, sooner(drainNext, askedNext))
}

// lingerNotice is how long others of the group may outlive the child before
// that is worth a line.
const lingerNotice = 250 * time.Millisecond

// sweep looks whether the group is empty once the child has ended. Those that
// outlive it get the grace to end by themselves, then SIGTERM, then SIGKILL.
func (g *guardian) sweep() {
	all, err := processes()
	if err != nil {
		return // tried again with the next tick
	}
	left := groupMembers(all, g.pgid)
	if len(left) > 0 {
		// What was ended together with the child may take a moment to die.
		if !g.told && bootNow() >= g.exited+min(g.grace, lingerNotice) {
			g.told = true
			g.line.send(report{Event: reportLingering, Processes: named(left), Grace: g.grace})
		}
		if g.orphaned {
			g.kill(unix.SIGKILL) // one may have been forked meanwhile
		}
		return
	}
	g.done = true
	outside := named(descendants(all, os.Getpid()))
	g.reap()
	var status unix.WaitStatus
	_, _ = unix.Wait4(g.pgid, &status, unix.WNOHANG, nil)
	g.line.send(report{Event: reportEnded, Processes: outside, At: bootNow()})
	if g.orphaned && len(outside) > 0 {
		withoutTTOU(func() {
			fmt.Fprintf(os.Stderr, "holdfast: the wrapper died; its command was killed, but these processes had left its group and live on: %s\n", listed(outside))
		})
	}
}

// kill signals the whole group. If all of it is dead that fails, and is as good.
func (g *guardian) kill(s syscall.Signal) {
	if g.done {
		return
	}
	if unix.Kill(-g.pgid, s) == unix.EPERM && !g.denied {
		g.denied = true
		g.line.send(report{Event: reportDenied, Signal: int(s)})
	}
}

// failed tells why nothing was started. The guardian ends after it.
func (g *guardian) failed(err error) {
	errno, _ := errors.AsType[syscall.Errno](err)
	g.line.send(report{Event: reportFailed, Errno: int(errno), Reason: err.Error()})
	g.line.finish()
}

// reap collects dead orphans, but not the child: see type guardian.
func (g *guardian) reap() {
	for _, pid := range ownChildren() {
		if pid != g.pgid {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}
