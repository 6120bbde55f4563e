package tlsfiles

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// Files names PEM files. Which of them must be given depends on the [Role].
type Files struct {
	// Cert is the certificate, followed by the intermediate ones up to, and
	// without, the root.
	Cert string
	// Key is the certificate's private key. The file may be the same as Cert.
	Key string
	// CA holds the certificates of those who sign the other side's.
	CA string
}

// IsZero reports whether no file is named.
func (f Files) IsZero() bool { return f == Files{} }

// SystemCA, as Files.CA of a client, means the roots that the machine trusts.
const SystemCA = "system"

// Role says what a set is for.
type Role string

// The roles. Their texts stand in logs and metrics.
const (
	// Server: the port for clients. Cert and Key are needed; with CA, clients
	// must show a certificate that it signed.
	Server Role = "server"
	// Client: a command that talks to a server. CA is needed, Cert and Key if
	// the server wants to know who calls.
	Client Role = "client"
	// Peer: members among each other. All three are needed.
	Peer Role = "peer"
)

const (
	// Every is how often files are looked at.
	Every = 2 * time.Second
	// maxBytes is the longest file that is read.
	maxBytes = 1 << 20
)

// Options are the settings of a [Set] beside its files.
type Options struct {
	Role   Role
	Logger *slog.Logger // default: silence
	// Every is how often [Set.Watch] looks at the files; default [Every].
	Every time.Duration
	// Now is the wall clock, by which certificates expire; default time.Now.
	Now func() time.Time
	// Suits, if not nil, refuses a certificate for what only the caller knows,
	// such as its names.
	Suits func(leaf *x509.Certificate) error
	// Changed, if not nil, is told of every time that changed files were
	// read, with nil if they took effect. It must be quick.
	Changed func(error)
}

// Set is what a set of files holds. Its methods may be called by any
// goroutine.
type Set struct {
	files Files
	o     Options

	mu struct {
		sync.Mutex
		cur    *material
		seen   [sha256.Size]byte // of the files as they were looked at last
		failed error             // why these are not in use
		warned map[string]int    // by certificate: how many of its warnings were given
	}
}

// material is one set of files, read and checked. It never changes.
type material struct {
	sum   [sha256.Size]byte
	cert  *tls.Certificate  // nil: none
	chain []dated           // leaf first
	roots *x509.CertPool    // nil: none, or those of the system
	cas   []dated           // what roots holds
	leaf  *x509.Certificate // of cert
}

// Open reads the files and checks that they can be used. An error names the
// file and says what to do.
func Open(f Files, o Options) (*Set, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Every <= 0 {
		o.Every = Every
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := f.check(o.Role); err != nil {
		return nil, err
	}
	s := &Set{files: f, o: o}
	raw, err := f.read()
	if err != nil {
		return nil, err
	}
	m, err := s.parse(raw)
	if err != nil {
		return nil, err
	}
	s.mu.cur, s.mu.seen, s.mu.warned = m, m.sum, map[string]int{}
	s.doubt(m)
	s.warn()
	return s, nil
}

// parse is contents.parse, and asks the caller.
func (s *Set) parse(raw contents) (*material, error) {
	m, err := raw.parse(s.files, s.o.Role)
	if err == nil && s.o.Suits != nil && m.leaf != nil {
		err = s.o.Suits(m.leaf)
	}
	return m, err
}

// check says which files are missing.
func (f Files) check(role Role) error {
	switch {
	case f.Cert == "" && f.Key != "":
		return errors.New("a key is given without its certificate: give both, or none")
	case f.Cert != "" && f.Key == "":
		return errors.New("a certificate is given without its key: give both, or none")
	case role != Client && f.Cert == "":
		return errors.New("certificate and key are missing: give both")
	case role != Server && f.CA == "":
		return errors.New("the CA is missing: name the file with the certificates of those who sign the other side's")
	case f.CA == SystemCA && role != Client:
		return fmt.Errorf("the CA is %q: whoever has a certificate of any public authority would be let in; name the file of your own", f.CA)
	}
	return nil
}

// contents are the bytes of the files.
type contents struct{ cert, key, ca []byte }

func (f Files) read() (c contents, err error) {
	for _, file := range []struct {
		what, path string
		to         *[]byte
	}{{"certificate", f.Cert, &c.cert}, {"key", f.Key, &c.key}, {"CA", f.CA, &c.ca}} {
		if file.path == "" || file.path == SystemCA {
			continue
		}
		if *file.to, err = readFile(file.path); err != nil {
			return c, fmt.Errorf("%s: %w", file.what, err)
		}
	}
	return c, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxBytes {
		return nil, fmt.Errorf("%s is longer than %d bytes", path, maxBytes)
	}
	return data, nil
}

func (c contents) sum() [sha256.Size]byte {
	h := sha256.New()
	for _, b := range [][]byte{c.cert, c.key, c.ca} {
		fmt.Fprintf(h, "%d ", len(b))
		h.Write(b)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

// Refresh looks at the files, and reads them if they have changed. An error
// says why the old ones stay in use; it is told again until the files are
// changed again, and logged once.
func (s *Set) Refresh() error {
	raw, err := s.files.read()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		// A file may be missing for a moment while it is replaced.
		s.mu.seen = [sha256.Size]byte{}
		return s.keep(fmt.Errorf("%w: certificates and key stay as they were", err))
	}
	sum := raw.sum()
	if sum == s.mu.seen {
		return s.mu.failed
	}
	m, err := s.parse(raw)
	if err == nil {
		err = s.worse(m)
	}
	s.mu.seen = sum
	if err != nil {
		return s.keep(fmt.Errorf("%w: the old certificates and key stay in use", err))
	}
	changed := m.sum != s.mu.cur.sum
	s.mu.cur, s.mu.failed = m, nil
	if changed {
		s.doubt(m)
		s.o.Logger.Info("certificates were read anew", "use", string(s.o.Role), "certificate", describe(m.leaf), "expires", m.notAfter())
	}
	s.told(nil)
	return nil
}

// keep notes why what the files hold now is not in use; mu is held.
func (s *Set) keep(err error) error {
	if s.mu.failed == nil || s.mu.failed.Error() != err.Error() {
		s.o.Logger.Warn("changed certificates are not used", "use", string(s.o.Role), "error", err)
		s.told(err)
	}
	s.mu.failed = err
	return err
}

func (s *Set) told(err error) {
	if s.o.Changed != nil {
		s.o.Changed(err)
	}
}

// worse refuses an expired certificate in place of one that is not; mu is
// held.
func (s *Set) worse(m *material) error {
	now := s.o.Now()
	if m.leaf != nil && now.After(m.leaf.NotAfter) && s.mu.cur.leaf != nil && !now.After(s.mu.cur.leaf.NotAfter) {
		return fmt.Errorf("%s: the certificate expired at %s, and the one in use has not", s.files.Cert, m.leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	return nil
}

// Watch looks at the files again and again until ctx ends, and warns in the
// log before a certificate expires.
func (s *Set) Watch(ctx context.Context) {
	t := time.NewTicker(s.o.Every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			_ = s.Refresh() // it was logged, and what was in use stays so
			s.warn()
		}
	}
}

// Names are the DNS names of the certificate in use.
func (s *Set) Names() []string {
	if m := s.current(); m.leaf != nil {
		return slices.Clone(m.leaf.DNSNames)
	}
	return nil
}

func (s *Set) current() *material {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.cur
}

// parse makes the bytes of a set of files a material, or says what is wrong.
func (c contents) parse(f Files, role Role) (*material, error) {
	m := &material{sum: c.sum()}
	if f.Cert != "" {
		pair, err := tls.X509KeyPair(c.cert, c.key)
		if err != nil {
			return nil, pairError(f, c, err)
		}
		m.cert, m.leaf = &pair, pair.Leaf
		for _, der := range pair.Certificate {
			x, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", f.Cert, err)
			}
			m.chain = append(m.chain, dated{File: "cert", Cert: x})
		}
		if err := suits(f, role, m.leaf); err != nil {
			return nil, err
		}
	}
	if f.CA != "" && f.CA != SystemCA {
		cas, err := parseAll(c.ca)
		if err != nil {
			return nil, fmt.Errorf("CA %s: %w", f.CA, err)
		}
		m.roots = x509.NewCertPool()
		for _, x := range cas {
			m.roots.AddCert(x)
			m.cas = append(m.cas, dated{File: "ca", Cert: x})
		}
	}
	return m, nil
}

// pairError says which of both files is wrong.
func pairError(f Files, c contents, err error) error {
	if _, certErr := parseAll(c.cert); certErr != nil {
		return fmt.Errorf("certificate %s: %w", f.Cert, certErr)
	}
	if bytes.Contains(c.key, []byte("ENCRYPTED")) {
		return fmt.Errorf("key %s: it is encrypted: want one without a passphrase, readable by this user only", f.Key)
	}
	return fmt.Errorf("certificate %s and key %s: %w: want a certificate and the private key that belongs to it, in PEM", f.Cert, f.Key, err)
}

// suits refuses a certificate that no other side would accept.
func suits(f Files, role Role, leaf *x509.Certificate) error {
	need := map[Role][]x509.ExtKeyUsage{
		Server: {x509.ExtKeyUsageServerAuth},
		Client: {x509.ExtKeyUsageClientAuth},
		Peer:   {x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	names := map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "serverAuth", x509.ExtKeyUsageClientAuth: "clientAuth"}
	for _, usage := range need[role] {
		if !allows(leaf, usage) {
			return fmt.Errorf("certificate %s: its extended key usage lacks %s, so the other side would refuse it: have it issued anew with extendedKeyUsage = %s", f.Cert, names[usage], names[usage])
		}
	}
	if role != Client && len(leaf.DNSNames)+len(leaf.IPAddresses) == 0 {
		return fmt.Errorf("certificate %s: it names no host (subjectAltName), so the other side would refuse it: have it issued anew with subjectAltName = DNS:…,IP:…", f.Cert)
	}
	return nil
}

func allows(c *x509.Certificate, usage x509.ExtKeyUsage) bool {
	if len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 {
		return true
	}
	for _, u := range c.ExtKeyUsage {
		if u == usage || u == x509.ExtKeyUsageAny {
			return true
		}
	}
	return false
}
