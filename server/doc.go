// Package server is the lock service as a process sees it: the shells around
// the pure machines, and the API on its port. It moves bytes, reads clocks and
// decides nothing: what a command does is decided in package core, when a
// silent session ends in package lease, what is committed in package replica.
//
// A [Node] (files node*.go) is one member: a loop, which alone touches the
// machines, a goroutine that alone calls the store, and nothing shared between
// them but queues. The API (rpc*.go, http*.go, stream*.go) turns calls into
// [Node.Submit], [Node.Keepalive], [Node.View] and [Node.Watch], and answers
// into errors that say what to do. [Start] puts the two together.
//
// It may import the rooms below it (core, lease, replica, store), wire, driver
// and fence. Start reading at [Start], then [Node], then the type loop.
package server
