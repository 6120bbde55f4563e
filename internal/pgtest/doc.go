// Package pgtest starts a real PostgreSQL for tests: a cluster of its own in a
// temporary directory, that nobody else uses and that ends with the tests.
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		db, err := sql.Open("pgx", pgtest.Shared(t).Database(t))
//
// It needs the programs initdb and postgres (Debian: apt-get install
// postgresql), in PATH or where Debian keeps them. PostgreSQL refuses to run as
// root: then it runs as user postgres. The server is a child of the test
// binary and is ended by the kernel if that dies.
//
// What a test writes to such a cluster does not survive a crash of the
// machine: it does not sync.
//
// Only tests and the program chaos import the package; it imports nothing of ours. Start reading at
// [Start].
package pgtest
