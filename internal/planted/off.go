//go:build !planted

package planted

// Able reports whether bugs can be planted in this build.
const Able = false

// On reports whether the bug of that name is planted: never in this build.
func On(string) bool { return false }
