//go:build linux

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// telltales are what servers log when faults hit them: a fault of which no log
// tells has perhaps hit nothing.
// A line of the log counts if it has all of the texts.
var telltales = []struct {
	what  string
	texts []string
}{
	{"elections won", []string{"msg=leading "}},
	{"snapshots sent", []string{"a snapshot was sent"}},
	{"snapshots cut off", []string{"a snapshot was not sent"}},
	{"ends for want of space", []string{"holdfast: ", "no space left on device"}},
	{"handshakes refused for an expired certificate", []string{"a member's TLS handshake failed", "expired"}},
}

// tellsOf counts them.
func (r *run) tellsOf() string {
	counts := make([]int, len(telltales))
	for _, v := range r.servers {
		text, _ := os.ReadFile(v.said) // what is not there tells nothing
		for line := range strings.Lines(string(text)) {
			for i, tell := range telltales {
				if !slices.ContainsFunc(tell.texts, func(text string) bool { return !strings.Contains(line, text) }) {
					counts[i]++
				}
			}
		}
	}
	var all []string
	for i, tell := range telltales {
		all = append(all, fmt.Sprintf("%d %s", counts[i], tell.what))
	}
	return strings.Join(all, ", ")
}
