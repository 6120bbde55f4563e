package pgtest

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// patience is how long a cluster may take to start and to stop.
const patience = 2 * time.Minute

// A Cluster is one running PostgreSQL server.
type Cluster struct {
	dir     string // data in data/, the socket in the directory itself
	port    int
	options []string
	account account
	server  *exec.Cmd
	log     *os.File
	ended   chan struct{} // closed when the server was waited for
}

// Start makes a cluster and starts it. Each option is a server setting
// ("max_connections=200"). The caller calls Stop.
func Start(options ...string) (c *Cluster, err error) {
	c = &Cluster{options: options}
	if c.account, err = serverAccount(); err != nil {
		return nil, err
	}
	initdb, err := program("initdb")
	if err != nil {
		return nil, err
	}
	if c.dir, err = directory(); err != nil {
		return nil, err
	}
	made := false
	defer func(dir string) {
		if !made {
			os.RemoveAll(dir)
		}
	}(c.dir)
	if err := c.account.own(c.dir); err != nil {
		return nil, err
	}
	if c.log, err = os.Create(filepath.Join(c.dir, "log")); err != nil {
		return nil, err
	}
	prepare := exec.Command(initdb, "--no-sync", "-A", "trust", "-U", "postgres", "--locale=C", "-E", "UTF8", "-D", c.data())
	prepare.SysProcAttr = c.account.attributes()
	prepare.Dir = c.dir
	if out, err := prepare.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	if err := c.Run(); err != nil {
		return nil, err
	}
	made = true
	return c, nil
}

// directory makes the directory: in memory where there is such a thing, and
// with a short path, since a socket's may have a hundred bytes only.
func directory() (string, error) {
	dir, err := os.MkdirTemp("/dev/shm", "pgtest-")
	if err != nil {
		dir, err = os.MkdirTemp("", "pgtest-")
	}
	return dir, err
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// program finds one of PostgreSQL's programs.
func program(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("pgtest: there is no %s: install PostgreSQL (Debian: apt-get install postgresql)", name)
	}
	return found[len(found)-1], nil
}

// Run starts the server of a cluster that does not run, and waits until it
// answers. A port may be taken by somebody else in the last moment: then it
// takes another.
func (c *Cluster) Run() error {
	postgres, err := program("postgres")
	if err != nil {
		return err
	}
	for range 5 {
		if c.port, err = freePort(); err != nil {
			return err
		}
		if err = c.run(postgres); err == nil {
			return nil
		}
	}
	return err
}

func (c *Cluster) run(postgres string) error {
	args := []string{"-D", c.data(), "-p", strconv.Itoa(c.port), "-k", c.dir, "-c", "listen_addresses=127.0.0.1",
		"-c", "fsync=off", "-c", "max_connections=100", "-c", "shared_buffers=16MB", "-c", "autovacuum_naptime=1h"}
	for _, o := range c.options {
		args = append(args, "-c", o)
	}
	c.server = exec.Command(postgres, args...)
	c.server.SysProcAttr = c.account.attributes()
	c.server.Dir = c.dir
	c.server.Stdout, c.server.Stderr = c.log, c.log
	c.ended = make(chan struct{})
	started := make(chan error)
	server, ended := c.server, c.ended
	go func() {
		// The parent-death signal comes when this thread ends, so it stays.
		runtime.LockOSThread()
		err := server.Start()
		started <- err
		if err == nil {
			_ = server.Wait()
			close(ended)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	return c.awaitReady()
}

func (c *Cluster) awaitReady() error {
	db, err := sql.Open("pgx", c.DSN("postgres"))
	if err != nil {
		return err
	}
	defer db.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case <-c.ended:
			text, _ := os.ReadFile(c.log.Name())
			return fmt.Errorf("pgtest: the server ended at once:\n%s", tail(text))
		case <-ctx.Done():
			return fmt.Errorf("pgtest: the server does not answer: %w", err)
		case <-again.C:
		}
	}
}

func tail(text []byte) []byte {
	const most = 4000
	return bytes.ToValidUTF8(text[max(0, len(text)-most):], nil)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// DSN returns the address of a database, over the server's socket.
func (c *Cluster) DSN(database string) string {
	return fmt.Sprintf("postgres://postgres@/%s?host=%s&port=%d", url.PathEscape(database), url.QueryEscape(c.dir), c.port)
}

// TCP returns the address of a database, over the loopback.
func (c *Cluster) TCP(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s", c.port, url.PathEscape(database))
}

// Port returns the server's port, on the loopback.
func (c *Cluster) Port() int { return c.port }

// Log returns what the server wrote so far.
func (c *Cluster) Log() string {
	text, err := os.ReadFile(c.log.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// End ends the server without a checkpoint, as a crash would, and keeps the
// data; Run starts it again.
func (c *Cluster) End() error { return c.end(syscall.SIGQUIT) }

func (c *Cluster) end(sig syscall.Signal) error {
	_ = c.server.Process.Signal(sig) // it may have ended already
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.ended:
		return nil
	case <-timer.C:
		return errors.New("pgtest: the server does not end")
	}
}

// RunAsStandby starts the server of a cluster that does not run as a standby,
// which can be read and not written.
func (c *Cluster) RunAsStandby() error {
	signal := filepath.Join(c.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		return err
	}
	if err := c.account.own(signal); err != nil {
		return err
	}
	return c.Run()
}

// Stop ends the server and removes everything.
func (c *Cluster) Stop() error {
	err := c.end(syscall.SIGQUIT)
	return errors.Join(err, c.log.Close(), os.RemoveAll(c.dir))
}
