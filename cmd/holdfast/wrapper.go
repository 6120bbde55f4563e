package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A lease is what the wrapper must know of the grant under which the command
// runs. *holdfast.Grant is one.
type lease interface {
	// Deadline is how long the lease is good for without another renewal.
	Deadline() time.Duration
	// Context ends when the grant is lost, with the reason as its cause.
	Context() context.Context
}

// A command is what to run.
type command struct {
	path  string   // of the file, looked up
	argv  []string // as given, argv[0] included
	env   []string
	grace time.Duration // between SIGTERM and SIGKILL
}

// A commandEnd says how a command and its group ended.
type commandEnd struct {
	code      int   // the exit code as a shell would tell it
	lost      error // not nil: ended because of the lease, and why
	survivors []procEntry
	err       error // not nil: the command was never started
}

// A wrapper is the part of holdfast run that lives while the command does. See
// type guardian for the processes around it.
type wrapper struct {
	cmd     command
	lease   lease
	renewed chan struct{} // gets a value after a renewal; may be nil
	again   bool          // another command may follow in this process
	say     func(format string, args ...any)

	line     *guardLine
	reports  chan report
	gone     chan error // the guardian ended, or could not be started
	signals  chan os.Signal
	tie      tie
	guardPID int
	pgid     int // the command's group; 0 before there is one
	running  bool
	held     []syscall.Signal // came before the command ran
	term     *terminal
	wantTTY  bool // give the terminal whenever it is ours to give

	backup  schedule // follows the guardian's, in case that is stopped
	asked   asking   // to end, by a signal
	told    instant  // the last killAt that was sent
	termed  bool     // SIGTERM was sent because of the lease, by whomever
	exited  *report
	end     commandEnd
	settled bool
}

// backupDelay is how long the guardian has to confirm that it sent SIGTERM
// before the wrapper sends it.
const backupDelay = 100 * time.Millisecond

// errEndedEarly is the cause if the command was told to end although the lease
// was then renewed after all: SIGTERM is never taken back.
var errEndedEarly = errors.New("the lease was not renewed until the grace before its deadline; SIGTERM is never taken back")

// run starts the command and returns when its whole group has ended. catch
// must have been called. Signals stay caught afterwards, so that none of them
// keeps the lock from being released.
func (w *wrapper) run() commandEnd {
	if err := w.start(); err != nil {
		return commandEnd{err: err}
	}
	defer w.close()
	timer, err := newBootTimer()
	if err != nil {
		return commandEnd{err: err} // the guardian ends with its line
	}
	defer timer.close()
	refresh := time.NewTicker(100 * time.Millisecond)
	defer refresh.Stop()
	lost := w.lease.Context().Done()
	reports := w.reports
	for !w.settled {
		select {
		case r, ok := <-reports:
			if !ok {
				reports = nil // the guardian is about to end
				break
			}
			w.reported(r)
		case err := <-w.gone:
			w.guardianGone(err)
		case s := <-w.signals:
			w.signalled(s.(syscall.Signal))
		case <-lost:
			lost = nil
			w.lose(context.Cause(w.lease.Context()))
		case <-w.renewed:
			w.extend()
		case <-refresh.C:
			w.extend()
		case <-timer.C:
		}
		timer.set(w.actBackup(bootNow()))
	}
	w.term.takeBack()
	return w.end
}

// close frees what the command's run needed.
func (w *wrapper) close() {
	w.term.close()
	if w.line != nil {
		w.line.close()
	}
	if w.again {
		// Nobody is left in the group whom this could kill.
		w.tie.close()
	}
}

// start starts the guardian, and with it the child's stub.
func (w *wrapper) start() (err error) {
	w.term = &terminal{fd: -1}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	// If the guardian is killed, the child comes to the wrapper.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl PR_SET_CHILD_SUBREAPER", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	if w.tie, err = newTie(); err != nil {
		unix.Close(pair[0])
		unix.Close(pair[1])
		return err
	}
	fds := []int{pair[1], w.tie.guardianRead, w.tie.guardianWrite}
	list := fmt.Sprintf("%d,%d,%d", fds[0], fds[1], fds[2])
	argv := append([]string{guardCommand, list, w.cmd.grace.String(), w.cmd.path}, w.cmd.argv...)
	started := make(chan int, 1)
	w.gone = make(chan error, 4)
	go func() {
		// The guardian's parent-death signal is tied to this thread.
		runtime.LockOSThread()
		pid, err := spawnSelf(argv, w.cmd.env, &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}, fds...)
		started <- pid
		if err == nil {
			err = waitFor(pid)
		}
		w.gone <- err
	}()
	w.guardPID = <-started
	unix.Close(pair[1])
	w.tie.passed()
	if w.line, err = newLine(pair[0]); err != nil {
		return err
	}
	if w.guardPID == 0 {
		err := <-w.gone
		errno, _ := errors.AsType[syscall.Errno](err)
		return startError(w.cmd.path, int(errno), err)
	}
	w.reports = make(chan report, 16)
	go receive(w.line.file, w.reports)
	w.term = openTerminal()
	w.wantTTY = isTerminal(0) && isTerminal(1)
	w.extend()
	return nil
}

// waitFor reaps pid and says how it ended.
func waitFor(pid int) error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return os.NewSyscallError("wait4", err)
		case status.Signaled():
			return fmt.Errorf("was killed by %s", signalName(status.Signal()))
		default:
			return fmt.Errorf("ended with exit code %d", status.ExitStatus())
		}
	}
}

// forwarded are the signals that are passed on to the command's group.
var forwarded = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGTSTP,
}

// catch asks for the signals to forward. One that is ignored (nohup) stays so,
// for the command too. SIGPIPE is caught so that a closed stderr cannot end
// the wrapper.
func (w *wrapper) catch() {
	w.signals = make(chan os.Signal, 32)
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(w.signals, s)
		}
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
}

// signalled forwards one signal, once, to the whole group. What the terminal
// sends to the foreground group reaches the command without the wrapper.
func (w *wrapper) signalled(s syscall.Signal) {
	if !w.running {
		w.held = append(w.held, s)
		return
	}
	w.line.send(order{Op: orderSignal, Signal: int(s)})
	w.ask(s)
}

// extend tells the guardian of a renewal. After SIGTERM it does nothing, as the
// schedules do: the own one may not know yet that the guardian sent it.
func (w *wrapper) extend() {
	if w.termed {
		return
	}
	now := bootNow() // before the lease is asked: never later than the truth
	left := w.lease.Deadline()
	if left <= 0 {
		return
	}
	killAt := now + left
	if killAt-w.told < time.Millisecond {
		return
	}
	w.told = killAt
	w.line.send(order{Op: orderExtend, TermAt: killAt - w.cmd.grace, KillAt: killAt})
	w.backup.extend(killAt-w.cmd.grace+backupDelay, killAt)
}

// lose ends the command: the grant is lost, whatever the schedule said.
func (w *wrapper) lose(cause error) {
	if w.settled || w.end.lost != nil && !errors.Is(w.end.lost, errEndedEarly) {
		return
	}
	w.end.lost = cause
	now := bootNow()
	killAt := min(now+w.cmd.grace, max(w.told, now))
	w.line.send(order{Op: orderEnd, KillAt: killAt})
	w.backup.end(now+backupDelay, killAt)
	if !w.termed {
		w.say("%s: ending the command: SIGTERM, and SIGKILL in %v", plainText(cause), (killAt - now).Round(time.Millisecond))
	}
}

// actBackup does what the guardian should have done, if it did not.
func (w *wrapper) actBackup(now instant) instant {
	term, kill, next := w.backup.due(now)
	if term && !w.termed {
		w.markTermed()
		w.killGroup(unix.SIGTERM)
		w.killGroup(unix.SIGCONT)
	}
	if kill {
		w.markTermed()
		w.killAll()
	}
	return sooner(next, w.actAsked(now))
}

// killAll kills the group for a guardian that may be stopped, and then cannot
// say that all is over.
func (w *wrapper) killAll() {
	w.killGroup(unix.SIGKILL)
	time.AfterFunc(2*time.Second, func() { w.gone <- errGuardStopped })
}

var errGuardStopped = errors.New("does not answer")

// markTermed notes that SIGTERM was sent because of the lease.
func (w *wrapper) markTermed() {
	w.termed = true
	if w.end.lost == nil {
		w.end.lost = errEndedEarly
		w.say("the lease was not renewed and ends in %v: ending the command: SIGTERM, and SIGKILL then",
			max(0, w.told-bootNow()).Round(time.Millisecond))
	}
}

// killGroup signals the command's group. The guardian keeps the child's zombie
// until it has told of the end, so the number is still the group's.
func (w *wrapper) killGroup(s syscall.Signal) {
	if w.pgid != 0 && !w.settled {
		_ = unix.Kill(-w.pgid, s)
	}
}

func (w *wrapper) reported(r report) {
	switch r.Event {
	case reportStarted:
		w.started(r.PID)
	case reportRunning:
		w.running = true
		if !w.again {
			dropStdio()
		}
		for _, s := range w.held {
			w.signalled(s)
		}
	case reportExecFailed:
		w.end.err = &execError{path: w.cmd.path, errno: syscall.Errno(r.Errno)}
	case reportFailed:
		w.end.err = startError(w.cmd.path, r.Errno, errors.New(r.Reason))
	case reportDenied:
		w.say("no permission to send %s to the command: it runs as another user, and is not ended by holdfast; only a gate stops what it writes after the lease",
			signalName(syscall.Signal(r.Signal)))
	case reportStopped:
		w.stopped(syscall.Signal(r.Signal))
	case reportTermed:
		w.markTermed()
	case reportExited:
		w.exited = &r
	case reportLingering:
		if w.end.lost == nil {
			w.say("the command ended, but others of its process group live on: %s; they get %v to end, then SIGTERM; the lock is held until then",
				listed(r.Processes), r.Grace)
		}
	case reportEnded:
		w.finish(r.Processes)
	}
}

// started: the stub waits for the word. Everything that would end it must
// stand before.
func (w *wrapper) started(pgid int) {
	w.pgid = pgid
	if err := armTie(w.tie.wrapperRead, pgid); err != nil {
		w.end.err = err
		w.line.file.Close() // the guardian ends, and the stub with it
		return
	}
	if w.wantTTY {
		w.term.give(pgid)
	}
	w.line.send(order{Op: orderGo})
}

// stopped: the child was stopped. If it was for want of the terminal, and that
// is the wrapper's to give, it gets it. Otherwise the wrapper stops too, as
// the shell that waits for it expects, and continues the child afterwards; a
// lease that ran out meanwhile has ended the child before that.
func (w *wrapper) stopped(s syscall.Signal) {
	wants := s == unix.SIGTTIN || s == unix.SIGTTOU
	switch {
	case s == unix.SIGSTOP:
		return // someone's wish, and theirs to undo; the lease is renewed on
	case !standsStopped(w.pgid):
		return // the wrapper was stopped itself when this was news
	case wants && (w.term.give(w.pgid) || w.term.has(w.pgid)):
		w.line.send(order{Op: orderSignal, Signal: int(unix.SIGCONT)})
		return
	}
	if w.termed {
		return // it is being ended, and must not wait for a shell
	}
	gave := w.term.takeBack()
	before := time.Now()
	stopSelf()
	if gave || w.wantTTY {
		w.term.give(w.pgid)
	}
	resume := func() { w.line.send(order{Op: orderSignal, Signal: int(unix.SIGCONT)}) }
	if wants && time.Since(before) < 10*time.Millisecond {
		// Nobody can stop this job, and it cannot have the terminal.
		time.AfterFunc(time.Second, resume)
		return
	}
	resume()
}

// finish: no process of the group is left.
func (w *wrapper) finish(outside []procEntry) {
	w.settled = true
	w.end.survivors = outside
	switch {
	case w.exited == nil:
		w.end.code = exitSignal + int(unix.SIGKILL)
	case w.exited.Signal != 0:
		w.end.code = exitSignal + w.exited.Signal
	default:
		w.end.code = w.exited.Code
	}
}

// guardianGone: the guardian died, or does not answer, before it told of the
// end. The tie has killed the group; the wrapper sees to it, and reaps.
func (w *wrapper) guardianGone(why error) {
	if w.settled {
		return
	}
	if why == errGuardStopped {
		_ = unix.Kill(w.guardPID, unix.SIGKILL)
		if w.pgid != 0 {
			_ = waitGone(w.gone)
		}
	}
	w.drainReports()
	if w.settled {
		return
	}
	if w.end.err == nil && w.pgid == 0 {
		w.end.err = fmt.Errorf("the guardian process %w before it could start the command", why)
	}
	if w.end.err == nil {
		w.say("the guardian process (pid %d) %v; killing the command", w.guardPID, why)
	}
	w.killGroup(unix.SIGKILL)
	outside := w.reapGroup()
	w.finish(outside)
}

// waitGone waits for the real end of a guardian that was killed.
func waitGone(gone <-chan error) error {
	for err := range gone {
		if err != errGuardStopped {
			return err
		}
	}
	return nil
}

// drainReports handles what the guardian said before it died.
func (w *wrapper) drainReports() {
	for r := range w.reports {
		if r.Event == reportExited || r.Event == reportEnded || r.Event == reportExecFailed || r.Event == reportFailed {
			w.reported(r)
		}
	}
}

// reapGroup waits until no process of the group is left, and returns those
// below the wrapper that are not of the group. It is called when the guardian
// is dead, so that all of them are the wrapper's.
func (w *wrapper) reapGroup() []procEntry {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		for _, pid := range ownChildren() {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		all, err := processes()
		if err != nil {
			continue
		}
		if w.pgid == 0 || len(groupMembers(all, w.pgid)) == 0 {
			return named(descendants(all, os.Getpid()))
		}
	}
	return nil
}
