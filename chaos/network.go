//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A site is where one process runs: a network namespace, or, without root, a
// place on the loopback.
type site struct {
	name string // n1, c1
	ns   string // "" on the loopback
	ip   string
}

// A network is a hub, itself a namespace with a bridge, and the sites on it.
// Everything is in namespaces of this run, whose names begin with prefix.
type network struct {
	prefix string
	hub    string // "" on the loopback
	sites  []*site

	mu    sync.Mutex
	rules map[string]map[int]ruleSet // by site's name, by fault
	last  int
}

// A ruleSet is what a site drops: statements of nft, for what comes in and for
// what goes out.
type ruleSet struct{ in, out []string }

const (
	subnet = "10.77.0."
	hubIP  = subnet + "254"
)

// newNetwork makes the sites; with real, as namespaces.
func newNetwork(prefix string, real bool, names []string) (*network, error) {
	n := &network{prefix: prefix, rules: map[string]map[int]ruleSet{}}
	for i, name := range names {
		s := &site{name: name, ip: "127.0.0.1"}
		if real {
			s.ns, s.ip = prefix+name, fmt.Sprint(subnet, i+1)
		}
		n.sites = append(n.sites, s)
	}
	if !real {
		return n, nil
	}
	n.hub = prefix + "hub"
	if err := n.make(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *network) make() error {
	if err := ip("netns add " + n.hub); err != nil {
		return err
	}
	lines := []string{
		"link add name sw0 type bridge", "link set dev sw0 up", "link set dev lo up", "addr add " + hubIP + "/24 dev sw0",
	}
	if err := ip(in(n.hub, lines)...); err != nil {
		return err
	}
	for _, s := range n.sites {
		if err := ip("netns add " + s.ns); err != nil {
			return err
		}
		port := "p-" + s.name
		lines := in(n.hub, []string{
			"link add name " + port + " type veth peer name eth0 netns " + s.ns, "link set dev " + port + " master sw0", "link set dev " + port + " up",
		})
		lines = append(lines, in(s.ns, []string{"link set dev eth0 mtu 1500", "addr add " + s.ip + "/24 dev eth0", "link set dev eth0 up", "link set dev lo up"})...)
		if err := ip(lines...); err != nil {
			return err
		}
		if err := within(s.ns, func() error { return switchOff("eth0", plainFrames...) }); err != nil {
			return err
		}
	}
	// A plug outside the bridge must not answer for the hub's own address.
	return within(n.hub, func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/all/arp_ignore", []byte("1"), 0) })
}

func in(ns string, lines []string) []string {
	var all []string
	for _, line := range lines {
		all = append(all, "-n "+ns+" "+line)
	}
	return all
}

// ip runs commands of iproute2.
func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// close removes the namespaces, and with them all that is in them.
func (n *network) close() error {
	if n.hub == "" {
		return nil
	}
	var all error
	for _, s := range append([]*site{{ns: n.hub}}, n.sites...) {
		if _, err := os.Stat(filepath.Join(netnsDir, s.ns)); err == nil {
			all = errors.Join(all, ip("netns del "+s.ns))
		}
	}
	return all
}

const netnsDir = "/run/netns"

// dial connects from the hub, which no fault cuts off.
func (n *network) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	if n.hub == "" {
		return d.DialContext(ctx, network, address)
	}
	var c net.Conn
	err := within(n.hub, func() (err error) {
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// within calls a function on a thread of its own in a namespace.
func within(ns string, do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		f, err := os.Open(filepath.Join(netnsDir, ns))
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			err = errors.Join(err, f.Close())
		}
		if err == nil {
			err = do()
		}
		done <- err
	}()
	return <-done
}

// impose adds rules to sites, by name, until undo is called.
func (n *network) impose(rules map[string]ruleSet) (undo func() error, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	id := n.last
	for name, set := range rules {
		if n.rules[name] == nil {
			n.rules[name] = map[int]ruleSet{}
		}
		n.rules[name][id] = set
		err = errors.Join(err, n.load(name))
	}
	return func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		var all error
		for name := range rules {
			delete(n.rules[name], id)
			all = errors.Join(all, n.load(name))
		}
		return all
	}, err
}

// load gives a site all its rules, in one step.
func (n *network) load(name string) error {
	var in, out []string
	for _, set := range n.rules[name] {
		in, out = append(in, set.in...), append(out, set.out...)
	}
	chain := func(hook string, rules []string) string {
		return fmt.Sprintf(" chain %s {\n  type filter hook %s priority 0\n  policy accept\n  %s\n }\n", hook, hook, strings.Join(rules, "\n  "))
	}
	text := "table inet chaos\ndelete table inet chaos\ntable inet chaos {\n" + chain("input", in) + chain("output", out) + "}\n"
	cmd := exec.Command("ip", "netns", "exec", n.prefix+name, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft at %s: %w: %s\n%s", name, err, said, text)
	}
	return nil
}

// cut is the rules that keep packets of from away from to, one way.
func cut(from, to []*site) map[string]ruleSet {
	var list []string
	for _, s := range from {
		list = append(list, s.ip)
	}
	rules := map[string]ruleSet{}
	if len(list) == 0 {
		return rules
	}
	for _, s := range to {
		rules[s.name] = ruleSet{in: []string{"ip saddr { " + strings.Join(list, ", ") + " } drop"}}
	}
	return rules
}

// both joins rules.
func both(a, b map[string]ruleSet) map[string]ruleSet {
	all := map[string]ruleSet{}
	for _, m := range []map[string]ruleSet{a, b} {
		for name, set := range m {
			old := all[name]
			all[name] = ruleSet{append(old.in, set.in...), append(old.out, set.out...)}
		}
	}
	return all
}
