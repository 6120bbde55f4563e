package main

import (
	"strings"
	"testing"
)

func TestServerList(t *testing.T) {
	for _, c := range []struct {
		argv []string
		env  string
		want string // or what the error says
	}{
		{nil, "", "127.0.0.1:7433"},
		{nil, "db1:7433, db2:7433", "db1:7433,db2:7433"},
		{[]string{"--server", "[::1]:1"}, "db1:7433", "[::1]:1"},
		{nil, "db1", `HOLDFAST_SERVER "db1"`},
		{[]string{"--server", ""}, "", "want host:port"},
		{[]string{"--server", "a:1,,b:2"}, "", "want host:port"},
		{[]string{"--server", "a:0"}, "", "want 1 to 65535"},
		{[]string{"--server", ":7433"}, "", "has no host"},
		{[]string{"--server", "http://a:1"}, "", "want host:port"},
		{[]string{"--server", "a\nb:1"}, "", "want host:port"},
		{[]string{"--server", strings.Repeat("a:1,", maxServers) + "b:2"}, "", "names 65 servers: want 1 to 64"},
	} {
		t.Setenv(serverVariable, c.env)
		cmd := runCmd()
		if err := cmd.ParseFlags(c.argv); err != nil {
			t.Fatal(err)
		}
		got, err := serverList(cmd)
		if err != nil {
			if exitCode(err) != exitUsage {
				t.Errorf("%q: code %d, want %d", c.argv, exitCode(err), exitUsage)
			}
			got = err.Error()
		}
		if (err == nil && got != c.want) || !strings.Contains(got, c.want) {
			t.Errorf("%q with %q: got %q, want %q", c.argv, c.env, got, c.want)
		}
	}
}

func TestCheckLockName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"":                       "empty",
		"a\nb":                   "control character",
		"a\x00":                  "control character",
		"\xff":                   "not UTF-8",
		strings.Repeat("x", 513): "513 bytes",
		"e\u0301":                "NFC",
	} {
		err := checkLockName(name)
		if exitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
	for _, name := range []string{"a", "jobs/é", "with space", "-x", strings.Repeat("x", 512)} {
		if err := checkLockName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestShellQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain/name-1.0": "plain/name-1.0", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "-x": "'-x'", "é": "'é'",
	} {
		if got := shellQuote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[2Jb\u202ec"); got != `a\u001b[2Jb\u202ec` {
		t.Errorf("got %q", got)
	}
}
