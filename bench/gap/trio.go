package gap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A Service is a lock service of several nodes, each a process.
type Service interface {
	// Name is what the table calls it.
	Name() string
	// Command is the command line of nodes[i].
	Command(i int, nodes []Node) []string
	// Status asks a node what it is.
	Status(ctx context.Context, n Node) (Status, error)
	// Open returns a client that knows all nodes.
	Open(ctx context.Context, nodes []Node) (Acquirer, error)
}

// A Node is where a node's process lives.
type Node struct {
	Name         string
	Client, Peer string // host:port, for clients and for the other nodes
	Dir          string // its data
}

// A Status is what a node says of itself.
type Status struct {
	Leads   bool
	Ready   bool   // it serves
	Applied uint64 // the last entry of the log that it has applied
}

// process is a node that can run.
type process struct {
	Node
	argv  []string
	log   string        // file of what it prints
	cmd   *exec.Cmd     // nil before the first start
	ended chan struct{} // closed when it has ended
}

// start starts the node's process. It dies with this one.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	p.cmd = exec.Command(p.argv[0], p.argv[1:]...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = ownGroup()
	if err := p.cmd.Start(); err != nil {
		return err
	}
	ended, cmd := make(chan struct{}), p.cmd
	p.ended = ended
	go func() { defer close(ended); _ = cmd.Wait() }()
	return nil
}

// signal signals the process and waits for its end. One that does not end is
// killed.
func (p *process) signal(sig syscall.Signal) error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.ended:
		return nil
	case <-time.After(30 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.ended
		return fmt.Errorf("%s did not end within 30 s of %v", p.Name, sig)
	}
}

// tail is the end of what the process printed.
func (p *process) tail() string {
	text, _ := os.ReadFile(p.log) // for a message only
	if len(text) > 2000 {
		text = text[len(text)-2000:]
	}
	return string(bytes.TrimSpace(text))
}

// trio is a service's nodes.
type trio struct {
	service Service
	nodes   []Node
	all     []*process
}

// nodeCount is the size of the clusters that are compared.
const nodeCount = 3

// newTrio starts a cluster with its data below dir.
func newTrio(ctx context.Context, s Service, dir string) (*trio, error) {
	t := &trio{service: s}
	for i := range nodeCount {
		name := fmt.Sprintf("n%d", i+1)
		client, err := freeAddress()
		if err != nil {
			return nil, err
		}
		peer, err := freeAddress()
		if err != nil {
			return nil, err
		}
		t.nodes = append(t.nodes, Node{Name: name, Client: client, Peer: peer, Dir: filepath.Join(dir, name)})
	}
	for i, n := range t.nodes {
		t.all = append(t.all, &process{Node: n, argv: s.Command(i, t.nodes), log: filepath.Join(dir, n.Name+".log")})
	}
	for _, p := range t.all {
		if err := p.start(); err != nil {
			t.end()
			return nil, err
		}
	}
	for _, p := range t.all {
		if err := t.serves(ctx, p, 0); err != nil {
			t.end()
			return nil, err
		}
	}
	return t, nil
}

// end kills what still runs.
func (t *trio) end() {
	for _, p := range t.all {
		_ = p.signal(syscall.SIGKILL)
	}
}

const (
	statusEvery = 20 * time.Millisecond
	// patience is how long a cluster may take to do what it must.
	patience = time.Minute
)

// serves waits until a node serves and has applied an entry.
func (t *trio) serves(ctx context.Context, p *process, entry uint64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if st, err := t.service.Status(ctx, p.Node); err == nil && st.Ready && st.Applied >= entry {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("%s %s ended by itself:\n%s", t.service.Name(), p.Name, p.tail())
		default:
		}
		if !pause(ctx, statusEvery) {
			return fmt.Errorf("%s %s does not serve: %w\n%s", t.service.Name(), p.Name, context.Cause(ctx), p.tail())
		}
	}
}

var errNoLeader = errors.New("no leader")

// leader waits until a node other than not leads. Each is asked on its own, so
// that one that does not answer hides nothing.
func (t *trio) leader(ctx context.Context, not *process) (*process, Status, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type answer struct {
		p  *process
		st Status
	}
	found := make(chan answer, len(t.all))
	for _, p := range t.all {
		if p == not {
			continue
		}
		go func() {
			for {
				if st, err := t.service.Status(ctx, p.Node); err == nil && st.Leads {
					found <- answer{p, st}
					return
				}
				if !pause(ctx, statusEvery) {
					return
				}
			}
		}()
	}
	select {
	case a := <-found:
		return a.p, a.st, nil
	case <-ctx.Done():
		return nil, Status{}, fmt.Errorf("%s: %w: %w", t.service.Name(), errNoLeader, context.Cause(ctx))
	}
}

// freeAddress is an address on which nobody listens, outside of the ports that
// the kernel gives to connections.
func freeAddress() (string, error) {
	for range 100 {
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr, nil
		}
	}
	return "", errors.New("no free port")
}
