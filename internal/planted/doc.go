// Package planted is how the simulator takes a rule out of the code that it
// tests: a check that must object to each missing rule is itself tested that
// way (package sim). In every ordinary build [On] is constant, and what stands
// behind it is not compiled in; with the build tag "planted" the simulator
// chooses one bug by its name.
//
// A bug is named after the rule of docs/PROTOCOL.md that it breaks, then what
// is wrong: "B4-any-since". A place in the code that has one reads
//
//	if planted.On("B4-any-since") { … what looks just as good and is not … }
//
// The package imports nothing. Start reading at [On].
package planted
