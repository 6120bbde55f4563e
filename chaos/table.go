//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// A table is what one call of the program reports, over all its runs.
type table struct {
	kinds      []string
	of         map[string]*figures
	lines      []string
	violations []violation
	undecided  []string
}

// figures are those of one kind of fault.
type figures struct {
	times       int
	gap, served []time.Duration
}

// longestGap is the longest time without a grant in the part of a run that a
// fault belongs to: from its beginning, or the last grant before it, until the
// next fault begins.
func longestGap(grants []int64, from, to int64) time.Duration {
	last, longest := from, int64(0)
	for _, at := range grants { // in their order
		if at <= from {
			continue
		}
		if at > to {
			break
		}
		longest = max(longest, at-last)
		last = at
	}
	return time.Duration(max(longest, to-last))
}

func (t *table) add(r *run) {
	if t.of == nil {
		t.of = map[string]*figures{}
	}
	slices.Sort(r.history.grants)
	for _, s := range r.strikes {
		f := t.of[s.kind]
		if f == nil {
			f = &figures{}
			t.of[s.kind] = f
			t.kinds = append(t.kinds, s.kind)
		}
		f.times++
		f.gap = append(f.gap, longestGap(r.history.grants, s.from, s.next))
		f.served = append(f.served, s.served)
	}
	results := map[string]int{}
	for _, w := range r.history.byWrite {
		results[w.result]++
	}
	reads := 0
	for _, g := range r.history.reads {
		if g.ended != 0 {
			reads++
		}
	}
	ops := len(r.history.holds) + len(r.history.byWrite) + len(r.history.reads)
	t.lines = append(t.lines, fmt.Sprintf(
		"%d servers: %d faults, %d operations: %d grants, %d reads, %d writes accepted, %d stale ones refused, %d failed, %d unknown; %d sessions' grants expired",
		r.settings.servers, len(r.strikes), ops, len(r.history.grants), reads, results[resultDone], results[resultRefused], results[resultFailed], results[resultUnknown], r.watcher.expired))
	t.lines = append(t.lines, "  in the servers' logs: "+r.tells)
	t.violations = append(t.violations, r.judge.violations...)
	t.undecided = append(t.undecided, r.judge.undecided...)
}

func (t *table) print(w io.Writer) {
	slices.Sort(t.kinds)
	ms := func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "fault\ttimes\tlongest gap without a grant\tmedian\tall served, after its end, at most")
	sum := 0
	for _, k := range t.kinds {
		f := t.of[k]
		slices.Sort(f.gap)
		sum += f.times
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\n", k, f.times, ms(f.gap[len(f.gap)-1]), ms(f.gap[len(f.gap)/2]), ms(slices.Max(f.served)))
	}
	fmt.Fprintf(tw, "all\t%d\t\t\t\n", sum)
	_ = tw.Flush()
	for _, l := range t.lines {
		fmt.Fprintln(w, l)
	}
	for _, u := range t.undecided {
		fmt.Fprintln(w, "undecided:", u)
	}
	seen := map[string]int{}
	for _, v := range t.violations {
		if seen[v.check]++; seen[v.check] <= 10 {
			fmt.Fprintf(w, "VIOLATION: %s: %s\n", v.check, v.what)
		}
	}
	fmt.Fprintf(w, "violations: %d\n", len(t.violations))
}

// verdict is an error if something was violated; without gates, if nothing was.
func (t *table) verdict(blind bool) error {
	switch {
	case !blind && len(t.violations) > 0:
		return errors.New("violated")
	case blind && !slices.ContainsFunc(t.violations, func(v violation) bool {
		return v.check == "lost update" || v.check == "stale write accepted" || v.check == "ledger"
	}):
		return errors.New("the gates were off, clients were stopped, and no damage was seen: the checkers are blind")
	}
	return nil
}
