package server

import (
	"fmt"
	"slices"
	"sync"

	"holdfast/driver"
	"holdfast/server/core"
	"holdfast/wire/holdfastv1"
)

// voices says which stream speaks for which session (B12). A session has at
// most one voice: a higher attach number of the same client process replaces
// it silently, another process (which must have copied the secret) closes the
// old stream, and that is logged.
type voices struct {
	mu sync.Mutex
	of map[core.SessionID]voice
}

type voice struct {
	stream   *stream
	instance [16]byte
	number   uint64
}

func newVoices() *voices { return &voices{of: make(map[core.SessionID]voice)} }

// attach makes st the voice of a session. The second result is the stream of
// another client process that had it, which must be closed. The error is of
// kind Denied: the number is not above that of the present voice; or of kind
// Unavailable: st has ended.
func (v *voices) attach(id core.SessionID, st *stream, instance [16]byte, number uint64) (robbed *stream, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if st.voiceOf == nil {
		return nil, &driver.Error{Kind: driver.Unavailable, Outcome: driver.No, Msg: "the stream has ended: attach on the next one"}
	}
	old, ok := v.of[id]
	switch {
	case !ok:
	case old.instance != instance:
		robbed = old.stream
	case number < old.number, number == old.number && old.stream != st && number > 0:
		return nil, &driver.Error{Kind: driver.Denied, Outcome: driver.No, Msg: fmt.Sprintf("session %d has a stream with attach number %d: want a higher number than %d", id, old.number, old.number)}
	}
	if ok && old.stream != st {
		delete(old.stream.voiceOf, id)
	}
	v.of[id] = voice{stream: st, instance: instance, number: number}
	st.voiceOf[id] = struct{}{}
	if robbed == st {
		robbed = nil // one stream that speaks with two tongues robs itself
	}
	return robbed, nil
}

// opened makes st the voice of a session that it opened, unless a stream has
// attached since: then this is the late copy of an open. Attaching counts from
// 1, so any attach is above an open.
func (v *voices) opened(id core.SessionID, st *stream, instance [16]byte) (robbed *stream) {
	v.mu.Lock()
	old, ok := v.of[id]
	v.mu.Unlock()
	if ok && old.instance == instance && old.number > 0 {
		return nil
	}
	robbed, _ = v.attach(id, st, instance, 0)
	return robbed
}

// speaks reports whether st is the voice of a session.
func (v *voices) speaks(st *stream, id core.SessionID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[id].stream == st
}

// spokenBy is how many sessions st speaks for.
func (v *voices) spokenBy(st *stream) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(st.voiceOf)
}

// attached reports whether a stream to this node speaks for a session.
func (v *voices) attached(id core.SessionID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.of[id]
	return ok
}

// count is how many sessions have a voice here.
func (v *voices) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.of)
}

// maxEnded is how many ended sessions a stream remembers.
const maxEnded = 1024

// drop forgets a session that ended. Its stream remembers it for a while, so
// that what the client had sent before it knew is answered rightly.
func (v *voices) drop(id core.SessionID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if old, ok := v.of[id]; ok {
		delete(old.stream.voiceOf, id)
		delete(v.of, id)
		if old.stream.ended = append(old.stream.ended, id); len(old.stream.ended) > maxEnded {
			old.stream.ended = slices.Clone(old.stream.ended[maxEnded/2:])
		}
	}
}

// endedOn reports whether st spoke for a session until that ended.
func (v *voices) endedOn(st *stream, id core.SessionID) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Contains(st.ended, id)
}

// leave forgets a stream that ended. Its sessions live on, and it speaks for
// none any more, whatever it asked for is answered with.
func (v *voices) leave(st *stream) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range st.voiceOf {
		delete(v.of, id)
	}
	st.voiceOf = nil
}

// rob tells a stream that another client process took a session over, and
// closes it.
func (s *service) rob(id core.SessionID, old, by *stream) {
	if old == nil {
		return
	}
	s.metrics.takeovers.Inc()
	s.log.Warn("a session's secret is used by two client processes; the older stream is closed",
		"session", uint64(id), "old_peer", old.peer, "new_peer", by.peer)
	const reason = "another client process attached to the session with its secret"
	old.answer(&holdfastv1.ServerFrame{Body: &holdfastv1.ServerFrame_Detached{
		Detached: &holdfastv1.DetachedNotice{SessionId: uint64(id), Reason: reason},
	}})
	old.close(&driver.Error{Kind: driver.Denied, Outcome: driver.Unknown, Msg: fmt.Sprintf("%s (session %d); connect again for the other sessions of this stream", reason, id)})
}
