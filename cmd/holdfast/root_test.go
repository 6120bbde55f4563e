package main

import (
	"bytes"
	"strings"
	"testing"
)

// cli runs a command line in this process; for those that end before anything
// is started.
func cli(args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		want string
	}{
		{"", "needs a subcommand: "},
		{"frobnicate", `no subcommand "frobnicate"; there are: `},
		{"lock", "needs a subcommand: get, list, revoke, watch"},
		{"lock steal", `no subcommand "steal"; there are: get, list, revoke, watch`},
		{"session", "needs a subcommand: end, list"},
		{"lock get", "want exactly: NAME"},
		{"lock get a b", "got 2 arguments, want exactly: NAME"},
		{"version x", "got 1 argument, want no arguments"},
		{"lock list a b", "want exactly: [PREFIX]"},
		{"lock get a -o xml", "want one of: text, json"},
		{"lock get a --server nowhere", "want host:port"},
		{"lock revoke a", "--token N is missing"},
		{"lock revoke a --token 0", "want the number of a grant"},
		{"lock revoke a --token x", "want the number of a grant"},
		{"lock revoke a --token 9223372036854775808", "want the number of a grant"},
		{"lock watch a --prefix b", "exclude each other"},
		{"lock watch a --after x", "want a revision"},
		{"session end", "want exactly: ID"},
		{"session end x", "want a number"},
		{"session end 0", "want a number"},
		{"version extra", "want no arguments"},
		{"version --frob", "unknown flag: --frob"},
		{"serve extra", "want no arguments"},
		{"serve --listen 0.0.0.0:7433", "--insecure"},
		{"serve --listen :7433", "--insecure"},
		{"serve --max-sessions -1", "want a whole number from 1"},
		{"serve --snapshot-every 99", "want a whole number from 100 to 10000000"},
		{"serve --log-format yaml", "want one of: text, json"},
		{"serve --pprof=maybe", "want true or false"},
		{"run a --limit 10001 -- true", "want a whole number from 1 to 10000"},
		{"dev --log-level loud", "want one of: debug, info, warn, error"},
	} {
		code, stdout, stderr := cli(strings.Fields(c.args)...)
		if code != exitUsage || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("holdfast %s: code %d, stdout %q, stderr %q; want code %d and %q", c.args, code, stdout, stderr, exitUsage, c.want)
		}
		if strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "holdfast: ") {
			t.Errorf("holdfast %s: stderr %q, want one line that begins with the program's name", c.args, stderr)
		}
	}
}

func TestHiddenSubcommandsRefusePeople(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{guardCommand}, {guardCommand, "99999,3,4", "1s", "/bin/true", "true"}, {childCommand, "x", "1", "/bin/true", "true"}} {
		if code, _, _ := cli(args...); code != exitUsage {
			t.Errorf("%q: code %d, want %d", args, code, exitUsage)
		}
	}
}

func TestHelpHasTheExitCodes(t *testing.T) {
	t.Parallel()
	code, stdout, _ := cli("run", "--help")
	for _, want := range []string{"64", "69", "75", "79", "126", "127", "128+n", "--conflict-exit-code", "gate"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("run --help does not speak of %s", want)
		}
	}
	if strings.Contains(stdout, "(default 1) (default 1)") || !strings.Contains(stdout, "1 to 10000") {
		t.Errorf("run --help says %q of --limit", stdout)
	}
	for sub, want := range map[string]string{"serve": "0        stopped as asked", "dev": "0        stopped as asked", "drill": "kill -9"} {
		if _, stdout, _ := cli(sub, "--help"); !strings.Contains(stdout, want) || !strings.Contains(stdout, "64   ") || strings.Contains(stdout, "66   ") || strings.Contains(stdout, "69   ") {
			t.Errorf("%s --help has %q, want %q and only the exit codes that it has", sub, stdout, want)
		}
	}
	for _, sub := range []string{"lock list", "lock get", "lock watch", "lock revoke", "session list", "session end"} {
		if _, stdout, _ := cli(append(strings.Fields(sub), "--help")...); !strings.Contains(stdout, "66       no such lock or session") {
			t.Errorf("%s --help has no exit codes", sub)
		}
	}
}
