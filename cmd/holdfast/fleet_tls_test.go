package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
	"holdfast/server/tlsfiles"
	"holdfast/server/tlsfiles/tlstest"
)

// A certFleet is a cluster of three nodes whose ports speak TLS. Node n1 shows
// port-n1.pem to clients and n1.pem to members; the client shows client.pem.
// Who signs is in clients.pem and members.pem.
type certFleet struct {
	*fleet
	dir string
	env []string // of commands
}

func (p *certFleet) path(name string) string { return filepath.Join(p.dir, name) }

// issue puts a new certificate and its key into the place of the old ones.
func (p *certFleet) issue(ca *tlstest.CA, name string, c tlstest.Certificate) {
	cert, key := ca.Issue(c)
	tlstest.Replace(p.t, p.path(name+".pem"), cert)
	tlstest.Replace(p.t, p.path(name+".key"), key)
}

// issueAll does it for everybody.
func (p *certFleet) issueAll(clients, members *tlstest.CA) {
	for _, name := range []string{"n1", "n2", "n3"} {
		p.issue(clients, "port-"+name, tlstest.Certificate{})
		p.issue(members, name, tlstest.Certificate{DNSNames: []string{name}})
	}
	p.issue(clients, "client", tlstest.Certificate{CommonName: "ann"})
}

// trust says whose certificates are accepted.
func (p *certFleet) trust(file string, cas ...*tlstest.CA) {
	var all []byte
	for _, ca := range cas {
		all = append(all, ca.PEM()...)
	}
	tlstest.Replace(p.t, p.path(file), all)
}

func newCertFleet(t *testing.T, clients, members *tlstest.CA) *certFleet {
	t.Helper()
	p := &certFleet{fleet: &fleet{t: t}, dir: t.TempDir()}
	p.trust("clients.pem", clients)
	p.trust("members.pem", members)
	p.issueAll(clients, members)
	listen := []string{freeAddress(t), freeAddress(t), freeAddress(t)}
	list := fmt.Sprintf("n1=%s,n2=%s,n3=%s", listen[0], listen[1], listen[2])
	for i := range listen {
		name, addr := fmt.Sprint("n", i+1), freeAddress(t)
		n := &fleetNode{addr: addr, args: []string{
			"serve", "--name", name, "--data", filepath.Join(t.TempDir(), "data"), "--listen", addr,
			"--peer-listen", listen[i], "--initial-cluster", list,
			"--cert", p.path("port-" + name + ".pem"), "--key", p.path("port-" + name + ".key"), "--ca", p.path("clients.pem"),
			"--peer-cert", p.path(name + ".pem"), "--peer-key", p.path(name + ".key"), "--peer-ca", p.path("members.pem"),
		}}
		n.begin(t)
		p.nodes = append(p.nodes, n)
	}
	p.env = []string{
		serverVariable + "=" + p.addresses(), "HOLDFAST_CA=" + p.path("clients.pem"),
		"HOLDFAST_CERT=" + p.path("client.pem"), "HOLDFAST_KEY=" + p.path("client.key"),
	}
	p.ready(3)
	return p
}

// ready waits until so many nodes are, and returns which one leads.
func (p *certFleet) ready(nodes int) (leader string) {
	t := p.t
	t.Helper()
	eventually(t, fmt.Sprintf("%d nodes that are ready", nodes), func() bool {
		c := start(t, p.env, "cluster", "status", "-o", "json")
		var seen clusterJSON
		if c.wait() != 0 || json.Unmarshal([]byte(c.stdout.String()), &seen) != nil {
			return false
		}
		ready := 0
		for _, m := range seen.Members {
			if m.Ready != nil && *m.Ready {
				ready++
			}
			if m.Role == "leader" {
				leader = m.Name
			}
		}
		return ready == nodes && leader != ""
	})
	return leader
}

// named is the node with a name.
func (p *certFleet) named(name string) *fleetNode {
	i, _ := strconv.Atoi(name[1:])
	return p.nodes[i-1]
}

// shows waits until a port shows the certificate in a file to whoever connects.
func (p *certFleet) shows(addr, file string) {
	t := p.t
	t.Helper()
	eventually(t, addr+" with the certificate of "+file, func() bool {
		pair, err := tls.LoadX509KeyPair(p.path("client.pem"), p.path("client.key"))
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
		if err != nil {
			return false
		}
		defer c.Close()
		want, _ := pem.Decode([]byte(readFile(p.path(file))))
		return bytes.Equal(c.ConnectionState().PeerCertificates[0].Raw, want.Bytes)
	})
}

// showAll waits until all ports show what is in the files.
func (p *certFleet) showAll() {
	p.t.Helper()
	for i, n := range p.nodes {
		p.shows(n.addr, fmt.Sprintf("port-n%d.pem", i+1))
		p.shows(n.args[8], fmt.Sprintf("n%d.pem", i+1))
	}
}

// refuses checks that a port accepts nobody with this certificate.
func (p *certFleet) refuses(addr string, cert, key []byte) {
	t := p.t
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}})
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		_, err = io.Copy(io.Discard, c)
	}
	if err == nil || !strings.Contains(err.Error(), "remote error: tls: ") {
		t.Errorf("%s, and a certificate that it must refuse: %v", addr, err)
	}
}

// anew does something to the files, and waits until each node has read them
// for that use.
func (p *certFleet) anew(use string, change func()) {
	p.t.Helper()
	reads := func(n *fleetNode) int {
		return strings.Count(n.stderr.String(), `"certificates were read anew" use=`+use)
	}
	var before []int
	for _, n := range p.nodes {
		before = append(before, reads(n))
	}
	change()
	for i, n := range p.nodes {
		eventually(p.t, "the files of "+use+" at each node", func() bool { return reads(n) > before[i] })
	}
}

// metric is one number of a node.
func (p *certFleet) metric(n *fleetNode, name string) float64 {
	t := p.t
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: p.client()(), DisableKeepAlives: true}, Timeout: patience}
	res, err := client.Get("https://" + n.addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// client is how a client of the library speaks to the nodes: with the files as
// they are at each new connection.
func (p *certFleet) client() func() *tls.Config {
	p.t.Helper()
	set, err := tlsfiles.Open(tlsfiles.Files{Cert: p.path("client.pem"), Key: p.path("client.key"), CA: p.path("clients.pem")}, tlsfiles.Options{Role: tlsfiles.Client})
	if err != nil {
		p.t.Fatal(err)
	}
	return set.Client
}

// A certLoad is who works while certificates are replaced.
type certLoad struct {
	*crash
	p        *certFleet
	kept     *holdfast.Grant
	command  *program
	sessions string
}

func (p *certFleet) work() *certLoad {
	t := p.t
	t.Helper()
	client, err := cluster.Dial(t.Context(), p.addresses(), &cluster.Options{Label: "certificates test", TLSNow: p.client()})
	if err != nil {
		t.Fatal(err)
	}
	l := &certLoad{p: p, crash: &crash{t: t, client: client, stop: make(chan struct{}), fails: make(chan error, 64)}}
	if l.kept, err = client.Acquire(t.Context(), "kept", cluster.AcquireOptions{Value: []byte("value")}); err != nil {
		t.Fatal(err)
	}
	l.command = start(t, p.env, "run", "kept/run", "--", "sleep", "1000")
	eventually(t, "the command's lock", func() bool {
		l, err := client.Get(t.Context(), "kept/run", cluster.GetOptions{})
		return err == nil && len(l.Holders) == 1
	})
	for i := range 4 {
		l.wg.Go(func() { l.crash.work(fmt.Sprintf("shared/%d", i/2)) })
	}
	l.sessions = l.open()
	return l
}

// open are the sessions.
func (l *certLoad) open() string {
	l.t.Helper()
	var ids []string
	for s, err := range l.client.Sessions(l.t.Context(), cluster.ListOptions{}) {
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, fmt.Sprintf("%d %s holds %d", s.ID, s.Label, len(slices.DeleteFunc(s.Holds, func(n string) bool { return !strings.HasPrefix(n, "kept") }))))
	}
	slices.Sort(ids)
	return strings.Join(ids, "\n")
}

func (l *certLoad) check(what string) {
	t := l.t
	t.Helper()
	from := l.grants.Load()
	eventually(t, "progress "+what, func() bool { return l.grants.Load() >= from+10 || len(l.fails) > 0 })
	l.holdsStill(l.kept, 0)
	if now := l.open(); now != l.sessions {
		t.Errorf("%s, the sessions are\n%s\nand were\n%s", what, now, l.sessions)
	}
	if l.command.ended() {
		t.Errorf("%s: the command has ended: %s", what, l.command.stderr)
	}
	if s := clusterStatus(t, l.p.env, "--hash"); s.HashesEqual == nil || !*s.HashesEqual {
		t.Errorf("%s: %+v", what, s)
	}
}

func (l *certLoad) end() {
	t := l.t
	t.Helper()
	close(l.stop)
	l.wg.Wait()
	close(l.fails)
	for err := range l.fails {
		t.Error(err)
	}
	l.command.signal(15)
	l.command.expect(143)
	if err := l.kept.Release(context.Background()); err != nil {
		t.Error(err)
	}
	_ = l.client.Close(context.Background())
	t.Logf("%d grants acknowledged, highest token %d", l.grants.Load(), l.acked.Load())
}

// Certificates of clients, of the ports and of members are replaced on three
// nodes under load: by others of the same CA, then by those of another CA, as
// docs/certificates.md says. Whoever is connected stays so, and whoever connects
// afterwards sees the new ones.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestCertificatesReplacedOnThreeNodes(t *testing.T) {
	clients, members := tlstest.NewCA(t, "clients"), tlstest.NewCA(t, "members")
	p := newCertFleet(t, clients, members)
	l := p.work()
	p.issueAll(clients, members)
	p.showAll()
	l.check("new certificates of the same CA")

	clients2, members2 := tlstest.NewCA(t, "the next for clients"), tlstest.NewCA(t, "the next for members")
	oldCert, oldKey := clients.Issue(tlstest.Certificate{})
	oldMember, oldMemberKey := members.Issue(tlstest.Certificate{DNSNames: []string{"n1"}})
	p.anew("server", func() {
		p.anew("peer", func() {
			p.trust("clients.pem", clients, clients2)
			p.trust("members.pem", members, members2)
		})
	})
	p.issueAll(clients2, members2)
	p.showAll()
	l.check("certificates of the next CA")
	dead := p.named(p.ready(3)) // all lines to the next leader are made anew
	p.kill(dead)
	dead.begin(t)
	p.ready(3)
	l.check("a leader that died between both CAs")

	p.anew("server", func() {
		p.anew("peer", func() {
			p.trust("clients.pem", clients2)
			p.trust("members.pem", members2)
		})
	})
	for _, n := range p.nodes {
		p.refuses(n.addr, oldCert, oldKey)
		p.refuses(n.args[8], oldMember, oldMemberKey)
	}
	l.check("the old CA gone")
	dead = p.named(p.ready(3))
	p.kill(dead)
	dead.begin(t)
	p.ready(3)
	l.check("a leader that died after the old CA was gone")
	l.end()
}

// again kills a node and starts it anew: all its lines are made anew.
func (p *certFleet) again(n *fleetNode) {
	p.kill(n)
	n.begin(p.t)
}

// logs waits until a node's log has a text.
func (n *fleetNode) logs(t *testing.T, text string) {
	t.Helper()
	eventually(t, "a log with "+text, func() bool { return strings.Contains(n.stderr.String(), text) })
}

// A member keeps its certificate when another member's is put in its place, and
// does not start with that. One whose certificate has expired is kept out as
// soon as its lines are made anew; the others go on, and it is a member again,
// without a restart, once its files are right.
//
// It is not parallel: its load would be one for the tests that measure times.
func TestMemberWithAWrongCertificate(t *testing.T) {
	clients, members := tlstest.NewCA(t, "clients"), tlstest.NewCA(t, "members")
	p := newCertFleet(t, clients, members)
	l := p.work()
	n1, n3 := p.nodes[0], p.nodes[2]
	run(t, 0, p.env, "cluster", "transfer", "n2")

	good := readFile(p.path("n3.pem"))
	p.issue(members, "n3", tlstest.Certificate{DNSNames: []string{"n2"}})
	n3.logs(t, `names [\"n2\"], and this server is \"n3\"`)
	l.check("another member's certificate in the file")
	tlstest.Replace(t, p.path("kept.pem"), []byte(good))
	p.again(n1)
	p.shows(n3.args[8], "kept.pem")
	p.ready(3)
	l.check("the one that was kept, and lines that are made anew")
	p.kill(n3)
	n3.begin(t)
	n3.expect(exitFailure).says("subjectAltName = DNS:n3")
	p.issue(members, "n3", tlstest.Certificate{DNSNames: []string{"n3"}})
	n3.begin(t)
	p.ready(3)
	l.check("its own certificate again")

	run(t, 0, p.env, "cluster", "transfer", "n2")
	end := time.Now().Add(4 * time.Second)
	p.issue(members, "n3", tlstest.Certificate{DNSNames: []string{"n3"}, NotAfter: end})
	p.issue(clients, "port-n3", tlstest.Certificate{NotAfter: end})
	n3.logs(t, "a certificate expires soon")
	l.check("a certificate that expires soon")
	for use, file := range map[string]string{"peer": p.path("n3.pem"), "server": p.path("port-n3.pem")} {
		n3.logs(t, `EXPIRED, and the other side refuses it: put its successor into the same file; it is read without a restart" use=`+use+" file="+file)
	}
	l.check("an expired certificate, and the lines that stand")
	p.again(n1)
	n1.logs(t, "certificate has expired")
	run(t, exitUnreachable, append(p.env, serverVariable+"="+n3.addr), "lock", "list").says("expired")
	p.issue(clients, "port-n3", tlstest.Certificate{})
	p.shows(n3.addr, "port-n3.pem")
	if at := p.metric(n3, `holdfast_certificate_expiry_timestamp_seconds{file="cert",use="peer"}`); at > float64(time.Now().Unix()) || at < float64(end.Unix()-1) {
		t.Errorf("the metric says %f, the certificate of members expired at %d", at, end.Unix())
	}
	p.issue(members, "n3", tlstest.Certificate{DNSNames: []string{"n3"}})
	p.shows(n3.args[8], "n3.pem")
	p.ready(3)
	run(t, 0, p.env, "cluster", "transfer", "n3")
	l.check("a certificate that was renewed too late")
	l.end()
}
