package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The sizes that code must keep to. Generated code and testdata are exempt.
const (
	maxFileLines        = 500
	maxFuncLines        = 70
	maxInterfaceMethods = 6
)

func TestSizes(t *testing.T) {
	for _, s := range tree(t) {
		if s.generated {
			continue
		}
		if n := bytes.Count(s.text, []byte("\n")); n > maxFileLines {
			t.Errorf("%s has %d lines: at most %d; split it by concern", s.path, n, maxFileLines)
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				s.checkLength(t, n.Name.Name, n)
			case *ast.InterfaceType:
				if n.Methods.NumFields() > maxInterfaceMethods {
					t.Errorf("%s:%d: interface with %d methods: at most %d", s.path, s.line(n.Pos()), n.Methods.NumFields(), maxInterfaceMethods)
				}
			}
			return true
		})
	}
}

func (s *source) checkLength(t *testing.T, name string, n ast.Node) {
	if lines := s.line(n.End()) - s.line(n.Pos()) + 1; lines > maxFuncLines {
		t.Errorf("%s:%d: %s has %d lines: at most %d", s.path, s.line(n.Pos()), name, lines, maxFuncLines)
	}
}

func TestDocComments(t *testing.T) {
	packages := map[string]bool{} // folder → has a package comment
	for _, s := range tree(t) {
		if s.test || s.generated {
			continue
		}
		packages[s.dir()] = packages[s.dir()] || s.file.Doc != nil
		if s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			s.checkDoc(t, decl)
		}
	}
	for dir, has := range packages {
		if !has {
			t.Errorf("%s: the package has no package comment (doc.go)", dir)
		}
	}
}

func (s *source) checkDoc(t *testing.T, decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			t.Errorf("%s:%d: %s has no doc comment", s.path, s.line(d.Pos()), d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && d.Doc == nil {
					t.Errorf("%s:%d: type %s has no doc comment", s.path, s.line(spec.Pos()), spec.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
						t.Errorf("%s:%d: %s has no doc comment", s.path, s.line(spec.Pos()), name.Name)
					}
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// pure lists the rooms that do no I/O, read no clock, start no goroutine and
// draw no random number.
var pure = []string{"server/core", "server/lease", "server/replica", "internal/watchdog", "fence"}

// impure lists what a pure room must not import.
var impure = []string{"os", "net", "net/http", "math/rand", "math/rand/v2", "crypto/rand", "log", "log/slog", "sync", "context", "syscall"}

func TestPureRooms(t *testing.T) {
	for _, s := range tree(t) {
		if s.test || !slices.Contains(pure, s.dir()) {
			continue
		}
		for _, imp := range s.imports() {
			if s.dir() == "fence" && (imp == "context" || imp == "sync") {
				continue // a count of refusals may be shared by goroutines
			}
			if slices.Contains(impure, imp) {
				t.Errorf("%s imports %s: the room is pure", s.path, imp)
			}
		}
		for _, pos := range s.uses("time", "Now", "Since", "Until", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick", "Sleep") {
			t.Errorf("%s:%d: reads or waits for a clock: the room is pure", s.path, s.line(pos))
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
				t.Errorf("%s:%d: goroutine or channel: the room is pure", s.path, s.line(n.Pos()))
			}
			return true
		})
	}
}

func TestBannedCalls(t *testing.T) {
	for _, s := range tree(t) {
		for _, pos := range s.uses("time", "Sleep") {
			t.Errorf("%s:%d: time.Sleep: wait for an event, or poll with a deadline", s.path, s.line(pos))
		}
		s.checkSkips(t)
		for _, pos := range s.uses("holdfast/server/lease", "NewWeakened") {
			if !s.test && !within(s.dir(), "sim") {
				t.Errorf("%s:%d: lease.NewWeakened is for the explorer and tests alone", s.path, s.line(pos))
			}
		}
	}
}

func (s *source) checkSkips(t *testing.T) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && (x.Name == "t" || x.Name == "b" || x.Name == "tb") && strings.HasPrefix(sel.Sel.Name, "Skip") {
			t.Errorf("%s:%d: a test that skips looks green: make it run, or fail and say what to install", s.path, s.line(call.Pos()))
		}
		return true
	})
}

var bannedNames = regexp.MustCompile(`(^|/)(utils?|common|managers?|helpers?|misc)(/|\.go$|_test\.go$)`)

func TestNames(t *testing.T) {
	for _, s := range tree(t) {
		if bannedNames.MatchString(s.path) {
			t.Errorf("%s: name the thing by what it is for", s.path)
		}
	}
}

// TestWords looks through every text file that git knows for left-overs and
// for what does not belong in the product.
func TestWords(t *testing.T) {
	banned := []*regexp.Regexp{
		regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`),
		regexp.MustCompile(`/wo` + `rk/|/tm` + `p/hf`),
		regexp.MustCompile(`proxy\.golang` + `\.org|registry\.npm` + `js\.org|deb\.debian` + `\.org`),
	}
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	names := strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")
	if len(names) < 20 {
		t.Fatalf("git knows only %d files", len(names))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			if os.IsNotExist(err) {
				continue // deleted, not yet committed
			}
			t.Fatal(err)
		}
		if bytes.IndexByte(text, 0) >= 0 || strings.HasSuffix(name, "go.sum") {
			continue
		}
		for _, re := range banned {
			for _, at := range re.FindAllIndex(text, -1) {
				line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
				t.Errorf("%s:%d: %q does not belong here", name, line, text[at[0]:at[1]])
			}
		}
	}
}

// position formats where a node stands.
func position(fset *token.FileSet, pos token.Pos) string {
	p := fset.Position(pos)
	rel, err := filepath.Rel(root, p.Filename)
	if err != nil {
		rel = p.Filename
	}
	return fmt.Sprintf("%s:%d", filepath.ToSlash(rel), p.Line)
}
