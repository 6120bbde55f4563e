// Package memgate guards a resource that lives in the memory of this process:
// a function that changes it. It is for tests, examples and simulation.
//
// It fences within one process only: the marks live in a [Memory], which other
// processes do not see and which ends with this one. A resource that another
// process can reach needs a gate that keeps its mark at that resource, such as
// package sqlgate.
//
// The package imports package fence and nothing else of ours. Start reading at
// [New], then [Gate.Do].
package memgate
