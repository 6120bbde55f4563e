//go:build linux

package main

import (
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A cable takes the place of a site's plug in the bridge: it copies frames
// between the plug and another port of the bridge, late, in another order, and
// some of them twice. It exists while such a fault lasts; else the kernel
// carries everything.
type cable struct {
	ends  [2]*os.File // packet sockets: the site's plug, the port in the bridge
	index [2]int
	least time.Duration // each frame is late by least to most
	most  time.Duration
	twice int // of 100 frames, so many come twice
	group sync.WaitGroup
	stop  chan struct{}
}

// layCable puts one into the line of a site. undo puts the plug back.
func (n *network) layCable(s *site, least, most time.Duration, twice int) (undo func() error, err error) {
	plug, port, far := "p-"+s.name, "b-"+s.name, "w-"+s.name
	back := func() error {
		return errors.Join(ip("-n "+n.hub+" link set dev "+plug+" promisc off"), ip("-n "+n.hub+" link set dev "+plug+" master sw0"), ip("-n "+n.hub+" link del dev "+port))
	}
	if err := ip(in(n.hub, []string{
		"link add name " + port + " type veth peer name " + far, "link set dev " + port + " master sw0", "link set dev " + port + " up",
		"link set dev " + far + " up", "link set dev " + far + " promisc on", "link set dev " + plug + " promisc on", "link set dev " + plug + " nomaster",
	})...); err != nil {
		return nil, errors.Join(err, back())
	}
	c := &cable{least: least, most: most, twice: twice, stop: make(chan struct{})}
	for i, name := range []string{plug, far} {
		if c.ends[i], c.index[i], err = packetSocket(n.hub, name); err != nil {
			return nil, errors.Join(err, c.close(), back())
		}
	}
	c.group.Go(func() { c.carry(0, 1) })
	c.group.Go(func() { c.carry(1, 0) })
	return func() error { return errors.Join(c.close(), back()) }, nil
}

func (c *cable) close() error {
	close(c.stop)
	var all error
	for _, f := range c.ends {
		if f != nil {
			all = errors.Join(all, f.Close())
		}
	}
	c.group.Wait()
	return all
}

// packetSocket opens a socket for all frames of one device of the hub.
func packetSocket(ns, device string) (*os.File, int, error) {
	var f *os.File
	var index int
	err := within(ns, func() (err error) {
		f, index, err = openPackets(device)
		return err
	})
	return f, index, err
}

func openPackets(device string) (*os.File, int, error) {
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return nil, 0, err
	}
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return nil, 0, fmt.Errorf("packets of %s: %w", device, err)
	}
	if err := errors.Join(
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
	); err != nil {
		return nil, 0, errors.Join(fmt.Errorf("packets of %s: %w", device, err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), filepath.Join("packets", device)), dev.Index, nil
}

// A frame waits until it is due.
type frame struct {
	due  time.Time
	data []byte
}

type frames []frame

func (f frames) Len() int           { return len(f) }
func (f frames) Less(i, j int) bool { return f[i].due.Before(f[j].due) }
func (f frames) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *frames) Push(x any)        { *f = append(*f, x.(frame)) }
func (f *frames) Pop() any {
	old := *f
	last := old[len(old)-1]
	*f = old[:len(old)-1]
	return last
}

// carry takes frames from one end to the other until the cable is closed. Each
// is late by its own time, so they overtake each other.
func (c *cable) carry(from, to int) {
	came := make(chan frame, 1024)
	c.group.Go(func() {
		defer close(came)
		for {
			buf := make([]byte, 1<<16)
			n, err := c.ends[from].Read(buf)
			if err != nil {
				return
			}
			for range 1 + (rand.IntN(100)+c.twice)/100 {
				late := c.least + time.Duration(rand.Int64N(int64(c.most-c.least)+1))
				select {
				case came <- frame{time.Now().Add(late), buf[:n]}:
				case <-c.stop:
					return
				}
			}
		}
	})
	var waiting frames
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case f, ok := <-came:
			if !ok {
				return
			}
			heap.Push(&waiting, f)
		case <-timer.C:
		}
		for len(waiting) > 0 && !waiting[0].due.After(time.Now()) {
			// A frame that cannot be sent is lost, as frames are.
			_, _ = c.ends[to].Write(heap.Pop(&waiting).(frame).data)
		}
		next := time.Hour
		if len(waiting) > 0 {
			next = time.Until(waiting[0].due)
		}
		timer.Reset(next)
	}
}

// plainFrames are what a site's stack is not to leave to the card: sums, and
// cutting to the size of a frame. Who copies frames cannot do it either.
var plainFrames = []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_STXCSUM}

// switchOff gives a device's driver commands of ethtool with the value 0.
func switchOff(device string, commands ...uint32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, c := range commands {
		value := struct{ cmd, data uint32 }{c, 0}
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			rest [16]byte
		}
		copy(request.name[:], device)
		request.data = unsafe.Pointer(&value)
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request))); errno != 0 {
			return fmt.Errorf("ethtool command %d of %s: %w", c, device, errno)
		}
		runtime.KeepAlive(&value)
	}
	return nil
}
