//go:build planted

package sim

import "time"

// bugs are all bugs that must be caught, in the order of their rules.
var bugs = []bug{
	{name: "A1-token-of-its-own", what: "each reader's token is its own number, not its run's", within: 20, quick: true},
	{name: "A1-release-by-lock", what: "a release that names an old grant frees the new one of the same lock", within: 20, focus: ill(Duplicate, RepeatCall), says: "calls that arrive twice"},
	{name: "A2-counter-restarts", what: "the counter begins anew when a lock is dropped", within: 20},
	{name: "A4-nothing-above", what: "a restore begins above the backup, and not above what was minted since", within: 20, focus: ill(Backup, Restore), says: "restores"},
	{name: "A5-slot-taken", what: "every permit is slot 0", within: 50, focus: manyLocks, says: "many locks"},
	{name: "I2-writer-joins-readers", what: "a writer is granted beside readers", within: 20},
	{name: "I3-waiter-outlives-its-session", what: "the end of a session leaves its waits in the queues", within: 20},
	{name: "I4-not-handed-on", what: "a release does not grant the head of the queue", within: 20},
	{name: "I5-last-first", what: "the last of a queue is granted first", within: 20, quick: true},
	{name: "I5-reader-overtakes", what: "a reader joins readers in spite of a writer who waits", within: 20},
	{name: "B1-own-term-only", what: "a new leader passes over what its predecessor proposed", within: 20, quick: true, focus: ill(Flap, Crash), says: "flaps and crashes"},
	{name: "B2-clock-of-its-own", what: "a leader's clock starts at its uptime", within: 20},
	{name: "B2-not-the-maximum", what: "the log's clock is that of the latest header", within: 20, quick: true},
	{name: "B3-memory-kept", what: "who was heard outlives an office", within: 100},
	{name: "B3-leads-before-it-applied", what: "an office starts at the election", within: 20, focus: all(several, ill(Flap, Kill)), says: "flaps, servers that die"},
	{name: "B4-any-since", what: "an expiry ends whatever session it names", within: 100},
	{name: "B4-no-suspicion", what: "nothing is logged of a silent session before its expiry", within: 20, focus: flaps, says: "flaps"},
	{name: "B5-no-clear", what: "a suspected session's keepalive is answered like any other", within: 20, quick: true},
	{name: "B5-in-flight-forgotten", what: "only suspicions that are applied count", within: 100, focus: silences, says: "slow disks, clients that fall silent"},
	{name: "B5-no-confirmation", what: "keepalives are answered by a leader that only believes to lead", within: 100, focus: leaseReads, says: "partitions, transfers"},
	{name: "B6-half-only", what: "sessions that this leader never heard get T/2 too", within: 20, focus: flaps, says: "flaps"},
	{name: "B6-no-ticks", what: "no clock is logged", within: 100, focus: flaps, says: "flaps"},
	{name: "B8-no-delay-after-expiry", what: "no lock-delay follows an expiry", within: 100, focus: all(manyLocks, ill(Restart)), says: "many locks, clients that die"},
	{name: "B8-no-delay-after-revoke", what: "no lock-delay follows a revoke", within: 50, focus: ill(RevokeNow, RevokeAsk), says: "revokes"},
	{name: "B8-ends-forgotten", what: "no grant is asked back at its maximum hold", within: 100, focus: manyLocks, says: "many locks"},
	{name: "B9-stalls-count", what: "the clock runs on over a stall", within: 20, focus: stalls, says: "servers that stand still"},
	{name: "B9-expiry-at-once", what: "what is due after a stall is done before connections are read", within: 50, focus: stalls, says: "servers that stand still"},
	{name: "B9-a-stall-is-silence", what: "both: a stall counts, and expiries follow it at once", within: 20, focus: stalls, says: "servers that stand still"},
	{name: "B10-from-answer", what: "the client's lease counts from the answer's arrival", within: 100, focus: lateAnswers, says: "late messages, clients that fall silent"},
	{name: "B10-no-margin", what: "the client's lease has no margin", within: 50, focus: all(skewed, ill(CutClient)), says: "clocks that differ by 9 %, clients cut off"},
	{name: "B10-clock-stops-in-sleep", what: "the client's clock stands still while its machine sleeps", within: 20, focus: all(inside, ill(Sleep)), says: "machines that sleep"},
	{name: "B11-freed-at-once", what: "a revoked grant is freed without waiting for T", within: 20, focus: ill(RevokeAsk, CutClient), says: "polite revokes"},
	{name: "B11-in-flight-forgotten", what: "a keepalive is answered though a revoke is in flight", within: 20, focus: marks, says: "many polite revokes, slow disks, clients that stand still"},
	{name: "B11-holder-goes-on", what: "a holder that is asked for its grant goes on", within: 100, focus: marks, says: "many polite revokes, slow disks, clients that stand still"},
	{name: "B11-no-burn", what: "a revoke at once burns no number", within: 20, quick: true, focus: ill(RevokeNow), says: "revokes at once"},
	{name: "B11-not-sealed", what: "readers join a run of which a grant was revoked", within: 50, focus: seals, says: "many revokes"},
	{name: "B11-sealed-run-joined", what: "the seal is written and not looked at", within: 100, focus: seals, says: "many revokes"},
	{name: "B12-opens-anew", what: "each open starts a session", within: 20, quick: true},
	{name: "B12-found-is-not-heard", what: "an open that finds its session does not keep it alive", within: 50, focus: ill(LoseCall, CutClient), says: "lost calls, clients cut off"},
	{name: "B13-open-after-the-grant", what: "once-per does not close the lock at the grant", within: 20, focus: manyLocks, says: "many locks"},
	{name: "B13-failure-closes", what: "a failed run closes the lock in spite of retry-failed", within: 50, focus: manyLocks, says: "many locks"},
	{name: "B13-from-the-end", what: "the period counts from the end of a run", within: 20, focus: manyLocks, says: "many locks"},
	{name: "C1-copy-executed", what: "a copy of a request is executed again", within: 20, quick: true, focus: ill(Duplicate, RepeatCall), says: "calls that arrive twice"},
	{name: "C1-late-copy-executed", what: "a request below its lane's last is executed", within: 50, focus: ill(Duplicate, RepeatCall), says: "calls that arrive twice"},
	{name: "C2-unseen-not-recorded", what: "a cancel of what was not seen leaves no trace", within: 50, focus: ill(Delay, Drop, LoseCall), says: "late and lost calls"},
	{name: "C2-granted-stays", what: "a cancel of what was granted keeps the grant", within: 20},
	{name: "C2-cancel-not-sent", what: "who gives up an acquire tells nobody", within: 20},
	{name: "C2-acts-on-a-late-grant", what: "a grant that comes after the cancel was sent is used", within: 20, focus: impatient, says: "slow links, crowds"},
	{name: "C3-release-not-repeated", what: "a release without an answer is taken as done", within: 20, focus: ill(Drop, LoseCall), says: "lost calls"},
	{name: "C4-unknown-is-no", what: "an acquire that was appended and not applied is answered no", within: 100, focus: all(several, ill(Flap, Crash, Kill, Transfer)), says: "flaps and crashes"},
	{name: "D1-grant-before-commit", what: "a grant is told before its entry is committed", within: 20, quick: true},
	{name: "D1-append-before-sync", what: "an append is acknowledged before it is durable", within: 100, focus: ill(Crash, CrashAll), says: "crashes"},
	{name: "D1-vote-not-stored", what: "a vote is answered and not written", within: 100, focus: forgottenVotes, says: "crashes, flaps, late messages"},
	{name: "D2-speaks-on", what: "a node whose disk hangs goes on speaking", within: 20, focus: all(several, ill(DiskHang)), says: "disks that hang"},
	{name: "D3-error-ignored", what: "a write that failed counts as done", within: 20, focus: ill(DiskError, Crash), says: "disk errors"},
	{name: "D3-no-renewal", what: "a start trusts what it reads, also what no sync returned for", within: 50, focus: ill(DiskError, Crash, Kill), says: "disk errors, crashes"},
	{name: "D4-snapshot-beside-the-log", what: "a snapshot does not wait for the batches before it", within: 100, focus: ill(DiskSlow, Crash), says: "slow disks, crashes"},
	{name: "D4-log-cut-first", what: "the log is cut before its snapshot is durable", within: 100, focus: all(snapshots, ill(DiskSlow, Crash)), says: "slow disks, crashes"},
	{name: "D5-tree-shared", what: "a snapshot shares the lanes with the state that goes on", within: 20, quick: true, focus: snapshots, says: "snapshots every 20 entries"},
	{name: "D5-changed-in-place", what: "a value in a tree is changed", within: 20, focus: snapshots, says: "snapshots every 20 entries"},
	{name: "D6-no-report", what: "raft is not told how a snapshot's transfer ended", within: 50, focus: all(several, snapshots, ill(Crash, Partition, Drop)), says: "snapshots to members that lag"},
	{name: "D7-wiped-keeps-its-id", what: "a machine without its data comes back under its old ID", within: 20, focus: ill(Wipe, Crash, Kill), says: "wiped machines, crashes"},
	{name: "D8-no-lanes", what: "a snapshot misses what the lanes remember", within: 50, focus: all(snapshots, ill(Crash, Duplicate)), says: "restarts, duplicates"},
	{name: "D8-no-suspicions", what: "a snapshot misses suspicions", within: 20, quick: true, focus: all(snapshots, ill(Crash, Restart)), says: "restarts"},
	{name: "D8-no-closings", what: "a snapshot misses closings", within: 20, focus: all(snapshots, ill(Crash)), says: "restarts"},
	{name: "D8-no-events", what: "a snapshot misses the events", within: 20, focus: all(snapshots, ill(Crash)), says: "restarts"},
	{name: "D8-no-clock", what: "a snapshot misses the log's clock", within: 20, focus: all(snapshots, ill(Crash)), says: "restarts"},
	{name: "D8-no-mark-clock", what: "a snapshot misses when a grant was revoked", within: 20, focus: all(snapshots, ill(Crash, RevokeAsk)), says: "restarts, polite revokes"},
	{name: "D9-raft-has-no-entries", what: "raft's own entries are taken for commands", within: 20},
	{name: "E1-check-then-write", what: "a gate checks, and writes a moment later", within: 20, quick: true},
	{name: "E2-no-gate", what: "a lower token is accepted", within: 20, focus: zombies, says: "writes that stand still"},
	{name: "E2-mark-falls", what: "the mark falls when its holder gives the grant back", within: 20, focus: zombies, says: "writes that stand still"},
	{name: "E3-not-armed", what: "a gate is not armed before it is read", within: 20, focus: zombies, says: "writes that stand still"},
	{name: "E3-arm-after-read", what: "a gate is read, and then armed", within: 100, focus: zombies, says: "writes that stand still"},
}

// snapshots makes them come often.
func snapshots(s *Setup) { s.SnapshotEvery = 20 }

// leaseReads makes leaders that do not notice for long that another one leads.
func leaseReads(s *Setup) {
	several(s)
	s.TTL, s.Tick, s.Margin = time.Second, 100*time.Millisecond, 100*time.Millisecond
	only(Flap, Partition, CutClient, SlowLink)(s)
	s.Rates[Flap], s.Rates[Partition] = 3600, 3600
}

// elsewhere are bugs that can be planted, and that no checker here objects to;
// docs/RELIABILITY.md says why, and which other test holds each rule.
var elsewhere = []bug{
	{name: "B8-reopens-any", what: "a reopen opens whichever closing there is", within: 25, focus: reopens, says: "many closings, a slow disk, revokes at once"},
	{name: "B6-coarse-ticks", what: "the clock is logged every T/8", within: 25, focus: flaps, says: "flaps"},
	{name: "C4-read-asked-once", what: "a read index without an answer is not asked again", within: 25, focus: ill(Drop, Flap), says: "lost messages"},
}

// stalls makes servers stand still, and nothing else happens.
func stalls(s *Setup) {
	s.TTL = 2 * time.Second
	s.Margin, s.Tick = s.TTL/10, 20*time.Millisecond
	s.Rates = Rates{}
	s.Rates[StopServer], s.Rates[StopAll] = 300, 300
}

// manyLocks makes locks of each kind.
func manyLocks(s *Setup) { s.Clients, s.Locks = 12, 12 }

// reopens makes locks whose closing is replaced while they are to be opened: one
// server, whose disk alone says how long a command takes.
func reopens(s *Setup) {
	s.Servers, s.Clients, s.Locks, s.TTL = 1, 20, 16, 3*time.Second
	s.Margin = s.TTL / 10
	only(DiskSlow, RevokeNow, EndSession)(s)
	s.Rates[DiskSlow], s.Rates[RevokeNow] = 3600, 10_000
}

// impatient makes cancels that take long, and crowds.
func impatient(s *Setup) {
	only(SlowLink, Overload)(s)
	s.Rates[SlowLink] = 7200
}

// lateAnswers makes answers that are late, and then none.
func lateAnswers(s *Setup) {
	inside(s)
	s.Servers, s.Clients, s.TTL = 1, 20, 3*time.Second // one: none of its own messages is late
	s.Margin = s.TTL / 10
	only(Delay, CutClient, StopClient)(s)
	s.Rates[Delay], s.Rates[CutClient], s.Rates[StopClient] = 200_000, 7200, 7200
}

// silences makes commands that take long, and clients that fall silent.
func silences(s *Setup) {
	several(s)
	inside(s)
	s.TTL, s.Clients = time.Second, 16
	s.Margin = s.TTL / 10
	only(DiskSlow, CutClient, StopClient)(s)
	s.Rates[CutClient], s.Rates[StopClient] = 7200, 7200
}

// forgottenVotes makes elections in which who voted has died since.
func forgottenVotes(s *Setup) {
	s.Servers = 3
	only(Crash, Flap, Delay, Partition)(s)
	s.Rates[Crash], s.Rates[Flap], s.Rates[Delay] = 5400, 5400, 100_000
}

// seals makes many revokes of what many want.
func seals(s *Setup) {
	s.Clients, s.Locks = 16, 6
	only(RevokeNow, RevokeAsk)(s)
	s.Rates[RevokeNow], s.Rates[RevokeAsk] = 7200, 7200
}

// marks makes polite revokes that stay in flight for long, and holders that
// stand still.
func marks(s *Setup) {
	s.TTL, s.Tick, s.Clients, s.Locks = time.Second, 100*time.Millisecond, 12, 12
	s.Margin = s.TTL / 10
	inside(s)
	only(RevokeAsk, DiskSlow, StopClient, CutClient)(s)
	s.Rates[RevokeAsk], s.Rates[StopClient] = 10_000, 7200
}

// zombies makes writers that were late for their own lease.
func zombies(s *Setup) {
	s.Clients, s.Locks = 10, 2
	ill(HoldWrite, StopInStep, StopClient)(s)
}
