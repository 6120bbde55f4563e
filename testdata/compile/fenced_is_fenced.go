// compiles: a fenced locker is one, and gives an efficiency locker
package main

import "holdfast"

func elect(*holdfast.FencedLocker)     {}
func cache(*holdfast.EfficiencyLocker) {}

func start(l *holdfast.FencedLocker) {
	elect(l)
	cache(l.Efficiency())
}

func main() {}
