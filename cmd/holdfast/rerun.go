package main

import (
	"context"
	"fmt"
	"time"

	"holdfast"
	"holdfast/engine/cluster"
)

// rerunNote looks whether an earlier run of this period was granted the lock
// and did not end with success, as the service's recent events tell it. A
// success would have closed the lock, so any earlier grant of the period is
// one. It is for the log only: what cannot be learned in time is left out.
func (r *runRequest) rerunNote(client *cluster.Client, grant *holdfast.Grant) string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	status, err := client.Status(ctx)
	if err != nil {
		return ""
	}
	const kept = 10_000 // events that the service keeps at least
	after := uint64(0)
	if status.Revision > kept {
		after = status.Revision - kept
	}
	var events []cluster.Event
	for batch, err := range client.Watch(ctx, cluster.WatchOptions{Lock: r.name, After: &after}) {
		if err != nil {
			return ""
		}
		events = append(events, batch.Events...)
		if batch.Revision >= status.Revision || reached(batch.Events, grant.Token().Number) {
			break
		}
	}
	return earlierRun(events, grant.Token().Number, r.acquire.OncePer)
}

// reached reports whether the events tell of the grant.
func reached(events []cluster.Event, token uint64) bool {
	for _, e := range events {
		if e.Kind == "granted" && e.Token.Number >= token {
			return true
		}
	}
	return false
}

// earlierRun says which run of the period before the grant did not succeed.
func earlierRun(events []cluster.Event, token uint64, period time.Duration) string {
	var now time.Duration
	for _, e := range events {
		if e.Kind == "granted" && e.Token.Number == token {
			now = e.Clock
		}
	}
	note := ""
	for _, e := range events {
		if now == 0 || e.Grant >= token || e.Clock < now-period*9/10 {
			continue
		}
		switch e.Kind {
		case "granted":
			note = fmt.Sprintf("this is a rerun: grant %d (%s), %v ago in this period, did not end with success",
				e.Grant, holderName(e.Label, e.Host, e.SessionID), (now - e.Clock).Round(time.Millisecond))
		case "released":
			if note != "" && e.Cause != "released" {
				note += " (" + e.Cause + ")"
			}
		}
	}
	return note
}
