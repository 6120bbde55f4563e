package sim

// The situations.
const (
	SilentNode      Situation = "a node is silent because its disk hangs"
	SnapshotSent    Situation = "a member is sent a snapshot"
	DrainAfterStall Situation = "connections are drained after a stall"
	UnknownOutcome  Situation = "leadership lost with an entry in flight"
	MemberRemoved   Situation = "a member was removed"
)
