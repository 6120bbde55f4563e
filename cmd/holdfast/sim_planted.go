//go:build planted

package main

import (
	"github.com/spf13/pflag"

	"holdfast/sim"
)

func init() {
	plantBug = sim.Plant
	plantFlag = func(f *pflag.FlagSet, bug *string) {
		f.StringVar(bug, "plant", "", "the bug to plant, by its `NAME`")
	}
}
