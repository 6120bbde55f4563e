// Package lab is the web lab: a page on which a visitor stages, step by step,
// the failure that no lock service can prevent, and sees the gate stop it.
// [Start] serves it.
//
// Nothing on the page is simulated. Each page has a world of its own: a real
// lock service on a port of its own (package server), two real worker
// processes and a real ledger behind the real gate (package lab/stage). The
// page hears of all that happens in its world by the world's journal, acts by
// a small API that only the lab serves, and reads the lock from the service's
// public API, which is passed on.
//
//   - lab.go: the configuration, the port, the directory; worlds.go: which
//     worlds live, who looks at them, which of them may stream;
//   - world.go, direct.go, hear.go: one world: its goroutine, what a visitor
//     can have done, what workers and service tell; round.go: one service, one
//     ledger, two workers; seat.go: one worker as its world knows it;
//   - journal.go, event.go: what happened;
//   - http.go and http_*.go: the page, the API, the way to the service, and
//     the guards before all of them; strict.go, action.go, settings.go,
//     refusal.go: what may be said there, and how it is refused.
//
// The page itself is in the folder page, as it is served.
//
// The package may import any public package of the module, wire and server.
// Start reading at [Start], then the type world.
package lab
