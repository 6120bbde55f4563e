// cannot use l (variable of type *holdfast.EfficiencyLocker) as *holdfast.FencedLocker value in argument to elect
package main

import "holdfast"

func elect(*holdfast.FencedLocker) {}

func start(l *holdfast.EfficiencyLocker) { elect(l) }

func main() {}
