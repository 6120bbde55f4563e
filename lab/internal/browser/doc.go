// Package browser drives a real headless Chromium: it clicks where a person
// would click, presses keys, measures what is drawn, and remembers everything
// that a page must not do. The tests of the lab's page and the program that
// takes its pictures use it; no part of the product imports it.
//
// Start with [Launch] and [Browser.Open]. A [Tab] has real input only: Click
// moves the mouse to a place that is really the button's, Press is a key of
// the keyboard. Eval reads; it is not for acting.
//
// Every tab collects faults ([Tab.Faults]): console errors, exceptions,
// violations of the content security policy, and requests that leave the
// page's own origin.
package browser
