package main

import (
	"strings"
	"testing"

	"holdfast/server/tlsfiles/tlstest"
)

// TestClusterOverTLS: three nodes found a cluster over mutual TLS; their
// certificates are replaced while they run, and a node that is killed comes back
// with the new ones. What an operator did is on record at whichever node is
// left.
func TestClusterOverTLS(t *testing.T) {
	dir, ca := t.TempDir(), tlstest.NewCA(t, "members")
	issue := func(ca *tlstest.CA) (cert, key, root string) {
		return ca.Write(dir, "member", tlstest.Certificate{DNSNames: []string{"n1", "n2", "n3"}})
	}
	cert, key, root := issue(ca)
	p := newFleet(t, 3, "--log-level", "info", "--peer-cert", cert, "--peer-key", key, "--peer-ca", root)
	on := []string{serverVariable + "=" + p.addresses()}
	worker := start(t, on, "run", "kept", "--ttl", "1m", "--", "sleep", "1000")
	var grant string
	eventually(t, "a holder", func() bool {
		got := start(t, on, "lock", "get", "kept", "-o", "json")
		_ = got.wait()
		_, rest, ok := strings.Cut(got.stdout.String(), `"grant":"`)
		grant, _, _ = strings.Cut(rest, `"`)
		return ok
	})
	eventually(t, "a cluster version that knows records", func() bool {
		return strings.Contains(run(t, 0, on, "cluster", "status", "-o", "json").stdout.String(), `"cluster_version":2`)
	})
	run(t, exitMissing, []string{serverVariable + "=" + p.leader().addr}, "session", "end", "77")

	next := tlstest.NewCA(t, "the next")
	tlstest.Replace(t, root, append(append([]byte{}, ca.PEM()...), next.PEM()...))
	for _, n := range p.nodes {
		eventually(t, "the new CA at each node", func() bool { return strings.Contains(n.stderr.String(), "certificates were read anew") })
	}
	newCert, newKey := next.Issue(tlstest.Certificate{DNSNames: []string{"n1", "n2", "n3"}})
	tlstest.Replace(t, cert, newCert)
	tlstest.Replace(t, key, newKey)
	for _, n := range p.nodes {
		eventually(t, "the new certificate at each node", func() bool { return strings.Count(n.stderr.String(), "certificates were read anew") >= 2 })
	}
	lead := p.leader()
	p.kill(lead)
	p.leader()
	records := run(t, 0, on, "audit", "-o", "json").stdout.String()
	if !strings.Contains(records, `"call":"expel"`) {
		t.Errorf("the record is gone with the leader:\n%s", records)
	}
	p.start(lead)
	p.equal()
	if worker.ended() || !strings.Contains(run(t, 0, on, "lock", "get", "kept", "-o", "json").stdout.String(), `"grant":"`+grant+`"`) {
		t.Errorf("the lock was lost: %s", worker.stderr)
	}
}

func TestPeerTLSRefusals(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), tlstest.NewCA(t, "members")
	cert, key, root := ca.Write(dir, "a", tlstest.Certificate{DNSNames: []string{"a"}})
	all := []string{"--peer-cert", cert, "--peer-key", key, "--peer-ca", root}
	for _, c := range []struct {
		code  int
		says  string
		flags []string
	}{
		{exitUsage, "give all three, or none", append(all[:4:4], "--name", "a", "--peer-listen", "127.0.0.1:0")},
		{exitUsage, "no port for members", all},
		{exitUsage, "want peer-cert, peer-key and peer-ca", []string{"--name", "a", "--peer-listen", "0.0.0.0:0", "--peer-advertise", "a.example:7434"}},
		{exitFailure, "subjectAltName = DNS:b", append(all[:6:6], "--name", "b", "--peer-listen", "127.0.0.1:0")},
	} {
		run(t, c.code, nil, append([]string{"serve", "--data", dir + "/data", "--listen", "127.0.0.1:0"}, c.flags...)...).says(c.says)
	}
}
