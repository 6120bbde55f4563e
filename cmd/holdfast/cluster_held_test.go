package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
)

// keptPrefix begins the names of all locks that nobody touches while things are
// done to the nodes.
const keptPrefix = "kept/"

// held is what must stay as it is while nodes come, go and die, and a load on
// other locks.
type held struct {
	p      *fleet
	began  time.Time
	env    []string
	load   *crash
	kept   []*holdfast.Grant // by the test's own sessions
	last   *holdfast.Grant   // that of them for which line waits
	line   *queue
	before picture
	end    string // the file for which the holder of kept/run waits
	holder *program
	others []*program
}

// keptTTL is that of all sessions. It is long, since a machine that also does
// other things may take a while to start five nodes, and no lease is good for
// longer than its TTL while nobody leads.
const keptTTL = 2 * time.Minute

// client makes a client of the cluster.
func (p *fleet) client(label string) *cluster.Client {
	t := p.t
	t.Helper()
	c, err := cluster.Dial(t.Context(), p.addresses(), &cluster.Options{TTL: keptTTL, Label: label})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	p.clients = append(p.clients, c)
	return c
}

// hangUp closes the clients at the end of a test, before its nodes are ended:
// without any that hear it, the end of each session would take its time.
func (p *fleet) hangUp() {
	var all sync.WaitGroup
	for _, c := range p.clients {
		all.Go(func() { _ = c.Close(context.Background()) })
	}
	all.Wait()
}

// hold starts clients: some that hold and publish, five that wait behind each
// other, a command and two that wait for it, and four that work.
func (p *fleet) hold(env []string) *held {
	t := p.t
	t.Helper()
	h := &held{p: p, began: time.Now(), env: env, load: newLoad(t, p.client("load"))}
	h.publish(p.client("owner"), p.client("reader"))
	h.line = newQueue(t, h.last.Lock())
	for i, shared := range []bool{false, true, true, false, true} {
		h.line.join(p.client(fmt.Sprint("waiter ", i+1)), shared)
	}
	h.end = filepath.Join(t.TempDir(), "end")
	h.holder = start(t, env, "run", "kept/run", "--ttl", keptTTL.String(), "--", "bash", "-c", untilFile, "x", h.end)
	waiting := func(n int) func() bool {
		return func() bool {
			l, err := h.load.client.Get(t.Context(), "kept/run", cluster.GetOptions{})
			return err == nil && len(l.Holders) == 1 && len(l.Queue) == n
		}
	}
	eventually(t, "the command's lock", waiting(0))
	for i := range 2 {
		h.others = append(h.others, start(t, env, "run", "kept/run", "--ttl", keptTTL.String(), "--", "true"))
		eventually(t, "a waiter", waiting(i+1))
	}
	for i := range 4 {
		h.load.wg.Go(func() { h.load.work(fmt.Sprintf("shared/%d", i/2)) })
	}
	h.load.progress(10)
	h.before = takePicture(t, h.load.client, keptPrefix)
	return h
}

// publish makes locks of every kind: with a value, shared, with permits,
// closed, with values bound to a session and to none.
func (h *held) publish(owner, reader *cluster.Client) {
	t := h.p.t
	t.Helper()
	acquire := func(c *cluster.Client, name string, o cluster.AcquireOptions) *holdfast.Grant {
		t.Helper()
		g, err := c.Acquire(t.Context(), name, o)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	put := func(name string, o cluster.PutOptions) {
		t.Helper()
		if _, err := owner.Put(t.Context(), name, []byte(name), o); err != nil {
			t.Fatal(err)
		}
	}
	once := acquire(reader, "kept/once", cluster.AcquireOptions{OncePer: time.Hour})
	if err := once.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*cluster.Client{owner, reader} {
		h.kept = append(h.kept,
			acquire(c, "kept/shared", cluster.AcquireOptions{Shared: true}),
			acquire(c, "kept/permits", cluster.AcquireOptions{Limit: 3}))
	}
	h.kept = append(h.kept, acquire(owner, "kept/value", cluster.AcquireOptions{Value: []byte("value")}))
	put("kept/note", cluster.PutOptions{})
	put("kept/bound", cluster.PutOptions{Bind: true})
	h.last = acquire(owner, "kept/line", cluster.AcquireOptions{MaxHold: time.Hour})
}

// check looks whether all is as it was, and goes on.
func (h *held) check(what string) {
	t := h.p.t
	t.Helper()
	h.load.progress(10)
	if changes := h.before.changes(takePicture(t, h.load.client, keptPrefix)); changes != "" {
		t.Errorf("%s, these have changed:\n%s", what, changes)
	}
	h.alive(what)
	h.alike(what)
	t.Logf("%5.1f s: %s", time.Since(h.began).Seconds(), what)
}

// alive looks at what the holders think.
func (h *held) alive(what string) {
	h.p.t.Helper()
	for _, g := range append(h.kept, h.last) {
		if err := g.Err(); err != nil {
			h.p.t.Errorf("%s: the holder of %s: %v", what, g.Lock(), err)
		}
	}
}

// alike compares the states of all nodes that run, as of one entry.
func (h *held) alike(what string) {
	t := h.p.t
	t.Helper()
	s := clusterStatus(t, h.env, "--hash")
	running, told := 0, 0
	for _, n := range h.p.nodes {
		if n.program != nil && !n.paused {
			running++
		}
	}
	for _, m := range s.Members {
		if m.StateHash != "" {
			told++
		}
	}
	if s.HashesEqual == nil || !*s.HashesEqual || told != running {
		t.Errorf("%s: of %d nodes that run %d tell their hash: %+v", what, running, told, s)
	}
}

// rest ends the load, and lets do something to a cluster in which nobody is
// granted anything: the last token is the same, too.
func (h *held) rest(what string, do func()) {
	t := h.p.t
	t.Helper()
	h.load.halt()
	h.load.stop = make(chan struct{}) // release closes it
	h.load.fails = make(chan error, 64)
	before := takePicture(t, h.load.client, keptPrefix)
	if high := h.load.acked.Load(); before.last < high {
		t.Errorf("the last token is %d, and %d was given out", before.last, high)
	}
	do()
	if changes := before.still().changes(takePicture(t, h.load.client, keptPrefix).still()); changes != "" {
		t.Errorf("%s, these have changed:\n%s", what, changes)
	}
	h.alive(what)
	h.p.equal()
}

// release ends the clients; each has got what it waited for, in its order.
func (h *held) release() {
	t := h.p.t
	t.Helper()
	h.load.halt()
	create(t, h.end)
	h.holder.expect(0)
	for _, w := range h.others {
		w.expect(0)
	}
	h.line.letGo()
	for _, g := range append(h.kept, h.last) {
		if err := g.Release(context.Background()); err != nil {
			t.Errorf("%s: %v", g.Lock(), err)
		}
	}
	h.line.ended()
	h.line.inOrder(h.last)
	h.p.equal()
	h.p.hangUp()
	t.Logf("%d grants acknowledged, highest token %d; %d lines of the picture kept", h.load.grants.Load(), h.load.acked.Load(), len(h.before.lines))
}
