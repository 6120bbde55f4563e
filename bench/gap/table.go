package gap

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"
)

// WriteTable prints results side by side.
func WriteTable(out io.Writer, results []Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%-*s\ttimes\tgap min\tmedian\tmax\tnew leader\tmax\tall served\tmax\t\n", nameWidth, "the leader's end")
	for _, end := range []struct {
		name string
		of   func(Result) []Outage
	}{
		{"kill -9", func(r Result) []Outage { return r.Kills }},
		{"SIGTERM", func(r Result) []Outage { return r.Stops }},
	} {
		for _, r := range results {
			if list := end.of(r); len(list) > 0 {
				row(w, end.name+", "+r.Service, list)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	for _, r := range results {
		fmt.Fprintf(out, "%s: %.0f acquires a second before the first kill\n", r.Service, r.PerSecond)
		for _, text := range slices.Sorted(maps.Keys(r.Failed)) {
			fmt.Fprintf(out, "  %d tries failed: %s\n", r.Failed[text], text)
		}
	}
	return nil
}

// nameWidth makes the first column flush left in a table that is flush right.
const nameWidth = 20

func row(w io.Writer, name string, list []Outage) {
	gap := column(list, func(o Outage) time.Duration { return o.Gap })
	leader := column(list, func(o Outage) time.Duration { return o.Leader })
	all := column(list, func(o Outage) time.Duration { return o.All })
	fmt.Fprintf(w, "%-*s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", nameWidth, name, len(list),
		millis(gap[0]), millis(median(gap)), millis(gap[len(gap)-1]),
		millis(median(leader)), millis(leader[len(leader)-1]), millis(median(all)), millis(all[len(all)-1]))
}

// column is one figure of all outages, in rising order.
func column(list []Outage, of func(Outage) time.Duration) []time.Duration {
	var c []time.Duration
	for _, o := range list {
		c = append(c, of(o))
	}
	slices.Sort(c)
	return c
}

// median is the middle of a sorted list, or the mean of the two in the middle.
func median(sorted []time.Duration) time.Duration {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func millis(d time.Duration) string { return d.Round(time.Millisecond).String() }
