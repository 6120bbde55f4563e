//go:build !linux

package pgtest

import "syscall"

// account is who the server runs as: this user.
type account struct{}

func serverAccount() (account, error) { return account{}, nil }

func (account) own(string) error { return nil }

func (account) attributes() *syscall.SysProcAttr { return nil }
