package gap

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Etcd is etcd, as the program at Binary; Client is internal/tools/etcdlock.
type Etcd struct{ Binary, Client string }

// Name implements [Service].
func (e Etcd) Name() string { return "etcd" }

// Command implements [Service].
func (e Etcd) Command(i int, nodes []Node) []string {
	n := nodes[i]
	return []string{
		e.Binary, "--name", n.Name, "--data-dir", n.Dir, "--log-level", "error",
		"--listen-client-urls", "http://" + n.Client, "--advertise-client-urls", "http://" + n.Client,
		"--listen-peer-urls", "http://" + n.Peer, "--initial-advertise-peer-urls", "http://" + n.Peer,
		"--initial-cluster", founders(nodes, "http://"), "--initial-cluster-state", "new",
	}
}

// Status implements [Service]. It reads the metrics, which are the node's own
// view and wait for nobody. (A leader of etcd that is asked to end lets open
// streams finish, for seven seconds here, before it hands over.)
func (e Etcd) Status(ctx context.Context, n Node) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Client+"/metrics", nil)
	if err != nil {
		return Status{}, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return Status{}, err
	}
	defer res.Body.Close()
	return etcdStatus(res.Body)
}

// etcdStatus finds what a node says of itself among its metrics.
func etcdStatus(metrics io.Reader) (st Status, err error) {
	found := 0
	s := bufio.NewScanner(metrics)
	for s.Scan() {
		name, value, _ := strings.Cut(s.Text(), " ")
		switch name {
		case "etcd_server_is_leader":
			st.Leads = value == "1"
		case "etcd_server_has_leader":
			st.Ready = value == "1"
		case "etcd_server_proposals_applied_total":
			applied, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return st, err
			}
			st.Applied = uint64(applied)
		default:
			continue
		}
		found++
	}
	if err := s.Err(); err != nil {
		return st, err
	}
	if found != 3 {
		return st, errors.New("no metrics of etcd")
	}
	return st, nil
}

// Open implements [Service].
func (e Etcd) Open(ctx context.Context, nodes []Node) (Acquirer, error) {
	return openLines(ctx, e.Client, "-endpoints", clientAddresses(nodes), "-ttl", strconv.Itoa(int(sessionTTL.Seconds())))
}

// lines is an Acquirer behind the pipes of a process; see
// internal/tools/etcdlock for what is said on them.
type lines struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed when the process says no more

	mu   sync.Mutex
	last uint64
	due  map[uint64]*request
}

type request struct {
	granted func()
	done    chan error // room for one
}

var errClientEnded = errors.New("the client's process has ended")

// openLines starts the process and waits until it is ready.
func openLines(ctx context.Context, argv ...string) (*lines, error) {
	l := &lines{cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), due: make(map[uint64]*request)}
	l.cmd.SysProcAttr = ownGroup()
	l.cmd.Stderr = os.Stderr
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if l.in, err = l.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := l.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go l.read(out, sync.OnceFunc(func() { close(ready) }))
	select {
	case <-ready:
		return l, nil
	case <-l.ended:
		err = errClientEnded
	case <-ctx.Done():
		err = ctx.Err()
	}
	l.Close()
	return nil, err
}

// read handles what the process says until it ends.
func (l *lines) read(out io.Reader, ready func()) {
	s := bufio.NewScanner(out)
	for s.Scan() {
		id, what, _ := strings.Cut(s.Text(), " ")
		if id == "ready" {
			ready()
			continue
		}
		n, _ := strconv.ParseUint(id, 10, 64) // 0 is nobody's
		l.mu.Lock()
		r := l.due[n]
		if what != "granted" {
			delete(l.due, n)
		}
		l.mu.Unlock()
		switch text, failed := strings.CutPrefix(what, "error "); {
		case r == nil:
		case what == "granted":
			r.granted()
		case failed:
			r.done <- errors.New(text)
		default:
			r.done <- nil
		}
	}
	close(l.ended)
}

// Once implements [Acquirer]. The process keeps the deadline itself, so that
// nothing is under way for a lock when this returns; Close ends it earlier.
func (l *lines) Once(ctx context.Context, lock string, granted func()) error {
	left := time.Minute
	if d, ok := ctx.Deadline(); ok {
		left = time.Until(d)
	}
	r := &request{granted: granted, done: make(chan error, 1)}
	l.mu.Lock()
	l.last++
	l.due[l.last] = r
	_, err := fmt.Fprintf(l.in, "%d %d %s\n", l.last, left.Milliseconds(), lock)
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %w", errClientEnded, err)
	}
	select {
	case err := <-r.done:
		return err
	case <-l.ended:
		return errClientEnded
	}
}

// Close implements [Acquirer]. Nobody needs the session to end in order: the
// cluster is thrown away.
func (l *lines) Close() {
	_ = l.cmd.Process.Kill()
	<-l.ended
	_ = l.cmd.Wait()
}
