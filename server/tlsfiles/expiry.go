package tlsfiles

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

const day = 24 * time.Hour

// dated is a certificate and the file that it stands in: "cert" or "ca".
type dated struct {
	File string
	Cert *x509.Certificate
}

// parseAll reads all certificates of a PEM file; there must be one at least.
func parseAll(data []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errors.New("it holds no certificate: want PEM, which begins with -----BEGIN CERTIFICATE-----")
	}
	return all, nil
}

// notAfter is when the first certificate of the chain expires.
func (m *material) notAfter() time.Time { return earliest(m.chain) }

func earliest(all []dated) (at time.Time) {
	for _, d := range all {
		if at.IsZero() || d.Cert.NotAfter.Before(at) {
			at = d.Cert.NotAfter
		}
	}
	return at
}

// NotAfter says when the files in use expire: the first certificate of the
// chain, and the first of the CA's. A zero time means that there is none.
func (s *Set) NotAfter() (cert, ca time.Time) {
	m := s.current()
	return earliest(m.chain), earliest(m.cas)
}

// warnings are the times before the end of a certificate at which it is
// spoken of. One that lives for a short time only has its own.
func warnings(c *x509.Certificate) []time.Duration {
	life := c.NotAfter.Sub(c.NotBefore)
	var at []time.Duration
	for _, before := range []time.Duration{30 * day, 7 * day, day} {
		if before <= life/3 {
			at = append(at, before)
		}
	}
	if len(at) == 0 {
		at = append(at, life/10)
	}
	return append(at, 0)
}

// warn speaks of what will expire soon, or has, once for each time in
// warnings.
func (s *Set) warn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.o.Now()
	known := map[string]int{}
	for _, d := range append(append([]dated{}, s.mu.cur.chain...), s.mu.cur.cas...) {
		key := fmt.Sprintf("%s %x", d.File, sha256.Sum256(d.Cert.Raw))
		left, due := d.Cert.NotAfter.Sub(now), 0
		for _, before := range warnings(d.Cert) {
			if left <= before {
				due++
			}
		}
		if due > s.mu.warned[key] {
			s.speak(d, left)
		}
		known[key] = due
	}
	s.mu.warned = known
}

func (s *Set) speak(d dated, left time.Duration) {
	path := s.files.Cert
	if d.File == "ca" {
		path = s.files.CA
	}
	level, text := slog.LevelWarn, "a certificate expires soon: put its successor into the same file; it is read without a restart"
	if s.o.Role == Client {
		level = slog.LevelInfo // whoever runs a command is not who renews
	}
	if left <= 0 {
		level, text = slog.LevelError, "a certificate has EXPIRED, and the other side refuses it: put its successor into the same file; it is read without a restart"
	}
	s.o.Logger.Log(context.Background(), level, text, "use", string(s.o.Role), "file", path, "certificate", describe(d.Cert),
		"expires", d.Cert.NotAfter.UTC().Format(time.RFC3339), "left", left.Round(time.Minute).String())
}

// describe names a certificate for people.
func describe(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	name := c.Subject.String()
	if len(c.DNSNames) > 0 {
		name += fmt.Sprintf(" for %v", c.DNSNames)
	}
	return fmt.Sprintf("%s, serial %x", name, c.SerialNumber)
}
