package cluster

import (
	"crypto/tls"
	"testing"

	"holdfast/driver"
)

// TestOperatorTokenStaysOnTheMachine: without TLS a token is not sent to any
// other machine, not even where a server says that the leader is.
func TestOperatorTokenStaysOnTheMachine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addr  string
		token string
		tls   bool
		ok    bool // for Dial
		shown bool // on the connection
	}{
		{"127.0.0.1:1", "secret", false, true, true}, {"[::1]:1", "secret", false, true, true}, {"localhost:1", "secret", false, true, true},
		{"10.0.0.1:1", "secret", false, false, false}, {"locks.example:1", "secret", false, false, false}, {"localhost.example:1", "secret", false, false, false},
		{"10.0.0.1:1", "secret", true, true, true}, {"10.0.0.1:1", "", false, true, false}, {"127.0.0.1:1", "a b", false, false, true},
		{"127.0.0.1:1", "a\nb", true, false, true},
	} {
		o := &Options{OperatorToken: c.token}
		if c.tls {
			o.TLS = &tls.Config{}
		}
		err := checkToken(o, []string{"127.0.0.1:2", c.addr})
		if (err == nil) != c.ok || err != nil && driver.KindOf(err) != driver.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
		if shown := len(presenting(c.addr, c.tls, c.token)) > 0; shown != c.shown {
			t.Errorf("%+v: shown %v", c, shown)
		}
	}
}
