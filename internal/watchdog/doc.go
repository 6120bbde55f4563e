// Package watchdog is the client side of one session as a pure machine:
// instants, wishes and answers go in, calls to make and changes to tell come
// out. It decides when to keep the session alive, when to try again, when a
// grant is in jeopardy and when it is lost; it reads no clock, does no I/O,
// starts no goroutine and draws no random number, so package holdfast runs it
// on a real clock, and an explorer or a simulator on an invented one.
//
// It imports nothing of ours. Start reading at [Machine] and its numbered
// promises, then at [Machine.Tick]; the rules it follows are B5, B6, B10, C1,
// C2 and C3.
package watchdog
