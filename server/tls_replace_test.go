package server

import (
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast/server/tlsfiles/tlstest"
)

// A certificate of another member, which is refused at the start, is refused
// as well when it takes the place of this member's own.
func TestAnotherMembersCertificateIsNotTaken(t *testing.T) {
	t.Parallel()
	ca, dir := tlstest.NewCA(t, "members"), t.TempDir()
	log := &logBuffer{}
	cfg := Config{Logger: slog.New(slog.NewTextHandler(log, nil)), Registry: prometheus.NewRegistry(), Cluster: ClusterConfig{Name: "a", TLS: memberFiles(ca, dir, "a")}}
	p, err := openPeerTLS(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	base := filepath.Join(dir, "a")
	put := func(names ...string) {
		t.Helper()
		cert, key := ca.Issue(tlstest.Certificate{DNSNames: names})
		tlstest.Replace(t, base+".pem", cert)
		tlstest.Replace(t, base+".key", key)
	}
	put("b")
	if err := p.set.Refresh(); err == nil || !strings.Contains(err.Error(), `names ["b"], and this server is "a"`) || !strings.Contains(err.Error(), "stay in use") {
		t.Errorf("b's certificate in place of a's: %v", err)
	}
	if got := p.set.Names(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("in use is the certificate of %q", got)
	}
	if !strings.Contains(log.String(), "changed certificates are not used") {
		t.Errorf("the log is %s", log)
	}
	put("a", "more")
	if err := p.set.Refresh(); err != nil || !slices.Equal(p.set.Names(), []string{"a", "more"}) {
		t.Errorf("a new one of a's: %v, %q", err, p.set.Names())
	}
	cfg.Cluster.Name, cfg.Registry = "z", prometheus.NewRegistry()
	if _, err := openPeerTLS(cfg); err == nil || !strings.Contains(err.Error(), "subjectAltName = DNS:z") {
		t.Errorf("a's certificate at the start of z: %v", err)
	}
}
