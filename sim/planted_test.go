//go:build planted

package sim

import (
	"bufio"
	"encoding/json"
	"os"
	"testing"
	"time"

	"holdfast/internal/planted"
)

// A catch is what became of a planted bug.
type catch struct {
	Bug      string
	Seeds    int // worlds that were run
	Property Property
	At       time.Duration // in the last world
	Why      string
	Seed     uint64
	Took     time.Duration
}

// hunt runs worlds with a bug until a checker objects.
func hunt(t *testing.T, b bug, within int) catch {
	planted.Plant(b.name)
	defer planted.Plant("")
	c := catch{Bug: b.name}
	begun := time.Now()
	for seed := range uint64(within) {
		r := runSeed(t, b.world(seed), nil)
		c.Seeds++
		if len(r.Violations) > 0 {
			v := r.Violations[0]
			c.Property, c.At, c.Why, c.Seed = v.Property, v.At, v.Why, seed
			break
		}
	}
	c.Took = time.Since(begun)
	return c
}

// TestHuntForOthers is the other side of TestEachPlantedBugIsCaught: it hunts
// for the bugs that it is told of, one a line.
func TestHuntForOthers(t *testing.T) {
	in := bufio.NewScanner(os.Stdin)
	if os.Getenv("HOLDFAST_HUNT") == "" {
		return
	}
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		for _, b := range bugs {
			if b.name == in.Text() {
				if err := out.Encode(hunt(t, b, b.within)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
