// Package fencetest is the contract of a gate as a test suite: a gate is done
// when it passes.
//
//	func TestGate(t *testing.T) {
//		fencetest.Run(t, fencetest.Harness{New: newResource, ArmBound: 5 * time.Second})
//	}
//
// The harness says how to make a fresh guarded resource, how to open a gate on
// it as another process would, and what took effect there. There is nothing to
// leave out: a gate that cannot do a thing fails. The suite itself is tested
// against gates that are broken on purpose, each of which it must catch.
//
// What needs real processes (one that is killed, one that is stopped) is for
// the gate's own tests. The package imports package fence and nothing else of
// ours. Start reading at [Harness], then the list of checks in checks.go.
package fencetest
