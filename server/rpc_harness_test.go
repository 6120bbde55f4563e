package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"holdfast/driver"
	"holdfast/wire"
	"holdfast/wire/holdfastv1"
	"holdfast/wire/holdfastv1/holdfastv1connect"
)

// patience is how long a test waits for what should happen soon.
const patience = 20 * time.Second

// logBuffer is what a server logged, one JSON object a line.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// lines are the records whose text contains all of parts.
func (b *logBuffer) lines(parts ...string) (found []string) {
next:
	for line := range strings.Lines(b.String()) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// world is a running server and what a test needs beside it.
type world struct {
	*Server
	t   *testing.T
	log *logBuffer
	rpc holdfastv1connect.LockServiceClient
}

// h2c is an HTTP client that speaks HTTP/2 without TLS.
func h2c(t *testing.T) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// start starts a server on a free port, with a quick tick; change may alter
// its configuration.
func start(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	log := &logBuffer{}
	cfg := Config{
		Listen: "127.0.0.1:0", Dir: t.TempDir(), Tick: 20 * time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, c := range change {
		c(&cfg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Server: s, t: t, log: log}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Logf("the server's log:\n%s", log)
		}
	})
	// After the server's: connections are closed before it stops.
	w.rpc = holdfastv1connect.NewLockServiceClient(h2c(t), "http://"+s.Addr(), wire.Limits())
	w.until("ready", func() bool { ok, _ := s.node.Ready(); return ok })
	return w
}

// until polls for something that should happen soon.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			w.t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// url is an address of the server.
func (w *world) url(path string) string { return "http://" + w.Addr() + path }

// get fetches a page.
func (w *world) get(path string) (int, string) {
	w.t.Helper()
	res, err := http.Get(w.url(path))
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// json sends a body to a method as curl would, and returns status and answer.
func (w *world) json(method, body string) (int, string) {
	w.t.Helper()
	res, err := http.Post(w.url("/holdfast.v1.LockService/"+method), "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(out)
}

// A caller calls a unary method over one of the protocols.
type caller func(ctx context.Context, method string, in, out proto.Message) *driver.Error

// callers are all protocols that the port speaks.
func (w *world) callers() map[string]caller {
	cc, err := grpc.NewClient(w.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { cc.Close() })
	over := func(opts ...connect.ClientOption) caller {
		hc := h2c(w.t)
		return func(ctx context.Context, method string, in, out proto.Message) *driver.Error {
			return connectCall(ctx, hc, w.url("/holdfast.v1.LockService/"+method), in, out, opts...)
		}
	}
	return map[string]caller{
		"json over HTTP/1.1": func(ctx context.Context, method string, in, out proto.Message) *driver.Error {
			return w.jsonCall(ctx, method, in, out)
		},
		"grpc-go": func(ctx context.Context, method string, in, out proto.Message) *driver.Error {
			return grpcError(cc.Invoke(ctx, "/holdfast.v1.LockService/"+method, in, out))
		},
		"connect":  over(),
		"grpc-web": over(connect.WithGRPCWeb()),
	}
}

// raw carries any message through connect's generic client.
type raw struct{ data []byte }

type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(m any) ([]byte, error) {
	if r, ok := m.(*raw); ok {
		return r.data, nil
	}
	return proto.Marshal(m.(proto.Message))
}

func (rawCodec) Unmarshal(data []byte, m any) error {
	if r, ok := m.(*raw); ok {
		r.data = bytes.Clone(data)
		return nil
	}
	return proto.Unmarshal(data, m.(proto.Message))
}

func connectCall(ctx context.Context, hc *http.Client, url string, in, out proto.Message, opts ...connect.ClientOption) *driver.Error {
	data, err := proto.Marshal(in)
	if err != nil {
		return wire.FromError(err)
	}
	c := connect.NewClient[raw, raw](hc, url, append(opts, connect.WithCodec(rawCodec{}))...)
	res, err := c.CallUnary(ctx, connect.NewRequest(&raw{data}))
	if err != nil {
		return wire.FromError(err)
	}
	return wire.FromError(proto.Unmarshal(res.Msg.data, out))
}

func grpcError(err error) *driver.Error {
	if err == nil {
		return nil
	}
	st, _ := status.FromError(err)
	for _, d := range st.Details() {
		if info, ok := d.(*holdfastv1.ErrorInfo); ok {
			return wire.FromErrorInfo(info)
		}
	}
	return &driver.Error{Kind: driver.Internal, Msg: "no detail: " + err.Error(), Err: err}
}

func (w *world) jsonCall(ctx context.Context, method string, in, out proto.Message) *driver.Error {
	body, err := wire.MarshalJSON(in)
	if err != nil {
		return wire.FromError(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url("/holdfast.v1.LockService/"+method), bytes.NewReader(body))
	if err != nil {
		return wire.FromError(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return wire.FromError(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return wire.FromError(err)
	}
	if res.StatusCode == http.StatusOK {
		return wire.FromError(wire.UnmarshalJSON(data, out))
	}
	return jsonError(data)
}

// jsonError reads the error that a call answered in JSON.
func jsonError(data []byte) *driver.Error {
	var e struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if err := json.Unmarshal(data, &e); err != nil || len(e.Details) != 1 {
		return &driver.Error{Kind: driver.Internal, Msg: "no detail: " + string(data)}
	}
	value, err := base64.RawStdEncoding.DecodeString(e.Details[0].Value)
	info := &holdfastv1.ErrorInfo{}
	if err == nil {
		err = proto.Unmarshal(value, info)
	}
	if err != nil {
		return &driver.Error{Kind: driver.Internal, Msg: "bad detail: " + string(data)}
	}
	return wire.FromErrorInfo(info)
}

// each runs a test over every protocol, on one server.
func each(t *testing.T, test func(t *testing.T, w *world, call caller)) {
	w := start(t)
	for name, call := range w.callers() {
		t.Run(name, func(t *testing.T) {
			in := *w
			in.t = t
			test(t, &in, call)
		})
	}
}

// must fails the test when a call fails.
func must[T any](w *world, m *T, err error) *T {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// client is one detached session.
type client struct {
	w      *world
	ref    *holdfastv1.SessionRef
	secret wire.Secret
	n      uint64
}

// open opens a detached session.
func (w *world) open(label string, ttl time.Duration) *client {
	w.t.Helper()
	c := &client{w: w, secret: drawSecret()}
	res, err := w.rpc.OpenSession(w.t.Context(), connect.NewRequest(&holdfastv1.OpenSessionRequest{
		Secret: c.secret.String(), Label: label, Host: "host-of-" + label, TtlMs: wire.Millis(ttl), Instance: instance(label),
	}))
	must(w, res, err)
	c.ref = &holdfastv1.SessionRef{Id: res.Msg.GetSessionId(), Secret: c.secret.String()}
	return c
}

func drawSecret() (s wire.Secret) {
	rand.Read(s[:])
	return s
}

// instance is 16 bytes that stand for a client process.
func instance(name string) []byte { return fmt.Appendf(nil, "%-16.16s", name) }

// next names the client's next request on lane 0.
func (c *client) next() *holdfastv1.RequestID {
	c.n++
	return &holdfastv1.RequestID{N: c.n}
}

// acquire waits for a lock without limit.
func (c *client) acquire(lock string) *holdfastv1.Grant {
	c.w.t.Helper()
	res, err := c.w.rpc.Acquire(c.w.t.Context(), connect.NewRequest(&holdfastv1.AcquireRequest{
		Session: c.ref, Request: c.next(), Lock: lock, WaitForever: true,
	}))
	return must(c.w, res, err).Msg.GetGrant()
}

// ask is an acquire whose error is of interest.
func (c *client) ask(m *holdfastv1.AcquireRequest) (*holdfastv1.Grant, *driver.Error) {
	m.Session = c.ref
	if m.Request == nil {
		m.Request = c.next()
	}
	res, err := c.w.rpc.Acquire(c.w.t.Context(), connect.NewRequest(m))
	if err != nil {
		return nil, wire.FromError(err)
	}
	return res.Msg.GetGrant(), nil
}

func (c *client) release(g *holdfastv1.Grant) {
	c.w.t.Helper()
	res, err := c.w.rpc.Release(c.w.t.Context(), connect.NewRequest(&holdfastv1.ReleaseRequest{Session: c.ref, Grant: g.GetNumber()}))
	must(c.w, res, err)
}

func (c *client) keepAlive() (*holdfastv1.KeepAliveResponse, *driver.Error) {
	res, err := c.w.rpc.KeepAlive(c.w.t.Context(), connect.NewRequest(&holdfastv1.KeepAliveRequest{Session: c.ref}))
	if err != nil {
		return nil, wire.FromError(err)
	}
	return res.Msg, nil
}

// lock reads a lock; nil if it is free.
func (w *world) lock(name string) *holdfastv1.Lock {
	w.t.Helper()
	res, err := w.rpc.GetLock(w.t.Context(), connect.NewRequest(&holdfastv1.GetLockRequest{Lock: name}))
	if e := wire.FromError(err); e != nil {
		if e.Kind != driver.NotFound {
			w.t.Fatal(e)
		}
		return nil
	}
	return res.Msg.GetLock()
}

// waiters waits until so many requests wait for a lock.
func (w *world) waiters(lock string, n uint32) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d waiters for %q", n, lock), func() bool { return w.lock(lock).GetWaiters() == n })
}
