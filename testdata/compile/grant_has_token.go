// compiles: a grant has a token
package main

import (
	"holdfast"
	"holdfast/fence"
)

func token(g *holdfast.Grant) fence.Token { return g.Token() }

func main() {}
