//go:build planted

package sim

import "holdfast/internal/planted"

// Plant plants the bug of that name in all worlds from now on; "" is none.
func Plant(bug string) { planted.Plant(bug) }
