package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A source is one Go file of the tree.
type source struct {
	path      string // from the repository's root, with slashes
	text      []byte
	fset      *token.FileSet
	file      *ast.File
	generated bool
	test      bool
}

func (s *source) dir() string { return path.Dir(s.path) }

func (s *source) line(p token.Pos) int { return s.fset.Position(p).Line }

var generatedMark = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// root is the repository's root as seen from this package.
const root = "../.."

var readTree = sync.OnceValues(func() ([]*source, error) {
	var all []*source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		s, err := readSource(p)
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
})

func readSource(p string) (*source, error) {
	text, err := os.ReadFile(p)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return nil, err
	}
	s := &source{path: filepath.ToSlash(rel), text: text, fset: token.NewFileSet()}
	s.file, err = parser.ParseFile(s.fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s.generated = generatedMark.Match(text)
	s.test = strings.HasSuffix(s.path, "_test.go")
	return s, nil
}

// tree returns every Go file of the repository but testdata.
func tree(t *testing.T) []*source {
	t.Helper()
	all, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("found only %d Go files below %s: looking in the wrong place", len(all), root)
	}
	return all
}

// imports returns the import paths of s.
func (s *source) imports() []string {
	var list []string
	for _, spec := range s.file.Imports {
		list = append(list, strings.Trim(spec.Path.Value, `"`))
	}
	return list
}

// calls lists the selectors pkg.Name that s uses, by the name under which it
// imports the packages, with their positions.
func (s *source) uses(pkg string, names ...string) []token.Pos {
	local := ""
	for _, spec := range s.file.Imports {
		if strings.Trim(spec.Path.Value, `"`) != pkg {
			continue
		}
		local = path.Base(pkg)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	if local == "" {
		return nil
	}
	var found []token.Pos
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Name != local {
			return true
		}
		for _, name := range names {
			if sel.Sel.Name == name {
				found = append(found, sel.Pos())
			}
		}
		return true
	})
	return found
}
