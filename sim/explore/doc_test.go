package explore

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func simDoc(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// inDoc is the depth and the states that sim/doc.go states for a world.
func inDoc(t *testing.T, world string) (said [2]int) {
	t.Helper()
	for line := range strings.Lines(string(simDoc(t))) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "//\t"))
		if rest, ok := strings.CutSuffix(line, "  "+world); ok {
			fmt.Sscan(rest, &said[0], &said[1])
		}
	}
	return said
}

// TestDocNamesRealTests: each test that sim/doc.go names exists, and each rule
// of PROTOCOL B has a row.
func TestDocNamesRealTests(t *testing.T) {
	doc := simDoc(t)
	for rule := 1; rule <= 13; rule++ {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^//\tB%d +\S`, rule)).Match(doc) {
			t.Errorf("no row for B%d", rule)
		}
	}
	var tests []byte
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			text, err := os.ReadFile(path)
			tests = append(tests, text...)
			return err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(doc), -1)
	if len(names) < 20 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !bytes.Contains(tests, []byte("func "+name+"(")) {
			t.Errorf("sim/doc.go names %s, which no file has", name)
		}
	}
}
