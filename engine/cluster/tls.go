package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// explainTLS says what to do about a connection that failed because the two
// sides do not agree on TLS; any other error is as it was.
func explainTLS(ctx context.Context, addr string, dial dialFunc, own *tls.Config, err error) error {
	if own == nil {
		if ctx.Err() == nil && speaksTLS(ctx, addr, dial) {
			return fmt.Errorf("the server speaks TLS, and this client does not: give it the CA that signed the server's certificate (--ca FILE, or Options.TLS): %w", err)
		}
		return err
	}
	var (
		record  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		name    x509.HostnameError
	)
	switch {
	case errors.As(err, &record):
		return fmt.Errorf("the server does not speak TLS: start it with --cert and --key, or leave --ca, --cert and --key (Options.TLS) away here: %w", err)
	case errors.As(err, &unknown):
		return fmt.Errorf("the server's certificate is not signed by a CA that this client trusts: give the right one (--ca FILE, or Options.TLS), or ask whether this is the right server: %w", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("the server's certificate has expired, or is not valid yet: put a new one into its --cert and --key files (it reads them without a restart), and check this machine's clock: %w", err)
	case errors.As(err, &name):
		return fmt.Errorf("the server's certificate does not name %s: use a name or an address that it has, or have it issued anew with this one (subjectAltName): %w", addr, err)
	}
	if told := explainAlert(err); told != nil {
		return told
	}
	if told := explainAlert(hearAlert(ctx, addr, dial, own)); told != nil {
		return told
	}
	return err
}

// hearAlert asks again why a server hung up: what it says of a certificate
// comes after the handshake, and the layers above TLS do not pass it on.
func hearAlert(ctx context.Context, addr string, dial dialFunc, own *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	raw, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil
	}
	defer raw.Close()
	defer context.AfterFunc(ctx, func() { _ = raw.Close() })()
	own = own.Clone()
	if own.ServerName == "" {
		own.ServerName, _, _ = net.SplitHostPort(addr)
	}
	own.NextProtos = []string{"h2"} // then the server is the first to speak
	_, err = tls.Client(raw, own).Read(make([]byte, 1))
	return err
}

// alerts are what a server says of a client's certificate. They have no type
// that can be told, so their texts must do.
var alerts = []struct{ text, advice string }{
	{"tls: certificate required", "the server wants a certificate of the client: give one with its key (--cert FILE --key FILE, or Options.TLS)"},
	{"tls: unknown certificate authority", "the server does not know the CA that signed this client's certificate: use a certificate of its CA (the server's --ca)"},
	{"tls: expired certificate", "this client's certificate has expired: put a new one into its --cert and --key files"},
	{"tls: bad certificate", "the server refuses this client's certificate: see its log for the reason; want one of its CA that may be used for clientAuth"},
	{"tls: protocol version not supported", "the server wants a newer TLS version (1.3)"},
}

// explainAlert is nil for an error that is not about a certificate of ours.
func explainAlert(err error) error {
	if err == nil || !strings.Contains(err.Error(), "remote error: ") {
		return nil
	}
	for _, a := range alerts {
		if strings.Contains(err.Error(), a.text) {
			return fmt.Errorf("%s: %w", a.advice, err)
		}
	}
	return nil
}

// speaksTLS asks a server that hung up on a client without TLS. Nothing is
// sent but the greeting, so it does not matter who the server is.
func speaksTLS(ctx context.Context, addr string, dial dialFunc) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	raw, err := dial(ctx, "tcp", addr)
	if err != nil {
		return false
	}
	defer raw.Close()
	host, _, _ := net.SplitHostPort(addr)
	err = tls.Client(raw, &tls.Config{ServerName: host, InsecureSkipVerify: true}).HandshakeContext(ctx)
	return err == nil || strings.Contains(err.Error(), "remote error: tls:")
}
