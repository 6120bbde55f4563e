package peer

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
)

// refusedTLS tells of a connection to this port that did not come to speak
// TLS: from where, of which member if that can be known, and what to do.
func (p *Port) refusedTLS(c net.Conn, err error) {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	member, cause, advice := "", bare(err), ""
	if v, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && len(v.UnverifiedCertificates) > 0 {
		member = strings.Join(v.UnverifiedCertificates[0].DNSNames, ",")
		advice = "this node does not accept the member's certificate: it must be valid now, and signed by a CA in this node's --peer-ca"
	} else if refusesUs(err) {
		advice = "the member does not accept this node's certificate, or shows none: --peer-cert of this node must be valid now, and signed by a CA in the member's --peer-ca"
	} else if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		advice = "the other side does not speak TLS: start every member with --peer-cert, --peer-key and --peer-ca; clients use another port"
	} else if errors.Is(err, io.EOF) {
		advice = "the other side hung up; its log may say why"
	}
	if member == "" {
		member = p.nameAt(host)
	}
	p.notes.seldom(p.log, slog.LevelWarn, "tls "+host+" "+member+" "+cause, "a member's TLS handshake failed", "from", host, "member", member, "reason", cause, "advice", advice)
}

// refusesUs reports whether the other side ended the handshake.
func refusesUs(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// bare is an error's text without the ports of the connection, which differ
// each time.
func bare(err error) string {
	text := err.Error()
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		text = strings.ReplaceAll(text, op.Error(), op.Op+": "+op.Err.Error())
	}
	return text
}

// nameAt is the member at a host, if there is only one.
func (p *Port) nameAt(host string) (name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.mu.links {
		if at, _, err := net.SplitHostPort(l.member.Addr); err != nil || at != host {
			continue
		}
		if name != "" {
			return ""
		}
		name = l.member.Name
	}
	return name
}
