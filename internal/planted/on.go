//go:build planted

package planted

// Able reports whether bugs can be planted in this build.
const Able = true

var bug string

// On reports whether the bug of that name is planted.
func On(name string) bool { return bug == name }

// Plant plants one bug from now on, in place of any other; "" is none. It is
// for one goroutine, before a world begins.
func Plant(name string) { bug = name }
