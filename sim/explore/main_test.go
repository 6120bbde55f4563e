package explore

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
)

// mostStates bounds every exploration of the tests: one that sees more is not
// complete, and fails. mostMemory bounds them all together, in bytes.
const (
	mostStates = 250_000
	mostMemory = 2_000_000_000
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a frontier is large and lives long
	debug.SetMemoryLimit(mostMemory / 2)
	code := m.Run()
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	if now.Sys > mostMemory { // the most that there ever was
		fmt.Printf("the explorer took %d MB of memory, more than %d: explore less deep\n", now.Sys>>20, mostMemory>>20)
		code = 1
	}
	os.Exit(code)
}
