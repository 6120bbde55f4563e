package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/text/unicode/norm"

	"holdfast/fence"
)

// durationValue is a flag whose errors say what a duration looks like and
// which ones are allowed.
type durationValue struct {
	d        *time.Duration
	min, max time.Duration // max 0: no limit
	set      bool
}

func (v *durationValue) String() string {
	if v.d == nil || *v.d == 0 {
		return ""
	}
	return v.d.String()
}

func (v *durationValue) Type() string { return "duration" }

func (v *durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a number with its unit, such as 500ms, 15s or 1h30m")
	}
	if d < v.min || (v.max > 0 && d > v.max) {
		if v.max > 0 {
			return fmt.Errorf("want %v to %v", v.min, v.max)
		}
		return fmt.Errorf("want at least %v", v.min)
	}
	*v.d, v.set = d, true
	return nil
}

// choiceValue is a flag with a closed set of values.
type choiceValue struct {
	s       *string
	allowed []string
}

func (v *choiceValue) String() string {
	if v.s == nil {
		return ""
	}
	return *v.s
}

func (v *choiceValue) Type() string { return strings.Join(v.allowed, "|") }

func (v *choiceValue) Set(s string) error {
	for _, a := range v.allowed {
		if a == s {
			*v.s = s
			return nil
		}
	}
	return fmt.Errorf("want one of: %s", strings.Join(v.allowed, ", "))
}

// intValue is a whole number in a range.
type intValue struct {
	n        *int
	min, max int
}

func (v *intValue) String() string {
	if v.n == nil {
		return "0"
	}
	return strconv.Itoa(*v.n)
}

func (v *intValue) Type() string { return "int" }

func (v *intValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < v.min || n > v.max {
		return fmt.Errorf("want a whole number from %d to %d", v.min, v.max)
	}
	*v.n = n
	return nil
}

// Formats of what a read command prints.
const (
	formatText = "text"
	formatJSON = "json"
)

// outputFlag adds -o to a command.
func outputFlag(cmd *cobra.Command) *string {
	format := formatText
	cmd.Flags().VarP(&choiceValue{&format, []string{formatText, formatJSON}}, "output", "o", "what to print")
	return &format
}

const (
	defaultServer  = "127.0.0.1:7433"
	serverVariable = "HOLDFAST_SERVER"
	maxServers     = 64
)

// serverFlag adds --server to a command and, below it, to its children.
func serverFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String("server", "", "`host:port,…` of the lock service (default $"+serverVariable+", else "+defaultServer+")")
	tlsClientFlags(cmd)
}

// serverList says which servers a command shall talk to, checked.
func serverList(cmd *cobra.Command) (string, error) {
	from, list := "--server", cmd.Flag("server").Value.String()
	if !cmd.Flag("server").Changed {
		from, list = serverVariable, os.Getenv(serverVariable)
		if list == "" {
			return defaultServer, nil
		}
	}
	addrs := strings.Split(list, ",")
	if len(addrs) > maxServers {
		return "", usagef("%s names %d servers: want 1 to %d", from, len(addrs), maxServers)
	}
	for i, a := range addrs {
		addrs[i] = strings.TrimSpace(a)
		if err := checkAddress(addrs[i], false); err != nil {
			return "", usagef("%s %q: %w", from, list, err)
		}
	}
	return strings.Join(addrs, ","), nil
}

// checkAddress accepts host:port. Port 0 is for listening only.
func checkAddress(addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || strings.ContainsFunc(host, func(r rune) bool { return isControl(r) || r == ' ' || r == '/' }) {
		return fmt.Errorf("%q is not an address: want host:port, such as 127.0.0.1:7433 or [::1]:7433", addr)
	}
	lowest := 1
	if listen {
		lowest = 0
	} else if host == "" {
		return fmt.Errorf("%q has no host: want host:port, such as 127.0.0.1:7433", addr)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < lowest || n > 65535 {
		return fmt.Errorf("%q: port %q is not allowed: want %d to 65535", addr, port, lowest)
	}
	return nil
}

// checkLockName refuses a name that no lock can have.
func checkLockName(name string) error {
	rule := fmt.Sprintf("want 1 to %d bytes of UTF-8 in Unicode normal form C (NFC), without control characters", fence.MaxLockName)
	switch err := fence.ValidateLockName(name); {
	case name == "":
		return usagef("lock name is empty: %s", rule)
	case len(name) > fence.MaxLockName:
		return usagef("lock name has %d bytes: %s", len(name), rule)
	case err != nil:
		return usagef("%s: %s", strings.TrimPrefix(err.Error(), fence.ErrMalformed.Error()+": "), rule)
	case !norm.NFC.IsNormalString(name):
		return usagef("lock name %s is not in normal form C: write it as %s; %s", strconv.QuoteToASCII(name), strconv.QuoteToASCII(norm.NFC.String(name)), rule)
	}
	return nil
}

// boolValue is a switch.
type boolValue struct{ b *bool }

// boolFlag adds a switch that is off by default.
func boolFlag(fs *pflag.FlagSet, b *bool, name, usage string) {
	fs.VarPF(&boolValue{b}, name, "", usage).NoOptDefVal = "true"
}

func (v *boolValue) String() string {
	if v.b == nil {
		return "false"
	}
	return strconv.FormatBool(*v.b)
}

func (v *boolValue) Type() string { return "bool" }

func (v *boolValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New("want true or false")
	}
	*v.b = b
	return nil
}

// exactArgs asks for n arguments and names them.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := "no arguments"
		if len(names) > 0 {
			want = "exactly: " + strings.Join(names, " ")
		}
		noun := "arguments"
		if len(args) == 1 {
			noun = "argument"
		}
		return usagef("%s got %d %s, want %s; see '%s --help'", cmd.CommandPath(), len(args), noun, want, cmd.CommandPath())
	}
}
