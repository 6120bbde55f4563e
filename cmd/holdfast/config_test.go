package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configured layers a command line, an environment and a file over serve's
// flags.
func configured(t *testing.T, argv []string, env map[string]string, file string) (*serveSettings, string, error) {
	t.Helper()
	cmd := serveCmd()
	if file != "" {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		argv = append(argv, "--config", path)
	}
	if err := cmd.ParseFlags(argv); err != nil {
		return nil, "", err
	}
	err := layerConfig(cmd.Flags(), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	get := func(name string) string { return cmd.Flag(name).Value.String() }
	return &serveSettings{
		data: get("data"), listen: get("listen"), logLevel: get("log-level"), logFormat: get("log-format"),
		pprof: get("pprof") == "true", insecure: get("insecure") == "true",
	}, get("max-sessions"), err
}

func TestConfigPrecedence(t *testing.T) {
	t.Parallel()
	file := "listen: 127.0.0.1:1003\ndata: /file\nlog-level: error\nmax-sessions: 7\npprof: true\n"
	env := map[string]string{"HOLDFAST_LISTEN": "127.0.0.1:1002", "HOLDFAST_DATA": "/env", "HOLDFAST_LOG_FORMAT": "", "HOLDFAST_LOCK": "x"}
	s, sessions, err := configured(t, []string{"--listen", "127.0.0.1:1001"}, env, file)
	if err != nil {
		t.Fatal(err)
	}
	want := serveSettings{data: "/env", listen: "127.0.0.1:1001", logLevel: "error", logFormat: "text", pprof: true}
	if *s != want || sessions != "7" {
		t.Errorf("got %+v and %s sessions, want %+v and 7", *s, sessions, want)
	}
}

func TestConfigFileFromEnvironment(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("log-format: json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, err := configured(t, nil, map[string]string{"HOLDFAST_CONFIG": path}, "")
	if err != nil || s.logFormat != "json" {
		t.Errorf("got %+v, %v", s, err)
	}
}

// Every bad setting is refused with its place, what is wrong and what is
// allowed, and with the exit code for bad usage.
func TestConfigRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("#", maxConfigBytes+1)
	for name, c := range map[string]struct {
		argv []string
		env  map[string]string
		file string
		want []string
	}{
		"unknown key":        {file: "listen: 127.0.0.1:1\nlisten-adress: x\n", want: []string{"line 2", `unknown key "listen-adress"`, "allowed are: ", " data, ", " listen, ", " pprof"}},
		"config in a file":   {file: "config: other.yaml\n", want: []string{"line 1", "unknown key"}},
		"key twice":          {file: "data: a\ndata: b\n", want: []string{"line 2", "set before, in line 1"}},
		"list":               {file: "listen: [a, b]\n", want: []string{"line 1", "no single value"}},
		"null":               {file: "data:\n", want: []string{"line 1", "no single value"}},
		"not a mapping":      {file: "- listen\n", want: []string{"line 1", "mapping"}},
		"scalar":             {file: "just text\n", want: []string{"mapping"}},
		"two documents":      {file: "data: a\n---\ndata: b\n", want: []string{"one YAML document"}},
		"broken":             {file: "data: [\n", want: []string{"config file", "line"}},
		"alias bomb":         {file: "a: &a [x,x]\nb: &b [*a,*a]\nlisten: *b\n", want: []string{"line 1", `unknown key "a"`}},
		"not text":           {file: "\xff\xfe\x00", want: []string{"config file"}},
		"too long":           {file: long, want: []string{"longer than 1048576 bytes"}},
		"bad value":          {file: "log-level: loud\n", want: []string{"line 1", "loud", "want one of: debug, info, warn, error"}},
		"bad bool":           {file: "pprof: maybe\n", want: []string{"line 1", "pprof", "maybe", "not allowed: want true or false"}},
		"bad number":         {file: "max-sessions: 0\n", want: []string{"line 1", "want a whole number from 1 to 10000000"}},
		"bad but overridden": {argv: []string{"--log-level", "warn"}, file: "log-level: loud\n", want: []string{"line 1", "loud"}},
		"bad address":        {file: "listen: nowhere\n", want: []string{"line 1", "want host:port"}},
		"bad port":           {file: "listen: 127.0.0.1:70000\n", want: []string{"want 0 to 65535"}},
		"environment":        {env: map[string]string{"HOLDFAST_LOG_LEVEL": "loud"}, want: []string{`HOLDFAST_LOG_LEVEL="loud"`, "want one of: debug, info, warn, error"}},
		"environment bool":   {env: map[string]string{"HOLDFAST_PPROF": "maybe"}, want: []string{`HOLDFAST_PPROF="maybe": want true or false`}},
		"environment twice":  {env: map[string]string{"HOLDFAST_LOG_LEVEL": "loud", "HOLDFAST_MAX_SESSIONS": "many"}, want: []string{"HOLDFAST_LOG_LEVEL", "HOLDFAST_MAX_SESSIONS"}},
		"empty join":         {argv: []string{"--name", "n1", "--join", ""}, want: []string{"nothing is given with --join: want a value, or the flag left out"}},
		"empty founders":     {argv: []string{"--initial-cluster="}, want: []string{"--initial-cluster"}},
		"empty credentials":  {argv: []string{"--operator-token-file", "", "--ca="}, want: []string{"nothing is given with --ca, --operator-token-file"}},
		"empty data":         {argv: []string{"--data", ""}, want: []string{"--data"}},
		"empty key":          {file: "operator-token-file: ''\n", want: []string{"line 1", `nothing is given for key "operator-token-file"`}},
		"empty and hidden":   {argv: []string{"--join", "127.0.0.1:1"}, file: "join: \"\"\n", want: []string{"line 1", `"join"`}},
		"no such file":       {argv: []string{"--config", "/does/not/exist.yaml"}, want: []string{"/does/not/exist.yaml", "no such file"}},
		"directory":          {argv: []string{"--config", "/"}, want: []string{"config file", "directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := configured(t, c.argv, c.env, c.file)
			if exitCode(err) != exitUsage {
				t.Fatalf("error %v has code %d, want %d", err, exitCode(err), exitUsage)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestConfigEmptyFiles(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"\n", "# nothing\n", "---\n", "null\n", "{}\n"} {
		if _, _, err := configured(t, nil, nil, file); err != nil {
			t.Errorf("file %q: %v", file, err)
		}
	}
}
