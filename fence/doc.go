// Package fence is the vocabulary that a lock service and the resources it
// protects have in common: the fencing token, the order of tokens, and the
// verdict of a gate on a token.
//
// A lease plus a pause equals two holders, sooner or later. No client can
// prevent the second holder; a resource that remembers the highest token it has
// seen and refuses anything lower makes it harmless (Kleppmann, "How to do
// distributed locking", 2016; Burrows, "The Chubby lock service", OSDI 2006,
// which calls the token a sequencer).
//
// The package is a leaf: it imports the standard library only, so that a gate
// costs its user nothing but this package and the client of the resource.
// Start reading at [Token], then [Judge].
package fence
