package tidy

import (
	"go/ast"
	"go/types"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// TestNoMapOrder refuses every range over a map in the four machines: the
// order of a Go map is random, and must not reach an output. A loop whose
// order cannot matter carries a comment with the word "order" on its line or
// the one above, which says why.
func TestNoMapOrder(t *testing.T) {
	cfg := &packages.Config{
		Dir:  root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
	}
	loaded, err := packages.Load(cfg, "holdfast/server/core", "holdfast/server/lease", "holdfast/server/replica", "holdfast/internal/watchdog")
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded) != 4 {
		t.Fatalf("loaded %d packages: want the four machines", len(loaded))
	}
	for _, pkg := range loaded {
		for _, e := range pkg.Errors {
			t.Errorf("%s: %v", pkg.PkgPath, e)
		}
		for _, file := range pkg.Syntax {
			excused := excusedLines(pkg, file)
			ast.Inspect(file, func(n ast.Node) bool {
				loop, ok := n.(*ast.RangeStmt)
				if !ok || pkg.TypesInfo.TypeOf(loop.X) == nil {
					return true
				}
				if _, isMap := pkg.TypesInfo.TypeOf(loop.X).Underlying().(*types.Map); !isMap {
					return true
				}
				if line := pkg.Fset.Position(loop.Pos()).Line; !excused[line] && !excused[line-1] {
					t.Errorf("%s: range over a map: order would be random; sort, or say in a comment why order cannot matter", position(pkg.Fset, loop.Pos()))
				}
				return true
			})
		}
	}
}

func excusedLines(pkg *packages.Package, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range file.Comments {
		if strings.Contains(group.Text(), "order") {
			lines[pkg.Fset.Position(group.End()).Line] = true
		}
	}
	return lines
}
