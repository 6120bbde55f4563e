package main

import (
	"strings"

	"github.com/spf13/pflag"

	"holdfast/server"
	"holdfast/server/tlsfiles"
)

// clusterSettings are the settings of serve for a node that is one of several.
type clusterSettings struct {
	name, peerListen         string
	advertise, peerAdvertise string
	initialCluster, join     string
	tls                      tlsfiles.Files // among members
}

func (s *clusterSettings) register(fs *pflag.FlagSet) {
	fs.StringVar(&s.name, "name", "", "the node's `name` in its cluster: 1–64 of a–z, 0–9 and -")
	fs.Var(&addressValue{&s.peerListen}, "peer-listen", "`host:port` to listen on for other nodes; "+server.DefaultPeerListen+" with --initial-cluster or --join, else none")
	fs.StringVar(&s.advertise, "advertise", "", "`host:port` where clients reach this node; of a node with other nodes required when --listen is a wildcard")
	fs.StringVar(&s.peerAdvertise, "peer-advertise", "", "`host:port` where other nodes reach this node; required when --peer-listen is a wildcard")
	fs.Var(&foundersValue{&s.initialCluster}, "initial-cluster", "`name=host:port,…` of all nodes that found a cluster, this one too: 1, 3, 5 or 7, the same list at each; of no effect later")
	fs.StringVar(&s.join, "join", "", "`host:port,…` of members' ports for nodes: a new node waits until 'holdfast cluster add' lets it into their cluster; of no effect later")
	fs.StringVar(&s.tls.Cert, "peer-cert", "", "PEM `file` with the certificate that other nodes are shown; its DNS names have --name; with --peer-key and --peer-ca, nodes talk by TLS")
	fs.StringVar(&s.tls.Key, "peer-key", "", "PEM `file` with the key of --peer-cert")
	fs.StringVar(&s.tls.CA, "peer-ca", "", "PEM `file` with the CA certificates of other nodes")
}

// foundersValue is a flag for the list that a cluster is founded from.
type foundersValue struct{ s *string }

func (v *foundersValue) String() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}
func (v *foundersValue) Type() string { return "list" }
func (v *foundersValue) Set(s string) error {
	if s != "" {
		if _, err := server.ParseFounders(s); err != nil {
			return err
		}
	}
	*v.s = s
	return nil
}

// config is what the server needs.
func (s *clusterSettings) config() server.ClusterConfig {
	c := server.ClusterConfig{Name: s.name, PeerListen: s.peerListen, Advertise: s.advertise, PeerAdvertise: s.peerAdvertise, TLS: s.tls}
	if s.initialCluster != "" {
		c.Founders, _ = server.ParseFounders(s.initialCluster) // the flag has checked it
	}
	if s.join != "" {
		for addr := range strings.SplitSeq(s.join, ",") {
			c.Join = append(c.Join, strings.TrimSpace(addr))
		}
	}
	return c
}

// check refuses settings that are each allowed, but not together.
func (s *clusterSettings) check(listen string, insecure bool) error {
	if !s.tls.IsZero() && (s.tls.Cert == "" || s.tls.Key == "" || s.tls.CA == "") {
		return usagef("of --peer-cert, --peer-key and --peer-ca some are missing: members show each other certificates; give all three, or none")
	}
	if err := s.config().Check(listen, insecure, !s.tls.IsZero()); err != nil {
		return usagef("%w", err)
	}
	return nil
}
