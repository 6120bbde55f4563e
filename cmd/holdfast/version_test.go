package main

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, _ := cli("version")
	if code != 0 || !strings.HasPrefix(stdout, "holdfast ") || !strings.Contains(stdout, runtime.Version()) {
		t.Errorf("code %d, %q", code, stdout)
	}
	if code, flag, _ := cli("--version"); code != 0 || flag != stdout {
		t.Errorf("--version: code %d, %q: want %q", code, flag, stdout)
	}
	code, stdout, _ = cli("version", "-o", "json")
	var v map[string]any
	if err := json.Unmarshal([]byte(stdout), &v); code != 0 || err != nil {
		t.Fatalf("code %d, %q: %v", code, stdout, err)
	}
	for _, field := range []string{"version", "modified", "go", "platform"} {
		if _, ok := v[field]; !ok {
			t.Errorf("no field %q in %s", field, stdout)
		}
	}
}
