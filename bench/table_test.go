package main

import (
	"io"
	"strings"
	"testing"
)

const printed = `goos: linux
pkg: holdfast/engine/cluster
BenchmarkUncontended/workers=1-2         	    1444	    856387 ns/op	      1168 ops/s	       736.0 p50-µs	      3698 p99-µs
BenchmarkUncontended/workers=512-2       	    7238	    955514 ns/op	      1047 ops/s	    495818 p50-µs	    717805 p99-µs
BenchmarkHandOff/waiters=16-2            	    1737	    921977 ns/op	      1085 ops/s	       551.0 p50-µs	      5726 p99-µs
BenchmarkKeepalives-2                    	  169489	      9796 ns/op
PASS
ok  	holdfast/engine/cluster	27.042s
`

func TestTable(t *testing.T) {
	lines, err := parse(strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := table(&out, lines); err != nil {
		t.Fatal(err)
	}
	const want = `
  operation                        at once  rounds  per second    p50     p99
  acquire + release                      1    1444        1168  736µs   3.7ms
  acquire + release                    512    7238        1047  496ms   718ms
  hand-off of one lock                  16    1737        1085  551µs  5.73ms
  keepalive                              –  169489      102082      –       –
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNothingMeasured(t *testing.T) {
	if _, err := parse(strings.NewReader("PASS\n")); err == nil {
		t.Error("no benchmark, no error")
	}
	if _, err := parse(strings.NewReader("BenchmarkX-2 ten 1 ns/op\n")); err == nil {
		t.Error("a count that is no number, and no error")
	}
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"extra"}, "only flags"},
		{[]string{"-only", "gaps"}, "want rates or gap"},
		{[]string{"-kills", "0"}, "-kills 0"},
	} {
		if err := run(t.Context(), c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v", c.args, err)
		}
	}
}

func TestMeasureSync(t *testing.T) {
	c, err := measureSync(t.TempDir())
	if err != nil || c.p50 > c.p99 {
		t.Errorf("got %+v, %v", c, err)
	}
}
