package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/tlsfiles"
)

// DefaultPeerListen is where a server listens for other members unless told
// otherwise.
const DefaultPeerListen = "127.0.0.1:7434"

// maxFounders is how many voters a cluster may be founded with. More make each
// write slower and bear no more losses that matter.
const maxFounders = 7

// ClusterConfig is for a server that is one of several. The zero value is for
// one that is alone.
type ClusterConfig struct {
	// Name is the server's name in its cluster, 1–64 of a–z, 0–9 and "-".
	Name string
	// PeerListen is the address for other members, host:port; default
	// [DefaultPeerListen] if there are founders, else none.
	PeerListen string
	// Advertise and PeerAdvertise are where clients and members reach this
	// server. They default to what it listens on, PeerAdvertise to its entry
	// among the founders, and must be given for a wildcard address.
	Advertise, PeerAdvertise string
	// Founders is the list that a new cluster is founded from: 1, 3, 5 or 7
	// servers, this one among them, the same at all. It is of no effect once
	// the server is a member.
	Founders []peer.Founder
	// Join are addresses of other members' ports, host:port, of a cluster that
	// runs. A new server waits until an operator has added it there, and is
	// sent the state; it is of no effect once the server has joined. It excludes
	// Founders.
	Join []string
	// TLS names the files for members among each other, all three: the
	// certificate must have the server's Name as a DNS name. The files are
	// read again when they change. The zero value means no TLS.
	TLS tlsfiles.Files
}

// ParseFounders reads "name=host:port,name=host:port,…".
func ParseFounders(text string) ([]peer.Founder, error) {
	var list []peer.Founder
	for part := range strings.SplitSeq(text, ",") {
		name, addr, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return nil, fmt.Errorf("%q is no entry: want name=host:port, and a comma between entries", part)
		}
		if err := core.ValidateMemberName(name); err != nil {
			return nil, err
		}
		if err := checkAdvertised(addr); err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, addr, err)
		}
		for _, f := range list {
			if f.Name == name || f.Addr == addr {
				return nil, fmt.Errorf("%s=%s and %s=%s: names and addresses must differ", f.Name, f.Addr, name, addr)
			}
		}
		list = append(list, peer.Founder{Name: name, Addr: addr})
	}
	switch n := len(list); {
	case n > maxFounders:
		return nil, fmt.Errorf("%d nodes: want at most %d: each write waits for more than half of them, and 7 bear the loss of 3; add more as members that do not vote if you must", n, maxFounders)
	case n%2 == 0:
		return nil, fmt.Errorf("%d nodes: want an odd number: more than half must be up, so %d bear the loss of no more than %d would, and have one more that can fail; want %d or %d", n, n, n-1, n-1, n+1)
	}
	return list, nil
}

// checkAdvertised refuses an address that others cannot dial.
func checkAdvertised(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("want host:port: %w", err)
	}
	if wildcard(host) {
		return fmt.Errorf("nobody can dial the wildcard %q: want the host's name or address", host)
	}
	if strings.ContainsAny(host, "/@?#= \t\r\n") {
		return fmt.Errorf("%q is no host", host)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("port %q: want a number from 1 to 65535", port)
	}
	return nil
}

func wildcard(host string) bool {
	if host == "" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

// on reports whether the server is, or is to be, one of several.
func (c ClusterConfig) on() bool {
	return len(c.Founders) > 0 || len(c.Join) > 0 || c.PeerListen != ""
}

// withDefaults fills in what follows from the rest.
func (c ClusterConfig) withDefaults() ClusterConfig {
	if c.PeerListen == "" && c.on() {
		c.PeerListen = DefaultPeerListen
	}
	return c
}

// Check refuses what cannot work: listen is the server's address for clients;
// insecure and secured say whether it may be reached in the clear and whether
// members talk by TLS.
func (c ClusterConfig) Check(listen string, insecure, secured bool) error {
	c = c.withDefaults()
	if c.Name != "" {
		if err := core.ValidateMemberName(c.Name); err != nil {
			return fmt.Errorf("name: %w", err)
		}
	}
	for _, a := range []struct{ what, addr, listen string }{{"advertise", c.Advertise, listen}, {"peer-advertise", c.PeerAdvertise, c.PeerListen}} {
		if a.addr != "" {
			if err := checkAdvertised(a.addr); err != nil {
				return fmt.Errorf("%s is %q: %w", a.what, a.addr, err)
			}
		}
	}
	if !c.on() {
		if !c.TLS.IsZero() {
			return errors.New("there are certificates for members, and this server has no port for members: give peer-listen too")
		}
		if c.PeerAdvertise != "" {
			return fmt.Errorf("peer-advertise is %s, and this server has no port for members: give peer-listen too", c.PeerAdvertise)
		}
		return nil
	}
	if c.Name == "" {
		return fmt.Errorf("a server that is one of several needs a name: want 1–%d of a–z, 0–9 and -", core.MaxMemberName)
	}
	host, _, err := net.SplitHostPort(c.PeerListen)
	if err != nil {
		return fmt.Errorf("peer-listen is %q: want host:port, for example %s: %w", c.PeerListen, DefaultPeerListen, err)
	}
	if ip, err := netip.ParseAddr(host); (host == "" || err == nil && !ip.Unmap().IsLoopback()) && !insecure && !secured {
		return fmt.Errorf("peer-listen is %s, which others can reach, and members do not talk by TLS: want peer-cert, peer-key and peer-ca, a loopback address (%s), or insecure if you accept that whoever is in the network can read and forge what members say", c.PeerListen, DefaultPeerListen)
	}
	if wildcard(host) && c.PeerAdvertise == "" {
		return fmt.Errorf("peer-listen is the wildcard %s: peer-advertise must say where other members reach this server", c.PeerListen)
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && wildcard(host) && c.Advertise == "" {
		return fmt.Errorf("listen is the wildcard %s: advertise must say where clients reach this server, for members that do not lead send them there", listen)
	}
	return c.checkFounders()
}

// checkFounders looks for this server in the list, or looks at the members by
// which it is to join.
func (c ClusterConfig) checkFounders() error {
	if len(c.Join) > 0 && len(c.Founders) > 0 {
		return errors.New("join and initial-cluster exclude each other: a server joins a cluster that runs, or founds one with others")
	}
	for _, addr := range c.Join {
		if err := checkAdvertised(addr); err != nil {
			return fmt.Errorf("join is %q: %w", addr, err)
		}
	}
	if len(c.Founders) == 0 {
		return nil
	}
	i := slices.IndexFunc(c.Founders, func(f peer.Founder) bool { return f.Name == c.Name })
	if i < 0 {
		var names []string
		for _, f := range c.Founders {
			names = append(names, f.Name)
		}
		return fmt.Errorf("initial-cluster has %s, and not %s, which is this server's name", strings.Join(names, ", "), c.Name)
	}
	if own := c.Founders[i].Addr; c.PeerAdvertise != "" && c.PeerAdvertise != own {
		return fmt.Errorf("initial-cluster has this server, %s, at %s, and peer-advertise is %s: they must be the same", c.Name, own, c.PeerAdvertise)
	}
	return nil
}

// listenForPeers opens the port for members, and says how the node uses it;
// clients is the address that the server listens on for clients.
func (c Config) listenForPeers(ctx context.Context, clients string) (PeerConfig, error) {
	cluster := c.Cluster
	p := PeerConfig{Name: cluster.Name, ClientAddr: cluster.Advertise, PeerAddr: cluster.PeerAdvertise, Founders: cluster.Founders, Join: cluster.Join}
	if !cluster.on() {
		return p, nil
	}
	host, _, err := net.SplitHostPort(cluster.PeerListen)
	if err != nil {
		return p, err
	}
	if loopback, err := OnLoopback(ctx, host); err != nil || !loopback && !c.Insecure && cluster.TLS.IsZero() {
		return p, fmt.Errorf("peer-listen is %q: want a loopback address, for members do not talk by TLS (%v)", cluster.PeerListen, err)
	}
	p.Listener, err = new(net.ListenConfig).Listen(ctx, "tcp", cluster.PeerListen)
	if err != nil {
		return p, fmt.Errorf("cannot listen for members on %s: %w: is another server running there? Stop it, or choose another address", cluster.PeerListen, err)
	}
	if p.ClientAddr == "" {
		p.ClientAddr = clients
	}
	for _, f := range cluster.Founders {
		if f.Name == cluster.Name && p.PeerAddr == "" {
			p.PeerAddr = f.Addr
		}
	}
	if p.PeerAddr == "" {
		p.PeerAddr = p.Listener.Addr().String()
	}
	return p, nil
}

// PeerAddr is the address that the server listens on for other members; empty
// if it is alone.
func (s *Server) PeerAddr() string {
	if s.node.port == nil {
		return ""
	}
	return s.node.port.Addr().String()
}
