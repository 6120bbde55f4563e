// cannot use d (variable of interface type driver.Driver) as driver.Fenced value in argument to holdfast.NewFencedLocker
package main

import (
	"holdfast"
	"holdfast/driver"
)

func start(d driver.Driver) { _, _ = holdfast.NewFencedLocker(d, nil) }

func main() {}
