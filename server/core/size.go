package core

// Size says how much is in a state.
type Size struct {
	Sessions int `json:"sessions"`
	Locks    int `json:"locks"`
	Grants   int `json:"grants"`
	Waits    int `json:"waits"`
	Closed   int `json:"closed"` // locks that are closed by a rule
	Events   int `json:"events"` // kept for watchers
}

// Size counts what is in the state; it costs the same whatever that is.
func (s *State) Size() Size {
	return Size{
		Sessions: s.sessions.Len(), Locks: s.locks.Len(), Grants: s.grants.Len(), Waits: s.waits.Len(),
		Closed: s.closings.Len(), Events: s.events.Len(),
	}
}
