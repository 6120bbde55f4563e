package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
)

// Limits of a file of operators' tokens.
const (
	minTokenBytes     = 16
	maxTokenBytes     = 512
	maxTokenFileBytes = 64 << 10
	maxCredentialName = 64
)

// operators are the credentials by which operators are known. Without any, the
// server's own machine is: see service.permit.
type operators struct {
	file  string   // of tokens; "" for none
	names []string // of certificates
	log   *slog.Logger

	mu     sync.Mutex
	sum    [sha256.Size]byte // of the file as it was looked at last
	tokens []operatorToken
	broken string // why the file as it is now is not in use
}

// operatorToken is one line of the file.
type operatorToken struct {
	name string
	sum  [sha256.Size]byte // of the token
}

// newOperators reads the configured credentials.
func newOperators(cfg Config) (*operators, error) {
	o := &operators{file: cfg.OperatorTokenFile, names: cfg.OperatorCertNames, log: cfg.Logger}
	if len(o.names) > 0 && cfg.TLS.CA == "" {
		return nil, errors.New("operators are named by their certificates, and clients need not show any: name the CA of the clients' certificates, too")
	}
	if slices.Contains(o.names, "") {
		return nil, errors.New("an operator's certificate name is empty: want a name that the certificate has")
	}
	if o.file == "" {
		return o, nil
	}
	data, err := o.read()
	if err != nil {
		return nil, fmt.Errorf("operator tokens: %w", err)
	}
	o.sum = sha256.Sum256(data)
	if o.tokens, err = parseTokens(data); err != nil {
		return nil, fmt.Errorf("operator tokens: %s: %w", o.file, err)
	}
	if len(o.tokens) == 0 {
		return nil, fmt.Errorf("operator tokens: %s holds none: want lines NAME:TOKEN, with a token as from 'openssl rand -hex 32'", o.file)
	}
	return o, nil
}

// configured reports whether a credential is needed.
func (o *operators) configured() bool { return o != nil && (o.file != "" || len(o.names) > 0) }

func (o *operators) read() ([]byte, error) {
	f, err := os.Open(o.file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTokenFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxTokenFileBytes {
		return nil, fmt.Errorf("%s is longer than %d bytes", o.file, maxTokenFileBytes)
	}
	if mode := info.Mode().Perm(); mode&0o007 != 0 && sha256.Sum256(data) != o.sum {
		o.log.Warn("everybody on this machine may read the operators' tokens, or change them: chmod 600", "file", o.file, "mode", fmt.Sprintf("%04o", mode))
	}
	return data, nil
}

// parseTokens reads lines NAME:TOKEN; empty ones, and those that begin with
// #, are skipped. Errors never show a token.
func parseTokens(data []byte) ([]operatorToken, error) {
	var all []operatorToken
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, token, ok := strings.Cut(line, ":")
		name, token = strings.TrimSpace(name), strings.TrimSpace(token)
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d: want NAME:TOKEN", i+1)
		case name == "" || len(name) > maxCredentialName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, fmt.Errorf("line %d: the name must have 1 to %d characters of ASCII, without spaces", i+1, maxCredentialName)
		case len(token) < minTokenBytes || len(token) > maxTokenBytes || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
			return nil, fmt.Errorf("line %d: the token of %s must have %d to %d characters of ASCII, without spaces, as from 'openssl rand -hex 32'", i+1, name, minTokenBytes, maxTokenBytes)
		case slices.ContainsFunc(all, func(o operatorToken) bool { return o.name == name }):
			return nil, fmt.Errorf("line %d: the name %s was there before: give each token a name of its own", i+1, name)
		}
		all = append(all, operatorToken{name: name, sum: sha256.Sum256([]byte(token))})
	}
	return all, nil
}

// refresh looks at the file, so that a token that was taken out is refused at
// once. A file that cannot be read or understood changes nothing, and the log
// says so. A file without tokens is understood: then nobody has one.
func (o *operators) refresh() {
	if o.file == "" {
		return
	}
	data, err := o.read()
	if err == nil {
		if sum := sha256.Sum256(data); sum == o.sum {
			return
		}
		var tokens []operatorToken
		if tokens, err = parseTokens(data); err == nil {
			o.sum, o.tokens, o.broken = sha256.Sum256(data), tokens, ""
			o.log.Info("the operators' tokens were read anew", "file", o.file, "tokens", len(tokens))
			return
		}
	}
	if o.broken != err.Error() {
		o.broken = err.Error()
		o.log.Error("the changed file of operators' tokens is not used: the old tokens stay valid", "file", o.file, "error", err)
	}
}

// who says by which credential a caller is known as an operator. It looks at
// every token, whatever is offered, so that the time it takes tells nothing.
func (o *operators) who(c shown) (credential string, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refresh()
	if token, has := strings.CutPrefix(c.authorization, "Bearer "); has {
		sum, found := sha256.Sum256([]byte(strings.TrimSpace(token))), -1
		for i := range o.tokens {
			if subtle.ConstantTimeCompare(sum[:], o.tokens[i].sum[:]) == 1 {
				found = i
			}
		}
		if found >= 0 {
			return "token " + o.tokens[found].name, true
		}
	}
	if name, ok := c.certificate(o.names); ok {
		return "certificate " + name, true
	}
	return "", false
}

// shown is what a request says of who makes it.
type shown struct {
	authorization string               // its header
	tls           *tls.ConnectionState // nil without TLS
}

// certificate reports whether the client's certificate, which was verified, has
// one of the names, as its common name or as one of its others.
func (a shown) certificate(names []string) (string, bool) {
	if a.tls == nil || len(a.tls.VerifiedChains) == 0 {
		return "", false
	}
	leaf := a.tls.PeerCertificates[0]
	has := append([]string{leaf.Subject.CommonName}, leaf.DNSNames...)
	has = append(has, leaf.EmailAddresses...)
	for _, u := range leaf.URIs {
		has = append(has, u.String())
	}
	for _, name := range names {
		if slices.Contains(has, name) {
			return name, true
		}
	}
	return "", false
}

// secret reports whether the request's header has not crossed a network in the
// clear.
func (a shown) secret(peer string) bool { return a.tls != nil || fromHere(peer) }
