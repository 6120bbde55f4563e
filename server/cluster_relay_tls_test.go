package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/server/peer"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// relaying is a cluster of three with TLS everywhere, with an operator's token.
type relaying struct {
	t              *testing.T
	dir            string
	clients, peers *tlstest.CA
	lead, follower *world
}

func startRelaying(t *testing.T) *relaying {
	t.Helper()
	r := &relaying{t: t, dir: t.TempDir(), clients: tlstest.NewCA(t, "clients"), peers: tlstest.NewCA(t, "members")}
	tokens := filepath.Join(r.dir, "tokens")
	writeTokens(t, tokens, "ann:"+annsToken)
	var files tlsfiles.Files
	files.Cert, files.Key, _ = r.clients.Write(r.dir, "port", tlstest.Certificate{CommonName: "port"})
	worlds := startServers(t, 3, func(c *Config) {
		c.TLS, c.OperatorTokenFile = files, tokens
		c.Cluster.TLS = memberFiles(r.peers, r.dir, c.Cluster.Name)
	})
	r.lead, r.follower = worlds[0], worlds[1]
	return r
}

// client is one of a server's, with a token or without.
func (r *relaying) client(w *world, token string) holdfastv1connect.LockServiceClient {
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: r.clients.Pool()}} // HTTP/1.1, as curl may
	r.t.Cleanup(tr.CloseIdleConnections)
	return holdfastv1connect.NewLockServiceClient(&http.Client{Transport: tr}, "https://"+w.Addr(), connect.WithProtoJSON(), connect.WithInterceptors(showing(token)))
}

func showing(token string) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			if token != "" {
				req.Header().Set("Authorization", "Bearer "+token)
			}
			return next(ctx, req)
		}
	}
}

// TestRelayedUnderTLS: whoever knows one follower's address can use the service
// through it, also while the ports speak TLS. Who has another's session ID and
// not its secret is as far from it as before.
func TestRelayedUnderTLS(t *testing.T) {
	t.Parallel()
	r := startRelaying(t)
	ctx, secret := t.Context(), drawSecret()
	c := r.client(r.follower, "")
	opened, err := c.OpenSession(ctx, connect.NewRequest(&holdfastv1.OpenSessionRequest{Secret: secret.String(), TtlMs: 60_000}))
	if err != nil {
		t.Fatal(err)
	}
	ref := &holdfastv1.SessionRef{Id: opened.Msg.GetSessionId(), Secret: secret.String()}
	got, err := c.Acquire(ctx, connect.NewRequest(&holdfastv1.AcquireRequest{Session: ref, Request: &holdfastv1.RequestID{N: 1}, Lock: "l"}))
	if err != nil || got.Msg.GetGrant().GetNumber() == 0 {
		t.Fatalf("%v, %v", got, err)
	}
	lock, err := r.client(r.lead, "").GetLock(ctx, connect.NewRequest(&holdfastv1.GetLockRequest{Lock: "l"}))
	if err != nil || lock.Msg.GetLock().GetHolders()[0].GetGrant() != got.Msg.GetGrant().GetNumber() {
		t.Errorf("at the leader: %v, %v", lock, err)
	}
	wrong := &holdfastv1.SessionRef{Id: ref.GetId(), Secret: drawSecret().String()}
	_, err = c.Release(ctx, connect.NewRequest(&holdfastv1.ReleaseRequest{Session: wrong, Grant: got.Msg.GetGrant().GetNumber()}))
	if e := wire.FromError(err); e == nil || e.Kind != driver.Denied {
		t.Errorf("a release with a wrong secret: %v", err)
	}
	if _, err = c.Release(ctx, connect.NewRequest(&holdfastv1.ReleaseRequest{Session: ref, Grant: got.Msg.GetGrant().GetNumber()})); err != nil {
		t.Error(err)
	}
	// An operator's call is not passed on: it is told whom to ask.
	eventually(t, "the leader's address", func() bool {
		_, err = r.client(r.follower, annsToken).ExpelSession(ctx, connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: ref.GetId()}))
		e := wire.FromError(err)
		if e == nil {
			return true // it leads by now
		}
		remote := wire.RemoteOf(e)
		return e.Kind == driver.Unavailable && e.Outcome == driver.No && remote != nil && remote.Info.GetLeaderAddress() == r.follower.node.Status().LeaderAddr
	})
}

// over is a client of the service that calls by a line between members.
func over(t *testing.T, line net.Conn) holdfastv1connect.LockServiceClient {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DialContext: func(context.Context, string, string) (net.Conn, error) { return line, nil }}
	t.Cleanup(tr.CloseIdleConnections)
	return holdfastv1connect.NewLockServiceClient(&http.Client{Transport: tr}, "http://leader", connect.WithInterceptors(showing(annsToken)))
}

// TestRelayMakesNoOperator: by a line between members nobody is an operator,
// whatever is shown there, and no call goes that is an operator's.
func TestRelayMakesNoOperator(t *testing.T) {
	t.Parallel()
	r := startRelaying(t)
	ctx := t.Context()
	line, err := r.follower.node.port.RelayLine(ctx, r.lead.node.Status().NodeID)
	if err != nil {
		t.Fatal(err)
	}
	c := over(t, line)
	if _, err := c.ListLocks(ctx, connect.NewRequest(&holdfastv1.ListLocksRequest{AllowStale: true})); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{
		"revoke": func() error {
			_, err := c.RevokeGrant(ctx, connect.NewRequest(&holdfastv1.RevokeGrantRequest{Lock: "l", Grant: 1}))
			return err
		},
		"expel": func() error {
			_, err := c.ExpelSession(ctx, connect.NewRequest(&holdfastv1.ExpelSessionRequest{SessionId: 1}))
			return err
		},
		"transfer": func() error {
			_, err := c.TransferLeadership(ctx, connect.NewRequest(&holdfastv1.TransferLeadershipRequest{}))
			return err
		},
		"add": func() error {
			_, err := c.AddMember(ctx, connect.NewRequest(&holdfastv1.AddMemberRequest{Name: "z"}))
			return err
		},
		"remove": func() error {
			_, err := c.RemoveMember(ctx, connect.NewRequest(&holdfastv1.RemoveMemberRequest{Name: "a"}))
			return err
		},
		"audit": func() error {
			_, err := c.ListAudit(ctx, connect.NewRequest(&holdfastv1.ListAuditRequest{}))
			return err
		},
		"backup": func() error {
			s, err := c.Backup(ctx, connect.NewRequest(&holdfastv1.BackupRequest{}))
			if err == nil && !s.Receive() {
				err = s.Err()
			}
			return err
		},
	} {
		if e := wire.FromError(call()); e == nil || e.Kind != driver.Denied || e.Outcome != driver.No {
			t.Errorf("%s by a line between members: %v", what, e)
		}
	}
	// Even if one of them were passed on, its caller would not be known.
	guarded := withCall(&r.lead.serving, &r.lead.undecoded, onlyRelayed(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		if shows := callOf(q.Context()).shows; shows != (shown{}) {
			t.Errorf("a relayed call shows %+v", shows)
		}
		panic(http.ErrAbortHandler)
	})))
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+relayed[0], http.NoBody)
	q.Header.Set("Authorization", "Bearer "+annsToken)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the call did not come through")
			}
		}()
		guarded.ServeHTTP(&silentWriter{}, q)
	}()
}

// TestOnlyMembersRelay: a line for calls is refused to who is no member: by
// its certificate, also one of the members' own CA, or by its ID.
func TestOnlyMembersRelay(t *testing.T) {
	t.Parallel()
	r := startRelaying(t)
	lead, follower := r.lead.node.Status(), r.follower.node.Status()
	try := func(name string, id uint64, ca *tlstest.CA) error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cert, key := ca.Issue(tlstest.Certificate{DNSNames: []string{name}})
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		p := peer.New(peer.Config{Listener: l, Logger: quietLog, DialTLS: func() *tls.Config {
			return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
		}})
		defer p.Close()
		p.Join(peer.Self{Incarnation: lead.Incarnation, ID: id, Group: 1, Name: name, Supports: core.SupportedVersion, Version: func() uint32 { return lead.Version }}, peer.Events{
			Receive: func(peer.Message) {}, Unreachable: func(uint64) {}, SnapshotSent: func(uint64, bool) {}, Refused: func(uint64, *peer.Refusal) {}, Told: func(peer.Facts) {},
		})
		p.SetMembers([]peer.Member{{ID: lead.NodeID, Addr: r.lead.PeerAddr()}}, nil)
		line, err := p.RelayLine(t.Context(), lead.NodeID)
		if err == nil {
			line.Close()
		}
		return err
	}
	its := r.follower.cfg.Cluster.Name
	if err := try(its, follower.NodeID, r.peers); err != nil {
		t.Errorf("the member itself: %v", err)
	}
	if err := try("z", follower.NodeID, r.peers); !errors.Is(err, peer.ErrCertificate) {
		t.Errorf("a member's ID with another certificate of the members' CA: %v", err)
	}
	if err := try("z", 4711, r.peers); !errors.Is(err, peer.ErrNoMember) {
		t.Errorf("a stranger with a certificate of the members' CA: %v", err)
	}
	if err := try(its, follower.NodeID, r.clients); err == nil {
		t.Error("a certificate of another CA will do")
	}
}
