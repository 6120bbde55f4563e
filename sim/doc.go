// Package sim is the room in which the real machines of the house meet under
// time, networks and failures that a program invents: no sockets, no
// goroutines, no clock.
//
//   - This package makes one world from one 64-bit seed: servers with disks,
//     clients, locks, gates, an operator, and the faults that happen to them.
//     The same seed gives the same transcript, byte for byte.
//   - explore: every order of events of a small world (two sessions, two
//     locks, one change of leader), to a stated depth, and long stories under
//     a policy; it must find nothing with all rules in, and each failure that
//     the protocol names when its rule is taken out.
//
// The room may import server/core, server/lease, server/replica,
// internal/watchdog, internal/planted, fence and gate/memgate: the real ones.
// What is invented here (time, network, disk) must be able to do everything
// that the real thing can do, and nothing that it cannot; each part's doc says
// where it falls short of that.
//
// # A world from a seed
//
// [Draw] makes a [Setup] of a seed, [Run] lets it happen. A world is a queue of
// events in true time; each process has a clock of its own, which may run fast
// or slow, stand still or sleep. A server is the real replica and the real
// deadline machine; its shell (server.go, serve.go, effects.go, batch.go,
// health.go, peers.go) does what the loop of package server does, in the same
// order. A client is the real client machine, with workers that arm a gate,
// read, think, and write; gates judge by package fence. An operator changes
// members, takes grants and sessions away, upgrades, backs up, and begins the
// service anew (operator.go, restore.go). For [Setup].Faulty faults happen, each
// at its rate; then they end, and within [Setup].Calm everything must come to
// rest.
//
// The judge knows only what clients, gates and disks saw, and compares what the
// members applied. It objects with a [Violation], and the world stops. Where an
// operator or a clone breaks the lease promise, or the service began anew, gates
// must do (lineage.go).
//
// # Who objects
//
//   - check_log.go, check_lock.go, check_request.go: an audit of the log, by
//     rules of its own: invariants 2 to 7 of DESIGN §3, how locks close and open,
//     and when a session, a grant or a closing may end at the earliest.
//   - logbook.go: numbers rise (1), members that applied as much have the same
//     state (8), nobody halts (9), and after the faults all come to rest.
//   - check_client.go: the client gives up first (B10), lost is final, and a
//     healthy session does not die of the service.
//   - office.go, check_due.go: what must happen in time. Time counts while
//     somebody leads whose office counts (B7). No bound is checked where many
//     messages are late or lost.
//   - check_shell.go, check_office.go: the log's clock, stalls, what a revoke in
//     flight holds back, a node whose disk hangs, snapshots, offices.
//   - check_orphan.go: a client leaves nothing behind of which it does not know.
//   - check_history.go: porcupine looks for an order of one lock's grants, their
//     ends, reads, and tries that found it taken. What nobody answered may lie
//     anywhere from its call on, or nowhere.
//   - judge.go: writes at the gates, and no two who believe that they hold.
//
// Some of these look into a server (its socket, its flight, its oldest write),
// because what they forbid shows outside only when three things go wrong at once.
//
// # Where the shell differs from the real server
//
//   - A message is a unary call. There are no streams, so no attaching and no
//     instance that is replaced, and no secrets: a session's ID stands for them.
//   - One socket takes all calls of a server in their order; a drain (B9) reads
//     all of it at once. Really each connection is one, read beside the others.
//   - A turn takes no time. Applying a large entry, encoding or decoding a
//     snapshot never makes a stall; a fault that stops the server does.
//   - An entry is bounded by commands and by what ends in it, not by bytes; what
//     waits is bounded by one number; there is no limit of sessions.
//   - The lines between members are messages: the handshake (incarnation, who
//     speaks, who is meant, versions, who was removed) is asked for each. What a
//     member says of its fitness and version comes with raft's messages.
//   - A call that is passed on (C5) goes as the client's own, without a line of
//     its own between members. TLS and credentials are not there.
//   - Clusters are founded before a world begins (D7 is so far only that of
//     members that join, are removed, or lose their data). Addresses stay.
//   - The watchdog that ends a process whose loop hangs (D2) is not there: the
//     loop of a world does not hang.
//   - A disk keeps what it says that it keeps: bytes that change are the business
//     of server/store, which refuses them (see disk.go). There is one snapshot.
//   - A restore stops all that is left of the old service, as its page says; an
//     old minority that goes on is not there.
//   - Gates are package fence's rules with an atomic step; those of SQL, files,
//     HTTP and S3 have tests of their own.
//
// Raft draws its election jitter from crypto/rand: whoever calls [Run] seeds
// that.
//
// # What is explored with all rules in
//
// TestNothingIsFoundWithAllRulesIn explores these worlds: depth in events,
// different states seen, and the name. Where the test allows more depth there
// was nothing left to try: what is bounded then is how much time passes and how
// often things happen, as the test says. No world may have more than 250,000
// states, and all tests together 2 GB. A run with the race detector leaves
// these tests out and runs TestASmallPartUnderTheRaceDetector.
//
//	 8   72716  cold: two sessions, two locks
//	10   66448  two locks
//	16   86899  one change of leader
//	10   41608  two changes of leader, step-downs
//	 9   46085  duplicates
//	10   32228  writes
//	 8   30157  releases and writes
//	11   47271  a stall
//	10   41868  a polite revoke
//	 8   23538  a revoke at once
//	10   42987  both impatient
//	 9   23249  headers without a clock
//	 8   26176  a second open
//	 8   25111  lock-delay
//	 8   44107  once-per and lock-delay
//	 7   37513  once-per, retry-failed
//	10   82822  a maximum hold
//	20   13668  two readers, and a writer who waits
//	19    7330  two readers, and a writer who waits, one change of leader
//	 8   61257  two readers, and a writer who waits, one of them impatient
//	22   22621  a writer, and two readers who wait
//
// Not explored: permits, values, waits that their owner gives up, changes of
// members, clocks of two rates, more than two nodes that believe to lead, and
// what a server adds to its machines. Every depth above is a bound, not a proof:
// longer stories are only told under one policy at a time.
//
// # Which test objects when a rule of PROTOCOL is taken out
//
// EachRule is TestEachRuleTakenOutIsFound (exhaustive, the shortest story),
// Flaps is TestFlapsFindEachRuleTakenOut (directed, long stories).
//
//	A1   each reader has a token of its own: EachRule; core alone: TestTranscripts (shared.txt)
//	B1   a new leader passes over what its predecessor proposed: EachRule, twice;
//	     core alone: TestReplay
//	B2   a leader's clock starts at its uptime: EachRule (a clock ahead) and Flaps (one
//	     behind). The maximum: the world "headers without a clock" is sound because
//	     apply takes it; TestClockNeverOutrunsTime
//	B3   memory kept, led before it applied: EachRule
//	B4   an expiry that names no suspicion: EachRule; none before it: Flaps;
//	     TestRuleB4IsEnough
//	B5   no clear, nothing in flight remembered, lease reads: EachRule
//	B6   T/2 only, no ticks, coarse ticks: Flaps; a keepalive at once for a new
//	     leader: TestKeepaliveAtOnceForANewLeader
//	B7   the bound: TestDeadHolderIsFreedWithin2T, and
//	     TestCasebookC14_DeadHoldersWaiterGrantedHoweverOftenLeadersChange; it goes
//	     with B2, B4 and B6
//	B8   a reopen that names no closing, no lock-delay after an expiry, a revoke at
//	     once, a maximum hold: EachRule; a maximum forgotten: TestMaximumHoldEnds
//	B9   expiry at once after a stall: EachRule; stalls counted:
//	     TestStallsFindTheRuleTakenOut; the rule in: TestHealthySessionOutlivesStalls;
//	     transfer: TestHealthySessionsOutliveStalls; the drain: TestStallDrains
//	B10  counted from the answer, from a second open, on a clock that a suspend stops:
//	     EachRule. Clocks of two rates are not explored
//	B11  freed at once, a revoke in flight forgotten, no number burnt: EachRule
//	B12  each open starts a session: EachRule. Secrets, attach numbers and instances
//	     are the server's, of which there is none here; with a real one:
//	     TestOpenIsIdempotentByItsSecret, TestOpenSentAgainOnTheNextStream,
//	     TestAttachByTheSameProcess, TestCasebookC80_TwoProcessesWithTheSameIdentity
//	B13  closed by a success only, counted from the end, closed by a failure in spite
//	     of retry-failed, closed at the grant in spite of it: EachRule; with real
//	     processes: TestCasebookC60_OncePerPeriod, TestCasebookC60_RetryFailed
//
// Start reading at [Run], then world.run, server.turn and session.perform; for
// the explorer at package explore.
package sim
