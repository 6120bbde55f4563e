package sim

// The situations.
const (
	SilentNode          Situation = "a node is silent because its disk hangs"
	SnapshotSent        Situation = "a member is sent a snapshot"
	SnapshotOverGap     Situation = "a snapshot is installed over a gap in the log"
	DrainAfterStall     Situation = "connections are drained after a stall"
	DrainFinds          Situation = "a drain finds a keepalive"
	UnknownOutcome      Situation = "leadership lost with an entry in flight"
	DeposedWithExpiry   Situation = "leader deposed with an expiry in its log"
	DeposedWithRevoke   Situation = "leader deposed with a revoke in its log"
	TwoLeaders          Situation = "two leaders at once in different terms"
	MemberRemoved       Situation = "a member was removed"
	GrantedAndEnded     Situation = "grant to a session that ended in the same entry"
	GrantedAndCancelled Situation = "waiter cancelled in the entry that grants it"
	ClearAndExpire      Situation = "clear and expire of one session in one entry"
	ExpiryVoided        Situation = "an expiry comes too late"
	ExpiredByAnother    Situation = "one leader suspects, another one expires"
	FromTheLane         Situation = "retry answered from the lane"
	SettledCopy         Situation = "a copy below its lane's last"
	CopyAfterCancel     Situation = "a copy of a request that was cancelled"
	CancelFirst         Situation = "a cancel overtakes its request"
	OpenFound           Situation = "an open finds its session by the secret"
	RunTaken            Situation = "a shared head takes the run behind it along"
	BehindTheSeal       Situation = "a reader waits because a number was burnt on the run"
	ClosedWithWaiters   Situation = "a lock with waiters is closed by lock-delay"
	RefusedInQueue      Situation = "once-per refuses those who wait"
	MaximumReached      Situation = "a maximum hold is reached"
	RevokeAcknowledged  Situation = "a holder gives back what it was asked for"
	RevokeForced        Situation = "a grant is freed because its holder does not answer"
	ClientFirst         Situation = "a client gives up a session that lives"
	ZombieRefused       Situation = "zombie write refused"
	MemberJoined        Situation = "a new member joined"
	BegunAnew           Situation = "the service began anew from a backup or from a lone survivor"
	FalseRetry          Situation = "another request under a name that is used"
	CloneHeld           Situation = "a client that holds became two"
)

// Situations lists all of them: a run of many worlds must have met each.
func Situations() []Situation {
	return []Situation{
		SilentNode, SnapshotSent, SnapshotOverGap, DrainAfterStall, DrainFinds, UnknownOutcome, DeposedWithExpiry, DeposedWithRevoke,
		TwoLeaders, MemberRemoved, GrantedAndEnded, GrantedAndCancelled, ClearAndExpire, ExpiryVoided, ExpiredByAnother, FromTheLane,
		SettledCopy, CopyAfterCancel, CancelFirst, OpenFound, RunTaken, BehindTheSeal, ClosedWithWaiters, RefusedInQueue,
		MaximumReached, RevokeAcknowledged, RevokeForced, ClientFirst, ZombieRefused, MemberJoined, BegunAnew, FalseRetry, CloneHeld, ValueByToken, ValueRefused, PassedOn, CopyRefused,
	}
}

// Unmet are the situations that none of many worlds has met.
func Unmet(results []Result) (out []Situation) {
	for _, s := range Situations() {
		met := 0
		for _, r := range results {
			met += r.Met[s]
		}
		if met == 0 {
			out = append(out, s)
		}
	}
	return out
}
