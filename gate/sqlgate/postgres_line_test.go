package sqlgate_test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"holdfast/internal/pgtest"
)

// line is a TCP line to the server. It can be cut: the server gets what was
// sent, and its answer is lost. It can be stalled: nobody takes what the server
// sends, and nothing says why.
type line struct {
	net.Listener
	dsn         string
	cut, refuse atomic.Bool
	door        sync.RWMutex // held to stall
}

// newLine makes a line to the shop's database.
func (s *pgShop) newLine() *line {
	s.T.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { l.Close() })
	var name string
	if err := s.db.QueryRow(`SELECT current_database()`).Scan(&name); err != nil {
		s.Fatal(err)
	}
	p := &line{Listener: l, dsn: fmt.Sprintf("postgres://postgres@%s/%s?search_path=%s", l.Addr(), name, s.schema)}
	to := fmt.Sprintf("127.0.0.1:%d", pgtest.Shared(s.T).Port())
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if p.refuse.Load() {
				client.Close()
				continue
			}
			go p.carry(client, to)
		}
	}()
	return p
}

func (p *line) stall() { p.door.Lock() }
func (p *line) flow()  { p.door.Unlock() }

func (p *line) carry(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		buffer := make([]byte, 32<<10)
		for {
			n, err := client.Read(buffer)
			if err == nil {
				_, err = server.Write(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := server.Read(buffer)
		p.door.RLock()
		p.door.RUnlock() //lint:ignore SA2001 it waits while the line is stalled
		if err != nil || p.cut.Load() {
			return
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			return
		}
	}
}
