//go:build !linux

package server

import "net"

// unread cannot be asked here: that a reader waits must do.
func unread(net.Conn) int { return 0 }
