package server

import (
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/core"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// memberFiles are a member's certificate, key and CA.
func memberFiles(ca *tlstest.CA, dir, name string) (f tlsfiles.Files) {
	f.Cert, f.Key, f.CA = ca.Write(dir, name, tlstest.Certificate{DNSNames: []string{name}})
	return f
}

// TestMembersSpeakTLS: three members found a cluster over mutual TLS; one whose
// certificate names somebody else, or is of another CA, is kept out, and comes
// back once its files are right, without a restart.
func TestMembersSpeakTLS(t *testing.T) {
	t.Parallel()
	ca, dir := tlstest.NewCA(t, "members"), t.TempDir()
	sets := map[string]*tlsfiles.Set{}
	r := newCluster(t, 3, func(c *NodeConfig) {
		secure, err := openTLS(Config{Logger: c.Logger, Registry: prometheus.NewRegistry(), certificatesEvery: clusterTick}, tlsfiles.Peer, memberFiles(ca, dir, c.Peers.Name), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(secure.close)
		secure.members(&c.Peers)
		sets[c.Peers.Name] = secure.set
	})
	out := r.other(r.leader())
	name := rigName(out.i)
	base := filepath.Join(dir, name)
	put := func(cert, key []byte) {
		tlstest.Replace(t, base+".pem", cert)
		tlstest.Replace(t, base+".key", key)
	}
	goodCert, goodKey := ca.Issue(tlstest.Certificate{DNSNames: []string{name}})
	strangers := tlstest.NewCA(t, "strangers")
	for what, bad := range map[string]func() (cert, key []byte){
		"another's name": func() ([]byte, []byte) { return ca.Issue(tlstest.Certificate{DNSNames: []string{"z"}}) },
		"another CA":     func() ([]byte, []byte) { return strangers.Issue(tlstest.Certificate{DNSNames: []string{name}}) },
	} {
		out.stop()
		put(bad())
		// Else it may start with the good one, before the files are looked at.
		if err := sets[name].Refresh(); err != nil {
			t.Fatal(err)
		}
		started := make(chan error, 1)
		go func() { started <- out.start(t.Context()) }()
		r.do(core.Put{Lock: "x", Value: []byte(what)})
		at := r.leaderAmong(r.except(out)...).node.Status().Applied
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		if st := out.node.Status(); st.Applied >= at || st.LeaderID != 0 {
			t.Errorf("%s: it was let in: %+v", what, st)
		}
		put(goodCert, goodKey)
		eventually(t, what+", and then its own again", func() bool { return out.node.Status().Applied >= at })
	}
	r.equal()
}

func (r *rig) except(out *rigNode) (rest []*rigNode) {
	for _, m := range r.nodes {
		if m != out {
			rest = append(rest, m)
		}
	}
	return rest
}
