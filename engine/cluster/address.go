package cluster

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"holdfast/driver"
)

// maxEndpoints is how many servers one client may be told of.
const maxEndpoints = 64

// parseEndpoints reads "host:port,host:port,…".
func parseEndpoints(list string) ([]string, error) {
	var endpoints []string
	for part := range strings.SplitSeq(list, ",") {
		addr := strings.TrimSpace(part)
		if addr == "" {
			return nil, badAddress("server address %q is empty, or has an empty part: want host:port, or several separated by commas, for example 127.0.0.1:7433", list)
		}
		if err := checkEndpoint(addr); err != nil {
			return nil, badAddress("server address %q of %q: %v: want host:port, or several separated by commas, for example 127.0.0.1:7433", addr, list, err)
		}
		if slices.Contains(endpoints, addr) {
			return nil, badAddress("server address %q is listed twice in %q", addr, list)
		}
		endpoints = append(endpoints, addr)
	}
	if len(endpoints) > maxEndpoints {
		return nil, badAddress("%d server addresses: want at most %d", len(endpoints), maxEndpoints)
	}
	return endpoints, nil
}

func checkEndpoint(addr string) error {
	if addr == "" {
		return fmt.Errorf("is empty")
	}
	if scheme, _, ok := strings.Cut(addr, "://"); ok {
		return fmt.Errorf("has the scheme %q", scheme)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		if e, ok := err.(*net.AddrError); ok {
			return fmt.Errorf("%s", e.Err)
		}
		return err
	}
	if host == "" {
		return fmt.Errorf("has no host")
	}
	if strings.ContainsAny(host, "/@?# \t\r\n") {
		return fmt.Errorf("has a host with characters that no host name has")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("has port %q, not a number from 1 to 65535", port)
	}
	return nil
}

func badAddress(format string, args ...any) error {
	return invalid("", format, args...)
}

// invalid is the error of a request that the client refuses itself, because it
// can say better what is wrong. Nothing was sent.
func invalid(lock, format string, args ...any) *driver.Error {
	return &driver.Error{Kind: driver.Invalid, Outcome: driver.No, Lock: lock, Msg: fmt.Sprintf(format, args...)}
}
