package main

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A line is one benchmark's result: its name without the leading "Benchmark"
// and the number of CPUs, and its values by unit.
type line struct {
	name   string
	rounds int
	values map[string]float64
}

// parse reads what go test -bench prints.
func parse(r io.Reader) ([]line, error) {
	var lines []line
	s := bufio.NewScanner(r)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		l := line{name: strings.TrimPrefix(f[0], "Benchmark"), values: make(map[string]float64)}
		if i := strings.LastIndexByte(l.name, '-'); i > 0 {
			l.name = l.name[:i]
		}
		var err error
		if l.rounds, err = strconv.Atoi(f[1]); err != nil {
			return nil, fmt.Errorf("line %q: %w", s.Text(), err)
		}
		for i := 2; i < len(f); i += 2 {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("line %q: %w", s.Text(), err)
			}
			l.values[f[i+1]] = v
		}
		lines = append(lines, l)
	}
	if err := s.Err(); err != nil {
		return nil, err
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("go test printed no benchmark: does -bench match one?")
	}
	return lines, nil
}

// names says in words what the benchmarks of engine/cluster measure.
var names = map[string]string{
	"Uncontended":       "acquire + release",
	"UncontendedDriver": "acquire + release, engine alone",
	"HandOff":           "hand-off of one lock",
	"Keepalives":        "keepalive",
}

// nameWidth makes the first column flush left in a table that is flush right.
const nameWidth = 31

// table prints the results, aligned.
func table(out io.Writer, lines []line) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%-*s\tat once\trounds\tper second\tp50\tp99\t\n", nameWidth, "operation")
	for _, l := range lines {
		name, at, _ := strings.Cut(l.name, "/")
		if words, ok := names[name]; ok {
			name = words
		}
		_, at, _ = strings.Cut(at, "=")
		rate, ok := l.values["ops/s"]
		if !ok && l.values["ns/op"] > 0 {
			rate = float64(time.Second) / l.values["ns/op"]
		}
		fmt.Fprintf(w, "%-*s\t%s\t%d\t%.0f\t%s\t%s\t\n", nameWidth, name, dash(at), l.rounds, rate, micros(l, "p50-µs"), micros(l, "p99-µs"))
	}
	return w.Flush()
}

func dash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

// micros is a value in microseconds as a duration with three digits or so.
func micros(l line, unit string) string {
	v, ok := l.values[unit]
	if !ok {
		return "–"
	}
	d := time.Duration(v * float64(time.Microsecond))
	switch {
	case d >= 100*time.Millisecond:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
