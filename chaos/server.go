//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"holdfast/server/tlsfiles"
)

// A server is one node of the cluster.
type server struct {
	*site
	addr, peer string // of its port for clients, and of that for other nodes
	data, said string
	argv       []string

	mu      sync.Mutex
	claimed bool
	p       *process
}

// snapshotEvery is after how many entries a server writes a snapshot; a
// thousand below it are kept, so who is further behind is sent one.
const (
	snapshotEvery = 500
	outOfReach    = 1000 + 2*snapshotEvery
)

// newServers says how they are started, and issues their certificates.
func (r *run) newServers(sites []*site) error {
	var founders []string
	for i, s := range sites {
		v := &server{site: s, addr: s.ip + ":7433", peer: s.ip + ":7434", data: filepath.Join(r.dir, "data-"+s.name), said: filepath.Join(r.dir, s.name+".log")}
		if s.ns == "" {
			v.addr, v.peer = fmt.Sprint(s.ip, ":", r.port+2*i), fmt.Sprint(s.ip, ":", r.port+2*i+1)
		}
		for _, use := range []string{"port-", "peer-"} {
			if err := r.ca.issue(use+s.name, s.name, s.ip, 24*time.Hour); err != nil {
				return err
			}
		}
		founders = append(founders, s.name+"="+v.peer)
		r.servers = append(r.servers, v)
	}
	for _, v := range r.servers {
		v.argv = []string{
			r.binary, "serve", "--name", v.name, "--data", filepath.Join(v.data, "node"), "--listen", v.addr, "--peer-listen", v.peer,
			"--initial-cluster", strings.Join(founders, ","), "--snapshot-every", strconv.Itoa(snapshotEvery),
			"--cert", r.ca.path("port-" + v.name + ".pem"), "--key", r.ca.path("port-" + v.name + ".key"), "--ca", r.ca.path("ca.pem"),
			"--peer-cert", r.ca.path("peer-" + v.name + ".pem"), "--peer-key", r.ca.path("peer-" + v.name + ".key"), "--peer-ca", r.ca.path("ca.pem"),
		}
		if err := os.MkdirAll(v.data, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// begin starts it.
func (v *server) begin() error {
	p, err := start(v.ns, v.said, v.argv...)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.p = p
	return err
}

func (v *server) process() *process {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.p
}

// kill kills it with SIGKILL, and waits for its end.
func (v *server) kill() { _ = v.process().end(syscall.SIGKILL, time.Minute) }

// claim takes a server for one fault; a second one does not get it.
func (v *server) claim() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was := v.claimed
	v.claimed = true
	return !was
}

func (v *server) free() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.claimed = false
}

// A status is what a server says of itself.
type status struct {
	Role, AppliedIndex, Term string
	Ready                    bool
	applied                  uint64
}

// status asks a server, from the hub.
func (r *run) status(ctx context.Context, v *server) (st status, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+v.addr+"/holdfast.v1.LockService/GetStatus", bytes.NewReader([]byte("{}")))
	if err != nil {
		return st, err
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DialContext: r.net.dial, TLSClientConfig: r.tls.Client(), DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return st, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return st, fmt.Errorf("%s: %s", v.name, res.Status)
	}
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		return st, err
	}
	if st.AppliedIndex != "" {
		st.applied, err = strconv.ParseUint(st.AppliedIndex, 10, 64)
	}
	return st, err
}

// leader finds out who leads; nil if nobody says so now. All are asked at once,
// so that one that does not answer hides nothing.
func (r *run) leader(ctx context.Context) *server {
	found := make(chan *server, len(r.servers))
	for _, v := range r.servers {
		go func() {
			if st, err := r.status(ctx, v); err == nil && st.Role == "leader" && st.Ready {
				found <- v
			} else {
				found <- nil
			}
		}()
	}
	for range r.servers {
		if v := <-found; v != nil {
			return v
		}
	}
	return nil
}

// ready waits until all servers are.
func (r *run) ready(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var missing []string
		for _, v := range r.servers {
			if st, err := r.status(ctx, v); err != nil || !st.Ready {
				missing = append(missing, fmt.Sprintf("%s (%v)", v.name, err))
			}
		}
		if len(missing) == 0 {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("not ready within %v: %s", patience, strings.Join(missing, ", "))
		}
	}
}

// openTLS opens the supervisor's own certificate.
func (r *run) openTLS(name string) (err error) {
	if err := r.ca.issue(name, name, "127.0.0.1", 24*time.Hour); err != nil {
		return err
	}
	r.tls, err = openCerts(r.ca.dir, name)
	return err
}

// openCerts reads a client's certificate, and whom it trusts.
func openCerts(dir, name string) (*tlsfiles.Set, error) {
	path := func(file string) string { return filepath.Join(dir, file) }
	return tlsfiles.Open(tlsfiles.Files{Cert: path(name + ".pem"), Key: path(name + ".key"), CA: path("ca.pem")}, tlsfiles.Options{Role: tlsfiles.Client})
}
