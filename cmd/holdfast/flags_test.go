package main

import (
	"os/exec"
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
	const rule = "want 1 to 512 bytes of UTF-8 in Unicode normal form C (NFC), without control characters"
	for name, want := range map[string]string{
		"":                       "lock name is empty: " + rule,
		"a\nb":                   `lock name "a\nb" has the control character U+000A: ` + rule,
		"a\x00":                  `lock name "a\x00" has the control character U+0000: ` + rule,
		"\xff":                   `lock name "\xff" is not UTF-8: ` + rule,
		strings.Repeat("x", 513): "lock name has 513 bytes: " + rule,
		"e\u0301":                `lock name "e\u0301" is not in normal form C: write it as "\u00e9"; ` + rule,
	} {
		err := checkLockName(name)
		if exitCode(err) != exitUsage || err.Error() != want {
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
	// What cannot be seen is not printed, and yet reaches the command.
	for _, in := range []string{"a\u200bb", "\u202eab\\0101'%s", "-\u2028 $x"} {
		word := shellQuote(in)
		if printable(word) != word {
			t.Errorf("%q: %q is not printable", in, word)
		}
		for _, shell := range []string{"sh", "bash"} {
			if out, err := exec.Command(shell, "-c", "printf %s "+word).Output(); err != nil || string(out) != in {
				t.Errorf("%s makes %q of %s, want %q (%v)", shell, out, word, in, err)
			}
		}
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("a\x1b[2Jb\u202ec"); got != `a\u001b[2Jb\u202ec` {
		t.Errorf("got %q", got)
	}
	for in, want := range map[string]string{
		"a\u200bb": `"a\u200bb"`, "a\u2028b": `"a\u2028b"`, "a\u202eb": `"a\u202eb"`, "a\u00a0b": `"a\u00a0b"`, "\U000e0041": `"\U000e0041"`,
		`a\u200bb`: `a\u200bb`, `"a\u200bb"`: `"\"a\\u200bb\""`, "plain é 日本": "plain é 日本",
	} {
		if got := quoted(in); got != want {
			t.Errorf("%q is shown as %s, want %s", in, got, want)
		}
	}
	// Such characters may stand in a label, as an emoji joined of several.
	if label := "\U0001f469\u200d\U0001f4bb"; clean(label) != label {
		t.Errorf("clean made %q of a label", clean(label))
	}
}
