// Package tools pins the programs that generate and check code, and etcd, which
// make bench measures Holdfast beside. They are a module of their own, so that
// nobody who imports holdfast inherits them.
package tools
