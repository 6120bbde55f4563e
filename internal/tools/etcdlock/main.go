// Command etcdlock takes and releases locks in etcd for whoever writes to its
// standard input. make bench runs it beside Holdfast's own client, so that
// both services are measured by the same loop (bench/gap), while nothing of
// etcd's client becomes a dependency of the product.
//
// Each line asks for one acquire and release:
//
//	ID MILLISECONDS LOCK
//
// and is answered by "ID granted" once the lock is held, and by "ID done", or
// "ID error TEXT", at its end. Lines may be under way at the same time. All
// locks belong to one session on one client, as those of one program do. It
// ends when its standard input ends.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func main() {
	endpoints := flag.String("endpoints", "", "addresses of all members, host:port, separated by commas")
	ttl := flag.Int("ttl", 15, "time to live of the session, in seconds")
	flag.Parse()
	if err := run(strings.Split(*endpoints, ","), *ttl, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "etcdlock:", err)
		os.Exit(1)
	}
}

// run answers requests until in ends.
func run(endpoints []string, ttl int, in io.Reader, out io.Writer) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer session.Close()
	a := &answers{out: out}
	a.say("ready")
	var wg sync.WaitGroup
	defer wg.Wait()
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		id, rest, _ := strings.Cut(lines.Text(), " ")
		millis, lock, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(millis)
		if err != nil || lock == "" {
			return fmt.Errorf("line %q: want an ID, milliseconds and a lock", lines.Text())
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(client.Ctx(), time.Duration(n)*time.Millisecond)
			defer cancel()
			if err := once(ctx, session, lock, func() { a.say(id + " granted") }); err != nil {
				a.say(id + " error " + strings.ReplaceAll(err.Error(), "\n", " "))
				return
			}
			a.say(id + " done")
		})
	}
	return lines.Err()
}

// once takes a lock, and releases it. A lock whose release failed still has
// its key, under the session's lease, so that the next take finds it held by
// itself.
func once(ctx context.Context, session *concurrency.Session, lock string, granted func()) error {
	m := concurrency.NewMutex(session, lock)
	if err := m.Lock(ctx); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	granted()
	if err := m.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

// answers writes whole lines.
type answers struct {
	mu  sync.Mutex
	out io.Writer
}

func (a *answers) say(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = io.WriteString(a.out, line+"\n") // nobody to tell: the reader is gone
}
