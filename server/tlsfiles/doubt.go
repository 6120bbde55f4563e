package tlsfiles

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// doubt warns of what works, or may, and is most likely a mistake: a key that
// everybody on the machine may read, and a member's certificate that its own CA
// file does not vouch for. (That is no error: while the CA is replaced, others
// may trust it all the same.)
func (s *Set) doubt(m *material) {
	if s.o.Role == Client {
		return // whoever runs a command may not be who keeps the key
	}
	if info, err := os.Stat(s.files.Key); err == nil && info.Mode().Perm()&0o007 != 0 {
		s.o.Logger.Warn("everybody on this machine may read the private key, or change it: chmod 600", "use", string(s.o.Role), "file", s.files.Key, "mode", fmt.Sprintf("%04o", info.Mode().Perm()))
	}
	if s.o.Role == Peer && !m.vouched() {
		s.o.Logger.Warn("none of this member's own CA certificates has signed its certificate: other members with the same CA file refuse it; give it one that this CA signed, or add its CA to the file",
			"use", string(s.o.Role), "file", s.files.Cert, "certificate", describe(m.leaf), "issuer", m.leaf.Issuer.String(), "ca", s.files.CA)
	}
}

// vouched reports whether the CA's certificates have signed the own one. When
// it is or was valid is another question.
func (m *material) vouched() bool {
	if m.leaf == nil || m.roots == nil {
		return true
	}
	between := x509.NewCertPool()
	for _, d := range m.chain[1:] {
		between.AddCert(d.Cert)
	}
	_, err := m.leaf.Verify(x509.VerifyOptions{Roots: m.roots, Intermediates: between, CurrentTime: m.leaf.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	return !unknown
}
