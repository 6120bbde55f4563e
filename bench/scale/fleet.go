package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// fleet is the nodes of the cluster, each a real process.
type fleet struct {
	nodes []*node
}

// node is one of them. cmd is nil while it is down.
type node struct {
	name, dir  string
	addr, peer string // for clients, for members
	binary     string
	args       []string
	log        string
	cmd        *exec.Cmd
	ended      chan struct{}
}

// newFleet makes three nodes; none runs.
func newFleet(s settings, dir string) (*fleet, error) {
	var ports []string
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().String())
	}
	list := fmt.Sprintf("n1=%s,n2=%s,n3=%s", ports[3], ports[4], ports[5])
	f := &fleet{}
	for i := range 3 {
		n := &node{name: fmt.Sprint("n", i+1), addr: ports[i], peer: ports[3+i], binary: s.binary}
		n.dir, n.log = filepath.Join(dir, n.name), filepath.Join(dir, n.name+".log")
		n.args = []string{
			"serve", "--name", n.name, "--data", n.dir, "--listen", n.addr, "--peer-listen", n.peer,
			"--initial-cluster", list, "--max-sessions", strconv.Itoa(s.sessions + 100), "--log-format", "json",
		}
		if s.pprof {
			n.args = append(n.args, "--pprof")
		}
		f.nodes = append(f.nodes, n)
	}
	return f, nil
}

func (f *fleet) addresses() string {
	var all []string
	for _, n := range f.nodes {
		all = append(all, n.addr)
	}
	return strings.Join(all, ",")
}

// start starts a node. It dies with this process.
func (n *node) start() error {
	log, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.binary, n.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	n.cmd, n.ended = cmd, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait()
	}(n.ended)
	return nil
}

// kill is kill -9.
func (n *node) kill() {
	if n.cmd == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.ended
	n.cmd = nil
}

func (f *fleet) killAll() {
	for _, n := range f.nodes {
		n.kill()
	}
}

// up reports whether the process runs.
func (n *node) up() bool {
	if n.cmd == nil {
		return false
	}
	select {
	case <-n.ended:
		return false
	default:
		return true
	}
}

// lastWords is the end of a node's log.
func (n *node) lastWords() string {
	text, _ := os.ReadFile(n.log)
	return string(text[max(0, len(text)-2000):])
}

// status is what a node says of itself.
type status struct {
	Role, LeaderID, NodeID, AppliedIndex, Sessions, Locks, StateHash string
	Ready                                                            bool
}

func (n *node) status(ctx context.Context, hash bool) (st status, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.addr+"/holdfast.v1.LockService/GetStatus",
		bytes.NewReader(fmt.Appendf(nil, `{"withHash":%v}`, hash)))
	if err != nil {
		return st, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return st, fmt.Errorf("%s: %s", n.name, res.Status)
	}
	return st, json.NewDecoder(res.Body).Decode(&st)
}

// await polls until ok, and says how long it took since began.
func await(ctx context.Context, began time.Time, what string, nodes []*node, ok func() bool) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok() {
			return time.Since(began), nil
		}
		for _, n := range nodes {
			if !n.up() {
				return 0, fmt.Errorf("waiting for %s: %s has ended:\n%s", what, n.name, n.lastWords())
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		}
	}
}

// awaitReady waits until nodes can serve.
func awaitReady(ctx context.Context, began time.Time, nodes ...*node) (time.Duration, error) {
	return await(ctx, began, "nodes that are ready", nodes, func() bool {
		for _, n := range nodes {
			if st, err := n.status(ctx, false); err != nil || !st.Ready {
				return false
			}
		}
		return true
	})
}

// leader is the node that leads.
func (f *fleet) leader(ctx context.Context) (lead *node, err error) {
	_, err = await(ctx, time.Now(), "a leader", nil, func() bool {
		for _, n := range f.nodes {
			if !n.up() {
				continue
			}
			if st, err := n.status(ctx, false); err == nil && st.Role == "leader" && st.Ready {
				lead = n
				return true
			}
		}
		return false
	})
	return lead, err
}

// others are all nodes but one.
func (f *fleet) others(but *node) (list []*node) {
	for _, n := range f.nodes {
		if n != but {
			list = append(list, n)
		}
	}
	return list
}

// metrics reads a node's metrics, by name with labels.
func (n *node) metrics(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	all := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, ok := strings.Cut(lines.Text(), " ")
		if ok && name != "#" {
			all[name], _ = strconv.ParseFloat(value, 64)
		}
	}
	return all, lines.Err()
}

// memory is what the kernel says of a process: resident now, and at most so
// far, in bytes.
func (n *node) memory() (now, most float64, err error) {
	if n.cmd == nil {
		return 0, 0, errors.New("it does not run")
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	read := func(key string) float64 {
		_, rest, _ := strings.Cut(string(text), key)
		kb, _ := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
		return kb * 1024
	}
	return read("VmRSS:"), read("VmHWM:"), nil
}

// snapshotBytes is the size of the newest snapshot in a node's directory.
func (n *node) snapshotBytes() (size int64) {
	_ = filepath.WalkDir(n.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".snap") {
			if info, err := d.Info(); err == nil {
				size = info.Size() // names sort by index: the last one stands
			}
		}
		return nil
	})
	return size
}
