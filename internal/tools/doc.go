// Package tools pins the programs that generate and check code. They are a
// module of their own, so that nobody who imports holdfast inherits them.
package tools
