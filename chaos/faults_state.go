//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"holdfast/engine/cluster"
)

// lowDisk leaves a server less space than it needs to go on, and later gives it
// back: it must hand over, go on living, and return by itself.
func lowDisk(ctx context.Context, b *blow) error {
	v, err := b.one(func(v *server) bool { return v == b.small() })
	if err != nil {
		return err
	}
	err = v.fill(uint64(1+b.rng.IntN(40)) << 20)
	if err == nil {
		pause(ctx, b.between(ttl, 5*ttl))
	}
	return errors.Join(err, os.Remove(v.ballast()))
}

// fullDisk leaves a server nothing at all, kills it, and starts it: it may refuse
// to start while the disk is full, and must be well once there is space.
func fullDisk(ctx context.Context, b *blow) error {
	v, err := b.one(func(v *server) bool { return v == b.small() })
	if err != nil {
		return err
	}
	if err := v.fill(0); err != nil {
		return err
	}
	pause(ctx, b.between(ttl/2, 2*ttl))
	v.kill() // unless the full disk has ended it
	err = v.begin()
	pause(ctx, b.between(ttl/2, 2*ttl))
	err = errors.Join(err, os.Remove(v.ballast()))
	for end := now() + int64(10*time.Second); now() < end; pause(ctx, observeEvery) {
		if !v.process().running() {
			err = errors.Join(err, v.begin())
		}
		if st, asked := b.status(ctx, v); asked == nil && st.Ready {
			break
		}
	}
	return err
}

// lagging kills a server, has the others write more than they keep in their
// logs, and kills it again and again while it is sent a snapshot.
func lagging(ctx context.Context, b *blow) error {
	lead := b.leader(ctx)
	if lead == nil {
		return errTaken
	}
	v, err := b.one(func(v *server) bool { return v != lead })
	if err != nil {
		return err
	}
	st, err := b.status(ctx, v)
	if err != nil {
		return errTaken
	}
	v.kill()
	err = b.outrun(ctx, st.applied+outOfReach)
	for range 1 + b.rng.IntN(4) {
		err = errors.Join(err, v.begin())
		pause(ctx, b.between(50*time.Millisecond, 1200*time.Millisecond))
		v.kill()
	}
	return errors.Join(err, v.begin())
}

// outrun writes values until the leader has applied an entry. Who writes them
// is as good as any client; others may break things meanwhile, so it gives up
// after a while without harm.
func (b *blow) outrun(ctx context.Context, entry uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := cluster.Dial(ctx, b.endpoints(), &cluster.Options{Label: "filler", TLSNow: b.tls.Client, Dialer: b.net.dial})
	if err != nil {
		return nil
	}
	defer c.Close(context.Background())
	writing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	for w := range 16 {
		own := rand.New(rand.NewPCG(b.rng.Uint64(), uint64(w)))
		group.Go(func() {
			value := make([]byte, 3000)
			for i := 0; writing.Err() == nil; i++ {
				for j := range value {
					value[j] = byte(own.Uint32())
				}
				_, _ = c.Put(writing, fmt.Sprintf("filler/%d/%d", w, i%40), value, cluster.PutOptions{})
			}
		})
	}
	for pause(ctx, 50*time.Millisecond) {
		if lead := b.leader(ctx); lead != nil {
			if st, err := b.status(ctx, lead); err == nil && st.applied > entry {
				break
			}
		}
	}
	stop()
	group.Wait()
	return nil
}

// expired gives a server certificates that soon expire, has all its lines made
// anew afterwards, and then gives it good ones again.
func expired(ctx context.Context, b *blow) error {
	v, err := b.any()
	if err != nil {
		return err
	}
	all := errors.Join(b.ca.issue("port-"+v.name, v.name, v.ip, ttl), b.ca.issue("peer-"+v.name, v.name, v.ip, ttl))
	pause(ctx, ttl+b.between(ttl/4, 2*ttl))
	if b.real {
		if undo, err := b.net.impose(resetAll(v)); err == nil {
			pause(ctx, 300*time.Millisecond)
			all = errors.Join(all, undo())
		}
	} else {
		v.kill()
		all = errors.Join(all, v.begin())
	}
	pause(ctx, b.between(ttl/2, 2*ttl))
	return errors.Join(all, b.ca.issue("port-"+v.name, v.name, v.ip, 24*time.Hour), b.ca.issue("peer-"+v.name, v.name, v.ip, 24*time.Hour))
}

// renewed replaces the certificates of all servers and of a client while all is
// well.
func renewed(ctx context.Context, b *blow) error {
	var all error
	for _, v := range b.servers {
		all = errors.Join(all, b.ca.issue("port-"+v.name, v.name, v.ip, 24*time.Hour), b.ca.issue("peer-"+v.name, v.name, v.ip, 24*time.Hour))
	}
	c := b.clients[b.rng.IntN(len(b.clients))]
	all = errors.Join(all, b.ca.issue(c.name, c.name, c.ip, 24*time.Hour))
	pause(ctx, b.between(ttl/4, ttl))
	return all
}
