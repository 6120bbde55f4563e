//go:build linux

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"holdfast/internal/pgtest"
	"holdfast/server/tlsfiles"
)

// Settings are those of one run.
type settings struct {
	binary  string // holdfast
	prefix  string // of all that is made
	servers int
	clients int
	lasts   time.Duration
	seed    uint64
	gated   bool
	real    bool     // namespaces
	only    []string // kinds of faults; nil: all
	out     io.Writer
	unlock  time.Duration // patience of the check of linearizability, a lock
}

// ttl is that of the clients' sessions, and patience how long after a fault it
// may take until everybody is served again.
const (
	ttl      = 2 * time.Second
	patience = 40 * time.Second
)

// locks are what the clients work under, and what their ledgers are called.
var locks = []string{locksPrefix + "pg/a", locksPrefix + "pg/b", locksPrefix + "file/a", locksPrefix + "file/b"}

// A run is one cluster and what is done to it.
type run struct {
	settings
	dir     string
	port    int // the first, on the loopback
	net     *network
	ca      *authority
	tls     *tlsfiles.Set
	pg      *pgtest.Cluster
	db      *sql.DB
	servers []*server
	clients []*client
	watcher *watcher
	began   int64

	mu      sync.Mutex
	history *history
	tail    tail
	view    fileView
	strikes []strike
	judge   judge
	tells   string // of the servers' logs

	cabling sync.Mutex // one fault at a time has cables
}

// observeEvery is how often the clients' notes and the files are read.
const observeEvery = 100 * time.Millisecond

// newRun starts everything. After an error the caller closes what there is.
func newRun(ctx context.Context, s settings) (r *run, err error) {
	r = &run{settings: s, history: newHistory()}
	if r.dir, err = os.MkdirTemp("", s.prefix); err != nil {
		return r, err
	}
	for _, d := range []string{"notes", "ledger", "certs"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o755); err != nil {
			return r, err
		}
	}
	r.tail = tail{dir: filepath.Join(r.dir, "notes"), at: map[string]int64{}}
	r.view = fileView{dir: filepath.Join(r.dir, "ledger"), seen: map[string]map[int64]entry{}}
	if err := r.openLedger(ctx); err != nil {
		return r, err
	}
	var names []string
	for i := range s.servers {
		names = append(names, fmt.Sprint("n", i+1))
	}
	for i := range s.clients {
		names = append(names, fmt.Sprint("c", i+1))
	}
	if r.net, err = newNetwork(s.prefix, s.real, names); err != nil {
		return r, err
	}
	if r.ca, err = newAuthority(filepath.Join(r.dir, "certs")); err != nil {
		return r, err
	}
	if err := r.openTLS("hub"); err != nil {
		return r, err
	}
	return r, r.populate(ctx)
}

// populate starts servers, watcher and clients.
func (r *run) populate(ctx context.Context) (err error) {
	r.port = 20000 + rand.IntN(6000)*2
	if err := r.newServers(r.net.sites[:r.settings.servers]); err != nil {
		return err
	}
	if err := r.mount(); err != nil {
		return err
	}
	for _, v := range r.servers {
		if err := v.begin(); err != nil {
			return err
		}
	}
	if err := r.ready(ctx, time.Minute); err != nil {
		return err
	}
	if r.watcher, err = r.newWatcher(ctx); err != nil {
		return err
	}
	for _, s := range r.net.sites[r.settings.servers:] {
		c := &client{site: s}
		if err := r.ca.issue(s.name, s.name, s.ip, 24*time.Hour); err != nil {
			return err
		}
		r.clients = append(r.clients, c)
		if err := r.begin(c); err != nil {
			return err
		}
	}
	r.began = now()
	return nil
}

// openLedger starts PostgreSQL and makes the tables.
func (r *run) openLedger(ctx context.Context) (err error) {
	if r.pg, err = pgtest.Start(); err != nil {
		return err
	}
	if err := r.mark(); err != nil {
		return err
	}
	if r.db, err = sql.Open("pgx", r.pg.DSN("postgres")); err != nil {
		return err
	}
	if _, err := r.db.ExecContext(ctx, ledgerTables); err != nil {
		return err
	}
	for _, lock := range locks {
		if _, err := r.db.ExecContext(ctx, `INSERT INTO head VALUES ($1, 0)`, lock); err != nil {
			return err
		}
	}
	return nil
}

// A client is one client process.
type client struct {
	*site
	mu      sync.Mutex
	claimed bool
	life    int // how often it was started
	p       *process
}

func (c *client) claim() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.claimed
	c.claimed = true
	return !was
}

func (c *client) free() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claimed = false
}

func (c *client) process() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.p
}

// begin starts a client anew.
func (r *run) begin(c *client) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	name := fmt.Sprintf("%s.%d", c.name, c.life)
	spec, err := json.Marshal(workerSpec{
		Name: name, Notes: filepath.Join(r.dir, "notes", name+".jsonl"), Endpoints: r.endpoints(), Certs: r.ca.dir, Site: c.name,
		DSN: r.pg.DSN("postgres"), Dir: filepath.Join(r.dir, "ledger"), Locks: locks, TTL: ttl, Gated: r.gated, Seed: rand.Uint64(),
		AcquireTimeout: 10 * ttl, Last: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c.p, err = start(c.ns, filepath.Join(r.dir, name+".log"), self, "worker", string(spec))
	return err
}

// endpoints are the servers' ports for clients.
func (r *run) endpoints() string {
	text := ""
	for _, v := range r.servers {
		text += "," + v.addr
	}
	return text[1:]
}

// observe reads what the clients note and what the files hold, until ctx ends.
func (r *run) observe(ctx context.Context) {
	for pause(ctx, observeEvery) {
		r.look()
	}
}

// look does it once.
func (r *run) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.tail.read(r.history); err != nil {
		r.judge.object("notes", "%v", err)
	}
	if err := r.view.look(locks); err != nil {
		r.judge.object("ledger", "%v", err)
	}
	for _, v := range r.servers {
		if p := v.process(); !p.running() && !v.isClaimed() {
			r.judge.object("processes", "server %s ended by itself: %s", v.name, lastLines(p.said))
			if err := v.begin(); err != nil {
				r.judge.object("processes", "%v", err)
			}
		}
	}
}

func (v *server) isClaimed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.claimed
}

// lastLines is the end of a file, for a message.
func lastLines(name string) string {
	text, _ := os.ReadFile(name)
	return string(text[max(0, len(text)-2000):])
}

// served waits until every task had a grant after an instant, and every server
// is ready.
func (r *run) served(ctx context.Context, since int64, patience time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var took int64
	for {
		late := ""
		took = 0
		r.mu.Lock()
		for _, c := range r.clients {
			for i := range locks {
				name := fmt.Sprintf("%s/%d", c.name, i)
				at := r.history.latest[name]
				if at <= since {
					late += " " + name
				}
				took = max(took, at-since)
			}
		}
		r.mu.Unlock()
		if late == "" {
			break
		}
		if !pause(ctx, observeEvery) {
			return 0, fmt.Errorf("without a grant for %v:%s", patience, late)
		}
	}
	return time.Duration(took), r.ready(ctx, patience)
}

// close ends and removes everything.
func (r *run) close() error {
	var all error
	if r.watcher != nil {
		r.watcher.stop()
		<-r.watcher.done
	}
	for _, c := range r.clients {
		if p := c.process(); p != nil {
			all = errors.Join(all, p.end(9, time.Minute))
		}
	}
	for _, v := range r.servers {
		if p := v.process(); p != nil {
			all = errors.Join(all, p.end(9, time.Minute))
		}
	}
	if r.db != nil {
		all = errors.Join(all, r.db.Close())
	}
	if r.pg != nil {
		all = errors.Join(all, r.pg.Stop())
	}
	if r.net != nil {
		all = errors.Join(all, r.net.close())
	}
	return errors.Join(all, unmountBelow(r.dir))
}
