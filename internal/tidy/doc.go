// Package tidy is Holdfast's style as a failing test: sizes, import arrows,
// banned calls, documentation of exported names. It has no code of its own
// outside its tests; what it asks for is in docs/STYLE.md. (TigerBeetle's
// src/tidy.zig and Pebble's lint test showed that a style that a test enforces
// is one that holds.)
//
// To change a rule, change the table in rooms_test.go or the constants in
// tidy_test.go together with the ADR that explains it.
package tidy
