// Package cluster is the Go client of Holdfast's own lock service. [Dial]
// gives a [Client]; [Client.Locker] is the portable locker on it, and the
// client's own methods are what only this service has: shared locks, permits,
// values, lock-delay, once-per, maximum hold, lists, watches, revokes.
//
// One client has one connection and one session stream, whatever number of
// sessions, locks and calls it carries. Inside, from the outside in:
//
//   - client.go, values.go, read.go, watch.go, operator.go: what a user calls;
//   - driver.go, session.go: the engine's side of package driver;
//   - link.go: the calls that have no answer yet, and the sessions. They
//     outlive connections: a call is sent again on each new stream, under the
//     same identity, until it is answered or its context ends (C3);
//   - connect.go: finds a server, keeps one stream, backs off between tries;
//   - stream.go, answers.go: one stream: what is written, what came back;
//   - conn.go: one TCP connection and the HTTP/2 on it.
//
// No lock is held during I/O. The package imports holdfast, driver, fence and
// wire, and keeps no lease: the watchdog of package holdfast does. Start
// reading at [Dial], then link.go.
package cluster
