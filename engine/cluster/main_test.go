package cluster

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"holdfast/server"
)

// The environment variables that make this test binary a server process.
const (
	envDir    = "HOLDFAST_TEST_SERVER_DIR"
	envListen = "HOLDFAST_TEST_SERVER_LISTEN"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		os.Exit(serveProcess(dir, os.Getenv(envListen)))
	}
	// These tests wait for time to pass far more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// serveProcess is a server process: it prints its address, and ends with its
// standard input or on SIGTERM.
func serveProcess(dir, listen string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := server.Start(ctx, server.Config{Listen: listen, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.Addr())
	go func() { _, _ = os.Stdin.Read(make([]byte, 1)); stop() }()
	<-ctx.Done()
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.Stop(end); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a server in a process of its own, which can be killed and started
// again on the same data and address.
type process struct {
	t    testing.TB
	dir  string
	addr string

	mu  sync.Mutex
	cmd *exec.Cmd
	in  interface{ Close() error }
}

// startProcess starts a server process. Its data is below the temporary
// directory, which should be a real disk for numbers to mean something.
func startProcess(t testing.TB) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), addr: "127.0.0.1:0"}
	p.start()
	t.Cleanup(p.kill)
	return p
}

func (p *process) start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+p.dir, envListen+"="+p.addr)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		p.t.Fatalf("the server process did not start: %v", err)
	}
	p.mu.Lock()
	p.addr, p.cmd, p.in = strings.TrimSpace(addr), cmd, in
	p.mu.Unlock()
}

// kill is kill -9.
func (p *process) kill() {
	p.mu.Lock()
	cmd := p.cmd
	p.cmd = nil
	p.mu.Unlock()
	if cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

// service is a server in this process, which can be stopped and started again
// on the same data and address.
type service struct {
	t    testing.TB
	dir  string
	addr string
	reg  *prometheus.Registry // of the server that runs
	*server.Server
}

func startService(t testing.TB) *service {
	t.Helper()
	s := &service{t: t, dir: memoryDir(t), addr: "127.0.0.1:0"}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// memoryDir is a directory in memory, where there is such a thing: leases of a
// second should not depend on how busy the disk is just now.
func memoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (s *service) start() {
	s.t.Helper()
	s.reg = prometheus.NewRegistry()
	srv, err := server.Start(context.Background(), server.Config{
		Listen: s.addr, Dir: s.dir, Logger: slog.New(slog.DiscardHandler), Registry: s.reg,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Server, s.addr = srv, srv.Addr()
}

func (s *service) stop() {
	if s.Server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Server.Stop(ctx); err != nil {
		s.t.Errorf("stop: %v", err)
	}
	s.Server = nil
}

// counter is the value of one of the server's counters, by the end of its name.
func (s *service) counter(name string) (sum float64) {
	s.t.Helper()
	families, err := s.reg.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasSuffix(f.GetName(), name) {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// dial makes a client of addr that ends with the test.
func dial(t testing.TB, addr string, o *Options) *Client {
	t.Helper()
	c, err := Dial(context.Background(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// deadAddr is an address where nothing listens.
func deadAddr(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
