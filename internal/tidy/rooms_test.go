package tidy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A room is a folder of the house with all below it (unless a longer entry
// matches), and what it may import of this module. "public" stands for every
// room that users may import.
type room struct {
	path string // "" is the root package
	may  []string
}

var public = []string{"", "fence", "driver", "engine", "gate", "elect", "adaptor"}

// suites are what the tests of every room may import besides what the room
// itself may: the suites and what these exercise.
var suites = []string{"fence", "driver", "driver/drivertest", "fence/fencetest", "", "internal/watchdog", "internal/pgtest"}

// house is the table of docs/DESIGN.md ("who may import whom"). The first
// entry whose path is the longest match of a package's folder binds it.
var house = []room{
	{"", []string{"fence", "driver", "internal/watchdog"}},
	{"fence", nil},
	{"fence/fencetest", []string{"fence"}},
	{"fence/sequencer", []string{"fence"}},
	{"driver", []string{"fence"}},
	{"driver/drivertest", []string{"fence", "driver", ""}},
	{"internal/watchdog", []string{"internal/planted"}},
	{"internal/planted", nil},
	{"internal/pgtest", nil},
	{"internal/tidy", nil},
	{"internal/tools", nil},
	{"wire", []string{"fence", "driver"}},
	{"engine/cluster", []string{"", "driver", "fence", "wire"}},
	{"engine/memlock", []string{"", "driver", "fence", "server/core", "server/lease"}},
	{"engine", []string{"", "driver", "fence"}},
	{"gate", []string{"fence"}},
	{"elect", []string{"", "fence"}},
	{"adaptor", []string{"", "fence", "engine"}},
	{"server/core", []string{"internal/planted"}},
	{"server/store", nil},
	{"server/tlsfiles", nil},
	{"server/peer", nil},
	{"server/backup", []string{"server/core", "server/store"}},
	{"server/lease", []string{"server/core", "internal/planted"}},
	{"server/replica", []string{"server/core", "internal/planted"}},
	{"server", []string{"server/tlsfiles", "server/peer", "server/backup", "server/replica", "server/lease", "server/core", "server/store", "wire", "fence", "driver", "fence/sequencer"}},
	{"sim", []string{"server/backup", "server/core", "server/lease", "server/replica", "internal/watchdog", "internal/planted", "fence", "gate/memgate"}},
	{"lab", append(slices.Clone(public), "wire", "server", "sim")},
	{"bench", append(slices.Clone(public), "wire", "server", "sim")},
	{"chaos", append(slices.Clone(public), "wire", "server", "sim", "internal/pgtest")},
	{"cmd/holdfast", append(slices.Clone(public), "wire", "server", "sim", "lab", "bench")},
}

// testMay lists what tests of a room may import beyond its own list and the
// suites: what they must start to be honest.
var testMay = map[string][]string{
	"":                  {"engine/memlock", "gate"},
	"driver/drivertest": {"engine/memlock"},
	"engine/cluster":    {"server", "gate"},
	"wire":              {"server"},
	"server":            {"engine/cluster"},
	"sim":               {"engine/memlock"},
	"elect":             {"engine", "server"},
	"internal/watchdog": {},
}

// within reports whether folder is dir or below it. The root package is
// itself alone.
func within(folder, dir string) bool {
	if dir == "" {
		return folder == ""
	}
	return folder == dir || strings.HasPrefix(folder, dir+"/")
}

func roomOf(folder string) (room, bool) {
	var best room
	found := false
	for _, r := range house {
		if within(folder, r.path) && (!found || len(r.path) > len(best.path)) {
			best, found = r, true
		}
	}
	return best, found
}

func allowed(folder, target string, r room, test bool) bool {
	if within(target, r.path) && r.path != "" || target == folder {
		return true
	}
	lists := [][]string{r.may}
	if test {
		lists = append(lists, suites, testMay[r.path])
	}
	for _, list := range lists {
		for _, dir := range list {
			if !within(target, dir) {
				continue
			}
			// A room may be entered only by its own entry: naming
			// "driver" does not open "driver/drivertest".
			if own, _ := roomOf(target); own.path == dir || strings.HasPrefix(dir, own.path) || broad(dir) {
				return true
			}
		}
	}
	return false
}

// broad names entries that stand for all rooms below them.
func broad(dir string) bool {
	return dir == "engine" || dir == "gate" || dir == "adaptor" || dir == "server" || dir == "fence" || dir == "driver"
}

const module = "holdfast"

func folderOf(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func TestImportArrows(t *testing.T) {
	for _, s := range tree(t) {
		folder := s.dir()
		if folder == "." {
			folder = ""
		}
		r, ok := roomOf(folder)
		if !ok {
			t.Errorf("%s: the folder %q is no room of the house: put the code into one, or add the room to house with an ADR", s.path, folder)
			continue
		}
		for _, imp := range s.imports() {
			target, ours := folderOf(imp)
			if !ours {
				continue
			}
			if !allowed(folder, target, r, s.test) {
				t.Errorf("%s imports %s: room %q may import only %q", s.path, imp, r.path, r.may)
			}
		}
	}
}

// TestArrowsCanFail holds the checker itself: arrows that must be refused.
func TestArrowsCanFail(t *testing.T) {
	refused := []struct{ folder, target string }{
		{"gate/memgate", ""}, {"", "gate/memgate"}, {"fence", "driver"}, {"server/core", "fence"},
		{"server/store", "server/core"}, {"engine/cluster", "server"}, {"engine/cluster", "server/core"},
		{"engine/memlock", "server/replica"}, {"internal/watchdog", "fence"}, {"server", "engine/cluster"},
		{"driver", ""}, {"sim", "server"}, {"wire", "server/core"}, {"", "wire"},
	}
	for _, c := range refused {
		r, ok := roomOf(c.folder)
		if !ok || allowed(c.folder, c.target, r, false) {
			t.Errorf("%q → %q is accepted", c.folder, c.target)
		}
	}
	granted := []struct{ folder, target string }{
		{"server", "wire/holdfastv1/holdfastv1connect"}, {"engine/cluster", "wire"}, {"cmd/holdfast", "server"},
		{"sim/explore", "server/lease"}, {"engine/memlock", "server/lease"}, {"", "internal/watchdog"},
	}
	for _, c := range granted {
		r, ok := roomOf(c.folder)
		if !ok || !allowed(c.folder, c.target, r, false) {
			t.Errorf("%q → %q is refused", c.folder, c.target)
		}
	}
}

// TestImportClosure checks that who imports the client compiles no server and
// no other engine, that a gate costs its user package fence alone, and that
// what drives a browser for tests is not in the binary.
func TestImportClosure(t *testing.T) {
	cases := []struct {
		pkg    string
		banned []string
	}{
		{"holdfast", []string{"holdfast/server", "holdfast/engine", "holdfast/wire", "holdfast/gate", "go.etcd.io", "modernc.org", "github.com", "google.golang.org"}},
		{"holdfast/engine/cluster", []string{"holdfast/server", "holdfast/engine/memlock", "holdfast/gate", "go.etcd.io", "modernc.org", "github.com/spf13"}},
		{"holdfast/fence", []string{"github.com", "golang.org/x", "google.golang.org", "go.etcd.io"}},
		{"holdfast/gate/memgate", []string{"holdfast/driver", "holdfast/internal", "github.com", "google.golang.org"}},
		{"holdfast/cmd/holdfast", []string{"holdfast/lab/internal", "github.com/chromedp"}},
		{"holdfast/gate/sqlgate", []string{"holdfast/driver", "holdfast/internal", "modernc.org", "github.com", "google.golang.org"}},
		{"holdfast/gate/filegate", []string{"holdfast/driver", "holdfast/internal", "database/sql", "github.com", "golang.org/x", "google.golang.org"}},
	}
	for _, c := range cases {
		cmd := exec.Command("go", "list", "-deps", c.pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("go list -deps %s: %v\n%s", c.pkg, err, out)
			continue
		}
		for _, dep := range strings.Fields(string(out)) {
			for _, ban := range c.banned {
				if dep == ban || strings.HasPrefix(dep, ban+"/") {
					t.Errorf("%s compiles %s", c.pkg, dep)
				}
			}
		}
	}
}
