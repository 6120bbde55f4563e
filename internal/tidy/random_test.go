package tidy

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// randomnessMay is the one file that may replace the source of keys and
// secrets: that of processes that do nothing but run the simulator's worlds.
const randomnessMay = "cmd/holdfast/sim_world.go"

// Nobody else replaces crypto/rand.Reader, or calls what does.
func TestRandomnessIsReplacedInOnePlace(t *testing.T) {
	found := 0
	for _, s := range tree(t) {
		if s.test {
			continue
		}
		for _, pos := range append(s.replaced("crypto/rand", "Reader"), s.named("seedRaft")...) {
			if s.path == randomnessMay {
				found++
				continue
			}
			t.Errorf("%s:%d: replaces crypto/rand.Reader: only %s may, whose process makes no key and no secret", s.path, s.line(pos), randomnessMay)
		}
	}
	if found != 3 { // the assignment, the function, its one call
		t.Errorf("%d places replace crypto/rand.Reader in %s, want 3: this test is blind, or there is a new one", found, randomnessMay)
	}
}

// replaced lists where pkg.name is assigned to, or its address taken.
func (s *source) replaced(pkg, name string) (at []token.Pos) {
	uses := s.uses(pkg, name)
	ast.Inspect(s.file, func(n ast.Node) bool {
		var targets []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			targets = n.Lhs
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				targets = []ast.Expr{n.X}
			}
		}
		for _, x := range targets {
			if slices.Contains(uses, x.Pos()) {
				at = append(at, x.Pos())
			}
		}
		return true
	})
	return at
}

// named lists where an identifier stands.
func (s *source) named(name string) (at []token.Pos) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if x, ok := n.(*ast.Ident); ok && x.Name == name {
			at = append(at, x.Pos())
		}
		return true
	})
	return at
}
