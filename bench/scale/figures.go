package main

import (
	"fmt"
	"io"
	"time"
)

// figures prints what was measured, a line each, and says meanwhile what goes
// on.
type figures struct {
	out, progress io.Writer
	began         time.Time
}

// doing says what takes time now.
func (f *figures) doing(format string, args ...any) {
	fmt.Fprintf(f.progress, "%7.1fs  %s\n", time.Since(f.began).Seconds(), fmt.Sprintf(format, args...))
}

// tell prints one figure.
func (f *figures) tell(name, format string, args ...any) {
	fmt.Fprintf(f.out, "%-46s  %s\n", name, fmt.Sprintf(format, args...))
}

// seconds is a duration for people.
func seconds(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

// megabytes is a size for people.
func megabytes(bytes float64) string { return fmt.Sprintf("%.0f MB", bytes/1e6) }
