package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
)

// protocols are what a port for clients speaks.
var protocols = []string{"h2", "http/1.1"}

// base is what all settings have in common.
func base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// A ticket outlives the certificates that it was given for.
		SessionTicketsDisabled: true,
	}
}

// Server returns the settings of a port for clients. They follow the files: a
// new connection is shown the certificate that is in use when it comes.
func (s *Set) Server() *tls.Config {
	c := s.accepting()
	c.NextProtos = protocols
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := s.accepting()
		now.NextProtos = protocols
		return now, nil
	}
	return c
}

// accepting is how the accepting side speaks now.
func (s *Set) accepting() *tls.Config {
	m := s.current()
	c := base()
	c.Certificates = []tls.Certificate{*m.cert}
	if m.roots != nil {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, m.roots
	}
	return c
}

// Client looks at the files and returns the settings for one connection to a
// server, whose name is checked. If changed files cannot be used, those that
// were read before are, and the log says why.
func (s *Set) Client() *tls.Config {
	_ = s.Refresh()
	return s.dialing()
}

// dialing is how the dialling side speaks now.
func (s *Set) dialing() *tls.Config {
	m := s.current()
	c := base()
	c.RootCAs = m.roots
	if m.cert != nil {
		// Not Certificates: from those none is sent to a server that names
		// other CAs, and then the error would not be about ours.
		cert := *m.cert
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
	}
	return c
}

// PeerTLS is how members of a cluster speak to each other: both sides show a
// certificate that the CA signed, and a certificate names its member, as one of
// its DNS names (subjectAltName = DNS:a, for the member "a").
type PeerTLS struct{ set *Set }

// NewPeerTLS is for a set that was opened with the role [Peer].
func NewPeerTLS(s *Set) *PeerTLS { return &PeerTLS{s} }

// Server returns the settings for connections that other members open, for
// [tls.NewListener] or [tls.Server]. They follow the files. The transport asks
// [Verify] once it has heard who the other side says it is.
func (p *PeerTLS) Server() *tls.Config {
	c := p.set.accepting()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return p.set.accepting(), nil }
	return c
}

// Client returns the settings for one connection to a member, for
// [tls.Client]: the other side must show a certificate that names it. They are
// for one connection; the next one asks again, so that it sees new files. An
// empty name accepts every member: for the question of who is there, and for a
// transport that asks [Verify] itself.
func (p *PeerTLS) Client(member string) *tls.Config {
	_ = p.set.Refresh() // it was logged, and what was in use stays so
	c := p.set.dialing()
	if member != "" {
		c.ServerName = member
		return c
	}
	roots := c.RootCAs
	c.InsecureSkipVerify = true // the name only: the chain is checked here
	c.VerifyConnection = func(state tls.ConnectionState) error {
		return signed(state, roots)
	}
	return c
}

// signed checks the other side's chain, but no name.
func signed(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("the other side shows no certificate")
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between})
	return err
}

// Verify returns an error unless the certificate that the other side of a
// connection has shown names the member; with an empty name any certificate
// will do. Chain and CA were checked by the handshake.
func Verify(state tls.ConnectionState, member string) error {
	if len(state.PeerCertificates) == 0 {
		return fmt.Errorf("the other side says it is member %q, and shows no certificate", member)
	}
	if names := state.PeerCertificates[0].DNSNames; member != "" && !slices.Contains(names, member) {
		return fmt.Errorf("the other side says it is member %q, and its certificate names %q: give each member a certificate with its own name (subjectAltName = DNS:%s)", member, names, member)
	}
	return nil
}
