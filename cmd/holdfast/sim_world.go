package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"holdfast/sim"
)

// simCommand is the hidden subcommand of the processes in which worlds happen.
const simCommand = "__sim" // PARENT

// A simOrder is one world to run, on the standard input of such a process.
type simOrder struct {
	Setup      sim.Setup
	Shrink     bool   // if a property is violated
	Transcript bool   // goes to descriptor 3
	Bug        string // to plant, in a build that can
}

// A simReport is what became of it, on the standard output.
type simReport struct {
	Result sim.Result
	Shrunk *simShrunk `json:",omitempty"` // a property was violated
}

// A simShrunk is the shortest world that still violates the property.
type simShrunk struct {
	Result     sim.Result
	Transcript string
	Tried      int  // worlds
	Same       bool // it happened the same way each time
}

// simShrinkTime is how long a failing world is shrunk at most.
const simShrinkTime = 30 * time.Second

// plantBug plants a bug; it is set in builds that can.
var plantBug func(string)

// simMain runs worlds, one at a time, until its standard input ends. That is
// also how it learns that its parent has died: it leaves nothing behind.
//
// Here, and nowhere else, crypto/rand.Reader is replaced (seedRaft): raft draws
// its election jitter from it, and the same seed must give the same world. It
// is safe because this process does nothing else: it opens no listener and no
// file, makes no key, token or secret, and never returns to the other commands.
func simMain(args []string) int {
	var kind syscall.Stat_t
	if len(args) != 1 || args[0] != strconv.Itoa(os.Getppid()) || syscall.Fstat(0, &kind) != nil || kind.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		fmt.Fprintln(os.Stderr, "holdfast: this subcommand is started by 'holdfast sim' only")
		return exitUsage
	}
	// On a terminal Ctrl-C is for the parent, which ends its children.
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGTERM)
	runtime.GOMAXPROCS(1) // there is one such process a core
	debug.SetGCPercent(400)
	orders := make(chan simOrder)
	go func() {
		for in := json.NewDecoder(os.Stdin); ; {
			var o simOrder
			if in.Decode(&o) != nil {
				os.Exit(exitOK) // also in the middle of a world
			}
			orders <- o
		}
	}()
	out := json.NewEncoder(os.Stdout)
	for o := range orders {
		if out.Encode(carryOut(o)) != nil {
			break
		}
	}
	return exitFailure
}

// carryOut runs one world.
func carryOut(o simOrder) simReport {
	if plantBug != nil {
		plantBug(o.Bug)
	}
	var transcript io.Writer
	if o.Transcript {
		file := os.NewFile(3, "transcript")
		defer file.Close()
		transcript = file
	}
	r := simReport{Result: runWorld(o.Setup, transcript)}
	if o.Shrink && len(r.Result.Violations) > 0 {
		r.Shrunk = shrinkWorld(r.Result)
	}
	return r
}

// runWorld runs the world of a setup.
func runWorld(s sim.Setup, transcript io.Writer) sim.Result {
	seedRaft(s.Seed)
	return sim.Try(s, transcript)
}

// seedRaft makes raft draw what it draws in the world of that seed. See simMain
// for why this may be done in its process, and in no other.
func seedRaft(seed uint64) { rand.Reader = sim.Jitter(seed) }

// shrinkWorld looks for a shorter world, and lets it happen once more.
func shrinkWorld(found sim.Result) *simShrunk {
	var out simShrunk
	end := time.Now().Add(simShrinkTime)
	best := found
	if found.Setup.Until == 0 { // else it is one that was shrunk before
		best = sim.Shrink(found, func(s sim.Setup) sim.Result {
			out.Tried++
			return runWorld(s, nil)
		}, func() bool { return time.Now().After(end) })
	}
	var first, second bytes.Buffer
	out.Result = runWorld(best.Setup, &first)
	again := runWorld(best.Setup, &second)
	out.Same = bytes.Equal(first.Bytes(), second.Bytes()) && out.Result.Hash == again.Hash &&
		len(out.Result.Violations) > 0 && out.Result.Violations[0] == best.Violations[0]
	out.Transcript = first.String()
	return &out
}
