// h.Token undefined (type *holdfast.Hold has no field or method Token)
package main

import "holdfast"

func token(h *holdfast.Hold) { _ = h.Token() }

func main() {}
