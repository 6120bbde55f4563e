// Package tlstest makes certificate authorities and certificates for tests. It
// imports nothing of this module; start reading at [NewCA].
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewCA makes an authority.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(10 * 365 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, about, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{t: t, cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Certificate says what to issue. The zero value is a certificate for both
// sides of a connection, for localhost and 127.0.0.1, for 90 days.
type Certificate struct {
	CommonName string
	DNSNames   []string
	IPs        []net.IP
	NotBefore  time.Time
	NotAfter   time.Time
	Usages     []x509.ExtKeyUsage
	Nameless   bool // no subjectAltName
}

// Issue signs a certificate and returns it and its key, in PEM.
func (ca *CA) Issue(c Certificate) (cert, key []byte) {
	ca.t.Helper()
	if c.CommonName == "" {
		c.CommonName = "test"
	}
	if len(c.DNSNames)+len(c.IPs) == 0 && !c.Nameless {
		c.DNSNames, c.IPs = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(90 * 24 * time.Hour)
	}
	if c.NotBefore.IsZero() {
		c.NotBefore = time.Now().Add(-time.Hour)
	}
	if c.Usages == nil {
		c.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	about := &x509.Certificate{
		SerialNumber: serial(ca.t), Subject: pkix.Name{CommonName: c.CommonName},
		NotBefore: c.NotBefore, NotAfter: c.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: c.Usages, DNSNames: c.DNSNames, IPAddresses: c.IPs,
	}
	der, err := x509.CreateCertificate(rand.Reader, about, ca.cert, private.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		ca.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// Write issues a certificate into NAME.pem and NAME.key of dir, and the
// authority's own into ca.pem, and returns the three paths.
func (ca *CA) Write(dir, name string, c Certificate) (cert, key, root string) {
	ca.t.Helper()
	cert, key, root = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"), filepath.Join(dir, "ca.pem")
	certPEM, keyPEM := ca.Issue(c)
	Replace(ca.t, cert, certPEM)
	Replace(ca.t, key, keyPEM)
	Replace(ca.t, root, ca.pem)
	return cert, key, root
}

// PEM is the authority's own certificate.
func (ca *CA) PEM() []byte { return ca.pem }

// Pool trusts the authority.
func (ca *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(ca.cert)
	return p
}

// Replace puts data into the place of a file, as careful tools do: never a
// half of it.
func Replace(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
