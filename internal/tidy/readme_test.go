package tidy

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var codeBlock = regexp.MustCompile("(?ms)^```(\\w+)\\n(.*?)^```$")

// TestReadmeExample holds the README's Go code to an example that compiles.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile(filepath.Join(root, "engine", "cluster", "example_readme_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	compiled := strings.Join(strings.Fields(string(example)), " ")
	shown := 0
	for _, m := range codeBlock.FindAllStringSubmatch(string(readme), -1) {
		if m[1] != "go" {
			continue
		}
		shown++
		if code := strings.Join(strings.Fields(m[2]), " "); !strings.Contains(compiled, code) {
			t.Errorf("the README's Go code is not the body of Example_readme:\n%s", m[2])
		}
	}
	if shown != 1 {
		t.Errorf("the README shows %d blocks of Go: want 1", shown)
	}
}

// TestReadmeOrder holds the README to the order in which a newcomer needs
// things.
func TestReadmeOrder(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if at := regexp.MustCompile(`\b[A-Z]+_(OUTPUT|EXAMPLE)\b`).FindString(string(readme)); at != "" {
		t.Errorf("the README still has the placeholder %s", at)
	}
	at := 0
	for _, heading := range []string{"# Holdfast", "## Two commands", "## By hand, in a browser", "## From Go", "## From cron", "## Two species of locks", "## What is guaranteed", "## Licence and stability", "## Where to read on"} {
		next := strings.Index(string(readme[at:]), heading+"\n")
		if next < 0 {
			t.Fatalf("the README has no %q after byte %d", heading, at)
		}
		at += next
	}
}

// link finds the address in a link or a picture: of Markdown, or of HTML.
var link = regexp.MustCompile(`(?:\]\(|\b(?:src|srcset|href)=")([^)"#]+)(#[^)"]*)?[)"]`)

// TestLinks checks that every relative link of every document leads somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "adr", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(append(pages, more...), filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			}
		}
	}
}

var namedTest = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// TestNamedTestsExist checks that every test that a document names is there.
func TestNamedTestsExist(t *testing.T) {
	exist := map[string]bool{}
	for _, s := range tree(t) {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok {
				exist[f.Name.Name] = true
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedTest.FindAllStringSubmatch(string(text), -1) {
			named++
			if !exist[m[1]] {
				t.Errorf("%s names %s, which does not exist", page, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the documents name only %d tests", named)
	}
}
