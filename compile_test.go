package holdfast_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestMustNotCompile type-checks the programs in testdata/compile. The comment
// that a file begins with says what the compiler must find wrong with it; a
// file whose comment begins with "compiles" is the control that the others
// fail for that reason alone.
func TestMustNotCompile(t *testing.T) {
	fset := token.NewFileSet()
	cfg := &packages.Config{Mode: packages.NeedName | packages.NeedTypes | packages.NeedExportFile, Fset: fset}
	loaded, err := packages.Load(cfg, "holdfast", "holdfast/driver", "holdfast/fence", "holdfast/gate/memgate", "context", "time")
	if err != nil {
		t.Fatal(err)
	}
	known := importer{}
	for _, p := range loaded {
		if len(p.Errors) != 0 {
			t.Fatal(p.Errors)
		}
		known[p.PkgPath] = p.Types
	}

	files, err := filepath.Glob("testdata/compile/*.go")
	if err != nil || len(files) < 8 {
		t.Fatalf("%d programs found: %v", len(files), err)
	}
	controls := 0
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			src, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			file, err := parser.ParseFile(fset, path, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			want, _, _ := strings.Cut(strings.TrimPrefix(string(src), "// "), "\n")
			var wrongs []string
			conf := types.Config{Importer: known, Error: func(err error) { wrongs = append(wrongs, err.Error()) }}
			_, _ = conf.Check("main", fset, []*ast.File{file}, nil)
			if strings.HasPrefix(want, "compiles") {
				controls++
				if len(wrongs) != 0 {
					t.Errorf("does not compile: %s", wrongs)
				}
				return
			}
			if len(wrongs) != 1 || !strings.Contains(wrongs[0], want) {
				t.Errorf("the compiler says %q, want one error with %q", wrongs, want)
			}
		})
	}
	if controls < 3 {
		t.Errorf("%d controls, want 3 or more", controls)
	}
}

// importer finds packages that were loaded before.
type importer map[string]*types.Package

func (i importer) Import(path string) (*types.Package, error) {
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, os.ErrNotExist
}
