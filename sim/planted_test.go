//go:build planted

package sim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/planted"
)

// A catch is what became of a planted bug.
type catch struct {
	Bug      string
	Seeds    int // worlds that were run
	Property Property
	At       time.Duration // when the checker objected, in the last world
	Why      string
	// Innocent are the worlds in which a checker objected without the bug as
	// well: they catch nothing, and are a failure of their own.
	Innocent []uint64
	Took     time.Duration
}

// hunt runs worlds with a bug until a checker objects that does not object to
// the same world without the bug.
func hunt(t *testing.T, b bug) catch {
	defer planted.Plant("")
	c := catch{Bug: b.name}
	begun := time.Now()
	for seed := range uint64(b.within) {
		planted.Plant(b.name)
		r := runSeed(t, b.world(seed), nil)
		c.Seeds++
		if len(r.Violations) == 0 {
			continue
		}
		planted.Plant("")
		if len(runSeed(t, b.world(seed), nil).Violations) > 0 {
			c.Innocent = append(c.Innocent, seed)
			continue
		}
		v := r.Violations[0]
		c.Property, c.At, c.Why = v.Property, v.At, v.Why
		break
	}
	c.Took = time.Since(begun)
	return c
}

// TestEachPlantedBugIsCaught plants one bug after the other: some in every run
// of the tests, all of them in make sim-planted, which prints the table of
// docs/RELIABILITY.md.
func TestEachPlantedBugIsCaught(t *testing.T) {
	var caught []catch
	if os.Getenv("HOLDFAST_PLANTED") == "all" {
		caught = huntAll(t)
	} else {
		for _, b := range bugs {
			if b.quick {
				caught = append(caught, hunt(t, b))
			}
		}
	}
	fmt.Println("| bug | what is weaker | worlds | of at most | who objected | after |")
	fmt.Println("|---|---|--:|--:|---|--:|")
	for _, c := range caught {
		b := bugs[slices.IndexFunc(bugs, func(b bug) bool { return b.name == c.Bug })]
		fmt.Printf("| `%s` | %s | %d | %d | %s | %.1f s |\n", b.name, b.describe(), c.Seeds, b.within, c.Property, c.At.Seconds())
		if c.Property == "" {
			t.Errorf("%s was not caught in %d worlds", c.Bug, c.Seeds)
		}
		if c.Innocent != nil {
			t.Errorf("%s: the seeds %v object without the bug as well", c.Bug, c.Innocent)
		}
	}
}

// describe is what is weaker, and in which worlds it was looked for.
func (b bug) describe() string {
	if b.says == "" {
		return b.what
	}
	return b.what + " (worlds with " + b.says + ")"
}

// huntAll hunts in two processes, each with one world at a time, for raft draws
// its jitter from what is one for a whole process.
func huntAll(t *testing.T) []catch {
	names, found := make(chan string), make(chan catch)
	go func() {
		defer close(names)
		for _, b := range bugs {
			names <- b.name
		}
	}()
	var hunters sync.WaitGroup
	for range 2 {
		hunters.Go(func() { huntElsewhere(t, names, found) })
	}
	go func() {
		hunters.Wait()
		close(found)
	}()
	var all []catch
	for c := range found {
		all = append(all, c)
		fmt.Fprintf(os.Stderr, "%-32s %3d worlds, %v: %s %s\n", c.Bug, c.Seeds, c.Took.Round(100*time.Millisecond), c.Property, c.Why)
	}
	place := func(c catch) int { return slices.IndexFunc(bugs, func(b bug) bool { return b.name == c.Bug }) }
	slices.SortFunc(all, func(a, b catch) int { return place(a) - place(b) })
	return all
}

// huntElsewhere lets another process hunt for bugs, one after the other.
func huntElsewhere(t *testing.T, names <-chan string, found chan<- catch) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHuntForOthers$", "-test.timeout=0")
	cmd.Env, cmd.Stderr = append(os.Environ(), "HOLDFAST_PLANTED=hunter"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Error(err)
		return
	}
	answers := json.NewDecoder(out)
	for name := range names {
		var c catch
		fmt.Fprintln(in, name)
		if err := answers.Decode(&c); err != nil {
			t.Errorf("%s: the hunter died: %v", name, err)
			break
		}
		found <- c
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// TestHuntForOthers is the other side of huntElsewhere: it hunts for the bugs
// that it is told of, one a line.
func TestHuntForOthers(t *testing.T) {
	if os.Getenv("HOLDFAST_PLANTED") != "hunter" {
		return
	}
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for in.Scan() {
		for _, b := range bugs {
			if b.name != in.Text() {
				continue
			}
			if err := out.Encode(hunt(t, b)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEachBugIsPlantedAndTold: the table, the places in the code and
// docs/RELIABILITY.md name the same bugs.
func TestEachBugIsPlantedAndTold(t *testing.T) {
	told, err := os.ReadFile("../docs/RELIABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, b := range slices.Concat(bugs, elsewhere) {
		if known[b.name] {
			t.Errorf("%s stands twice in the table", b.name)
		}
		known[b.name] = true
		if !strings.Contains(string(told), "`"+b.name+"`") {
			t.Errorf("docs/RELIABILITY.md does not tell of %s", b.name)
		}
	}
	found := map[string]bool{}
	on := regexp.MustCompile(`planted\.On\("([^"]+)"\)`)
	for _, room := range []string{".", "../server/core", "../server/lease", "../server/replica", "../internal/watchdog"} {
		files, err := os.ReadDir(room)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			text, err := os.ReadFile(room + "/" + f.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range on.FindAllSubmatch(text, -1) {
				if found[string(m[1])] = true; !known[string(m[1])] {
					t.Errorf("%s/%s plants %s, which is not in the table", room, f.Name(), m[1])
				}
			}
		}
	}
	for name := range known {
		if !found[name] {
			t.Errorf("%s is planted nowhere", name)
		}
	}
}
