package tidy

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// cases is the number of cases in the casebook, C01 to C82.
const cases = 82

var (
	caseRow  = regexp.MustCompile(`(?m)^\| (C\d\d) \|(.*)\|$`)
	caseTest = regexp.MustCompile(`\b(?:Test)?Casebook((?:C\d\d_)+)\w+`)
)

// TestCasebookMap holds docs/CASEBOOK.md to the tree: every case has its row;
// a row names only tests that exist, under their own case; every test that
// names a case stands in the row of that case; and a row without a test says
// what the case waits for, or why it cannot apply.
func TestCasebookMap(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "CASEBOOK.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range caseRow.FindAllStringSubmatch(string(text), -1) {
		if _, twice := rows[m[1]]; twice {
			t.Errorf("%s has two rows", m[1])
		}
		rows[m[1]] = m[2]
	}
	if len(rows) != cases {
		t.Errorf("docs/CASEBOOK.md has %d rows: want %d", len(rows), cases)
	}
	exist := casebookTests(t)
	for id, row := range rows {
		var named []string
		for _, m := range caseTest.FindAllStringSubmatch(row, -1) {
			if !strings.Contains(m[1], id) {
				t.Errorf("%s names %s", id, m[0])
			}
			if !slices.Contains(exist, m[0]) {
				t.Errorf("%s names %s, which does not exist", id, m[0])
			}
			named = append(named, m[0])
		}
		if len(named) == 0 && !strings.Contains(row, "wait") && !strings.Contains(row, "cannot apply") {
			t.Errorf("%s names no test and does not say that it waits, or that it cannot apply", id)
		}
	}
	for _, name := range exist {
		ids := strings.Trim(caseTest.FindStringSubmatch(name)[1], "_") // "C26_C42"
		for id := range strings.SplitSeq(ids, "_") {
			if !strings.Contains(rows[id], "`"+name+"`") {
				t.Errorf("%s is not in the row of %s", name, id)
			}
		}
	}
}

// casebookTests lists the names of the tests, and of the parts of the suites,
// that name a case.
func casebookTests(t *testing.T) []string {
	var names []string
	add := func(name string) {
		if name != "" && caseTest.FindString(name) == name && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, s := range tree(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Name.Name)
			case *ast.BasicLit:
				add(strings.Trim(n.Value, "`\""))
			}
			return true
		})
	}
	slices.Sort(names)
	return names
}
