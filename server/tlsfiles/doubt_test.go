package tlsfiles

import (
	"os"
	"strings"
	"testing"

	"holdfast/server/tlsfiles/tlstest"
)

// What works and is most likely a mistake is warned of, at the start and with
// each change: a key that everybody may read, a member's certificate that its
// own CA file does not vouch for.
func TestDoubts(t *testing.T) {
	const open, unsigned = "everybody on this machine may read the private key", "has signed its certificate"
	for _, role := range []Role{Server, Peer} {
		r := newRig(t, role, tlstest.Certificate{DNSNames: []string{"a"}})
		if text := r.log.String(); text != "" {
			t.Errorf("%s: all is well, and it says %s", role, text)
		}
		refresh := func(mode os.FileMode, ca *tlstest.CA) string {
			t.Helper()
			r.log.Reset()
			cert, key := ca.Issue(tlstest.Certificate{DNSNames: []string{"a"}})
			tlstest.Replace(t, r.files.Cert, cert)
			tlstest.Replace(t, r.files.Key, key)
			if err := os.Chmod(r.files.Key, mode); err != nil {
				t.Fatal(err)
			}
			if err := r.Refresh(); err != nil {
				t.Fatal(err)
			}
			return r.log.String()
		}
		strangers := tlstest.NewCA(t, "strangers")
		if text := refresh(0o604, r.ca); !strings.Contains(text, open) || strings.Contains(text, unsigned) {
			t.Errorf("%s, an open key: %s", role, text)
		}
		if text := refresh(0o640, strangers); strings.Contains(text, open) || strings.Contains(text, unsigned) != (role == Peer) {
			t.Errorf("%s, a certificate of another CA: %s", role, text)
		}
		r.log.Reset()
		if _, err := Open(r.files, Options{Role: role, Logger: r.o.Logger}); err != nil || strings.Contains(r.log.String(), unsigned) != (role == Peer) {
			t.Errorf("%s, at the start: %v, %s", role, err, r.log)
		}
	}
}
