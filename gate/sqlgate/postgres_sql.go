package sqlgate

import (
	"fmt"
	"strings"
)

// postgresSQL is the text of all that the gate says to the server, with the
// schema's name filled in.
type postgresSQL struct {
	load, state                   string
	limit, limitDurably           string
	announce                      string
	pin, activate                 string
	lockGate, lockMark, lockMove  string
	insertMark, updateMark        string
	enter, leave                  string
	hasLock, addLock              string
	probeTry, probeLock, probeSet string
	probeStep                     string
}

// shorter sets a time limit of the transaction to parameter p, unless the one
// in force is shorter.
func shorter(setting, p string) string {
	now, p := fmt.Sprintf("current_setting('%s')", setting), p+"::text"
	return fmt.Sprintf("set_config('%s', CASE WHEN %s::interval > interval '0' AND %s::interval < %s::interval THEN %s ELSE %s END, true)",
		setting, now, now, p, now, p)
}

func newPostgresSQL(schema string) postgresSQL {
	fill := func(text string) string { return strings.ReplaceAll(text, "@.", schema+".") }
	// A mark below which synchronous_commit would lose it after a crash, or a
	// fail-over, would fall.
	durably := "set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on' ELSE current_setting('synchronous_commit') END, true)"
	return postgresSQL{
		load: fill(`SELECT g.active, m.number, m.token, i.token, pg_is_in_recovery()
FROM @.holdfast_gate AS g
LEFT JOIN @.holdfast_gate_mark AS m ON m.lock = g.lock AND m.domain = $2 AND m.slot = $3
LEFT JOIN @.holdfast_gate_intent AS i ON i.lock = g.lock AND i.domain = $2 AND i.slot = $3
WHERE g.lock = $1`),
		state: fill(`SELECT g.active, m.number, m.token, m.raised_at, m.raised_by
FROM @.holdfast_gate AS g LEFT JOIN @.holdfast_gate_mark AS m ON m.lock = g.lock
WHERE g.lock = $1 ORDER BY m.domain, m.slot`),

		limit: `SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $1, true), set_config('synchronous_commit', $2, true)`,
		limitDurably: `SELECT pg_backend_pid() FROM (SELECT set_config('lock_timeout', $1, true), set_config('statement_timeout', $1, true),
set_config('idle_in_transaction_session_timeout', $1, true), ` + durably + ` OFFSET 0) AS limits`,
		announce: fill(`INSERT INTO @.holdfast_gate_intent AS i (lock, domain, slot, number, token) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (lock, domain, slot) DO UPDATE SET number = excluded.number, token = excluded.token WHERE i.number < excluded.number`),

		pin:      fill(`UPDATE @.holdfast_gate SET active = $2 WHERE lock = $1 AND active = ''`),
		activate: fill(`UPDATE @.holdfast_gate SET active = $2 WHERE lock = $1`),
		lockGate: fill(`SELECT active FROM @.holdfast_gate WHERE lock = $1 FOR SHARE`),
		lockMark: fill(`SELECT number, token FROM @.holdfast_gate_mark WHERE lock = $1 AND domain = $2 AND slot = $3 FOR NO KEY UPDATE`),
		lockMove: fill(`SELECT FROM @.holdfast_gate WHERE lock = $1 FOR NO KEY UPDATE`),
		insertMark: fill(`INSERT INTO @.holdfast_gate_mark (lock, domain, slot, number, token, raised_at, raised_by)
VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6) ON CONFLICT DO NOTHING`),
		updateMark: fill(`UPDATE @.holdfast_gate_mark SET number = $4, token = $5, raised_at = clock_timestamp(), raised_by = $6
WHERE lock = $1 AND domain = $2 AND slot = $3`),

		// One statement, so one snapshot: what is judged is what the check
		// at the commit compares with.
		enter: fill(`WITH seen AS (
	SELECT g.active, m.number, m.token, i.token AS intent
	FROM @.holdfast_gate AS g
	LEFT JOIN @.holdfast_gate_mark AS m ON m.lock = g.lock AND m.domain = $2 AND m.slot = $3
	LEFT JOIN @.holdfast_gate_intent AS i ON i.lock = g.lock AND i.domain = $2 AND i.slot = $3
	WHERE g.lock = $1
), step AS (
	INSERT INTO @.holdfast_gate_step (lock, domain, slot, token)
	SELECT $1, $2, $3, coalesce(token, '') FROM seen RETURNING ctid, xact
)
SELECT seen.active, seen.number, seen.token, seen.intent, step.ctid::text, step.xact::text FROM seen, step, (
	SELECT ` + shorter("idle_in_transaction_session_timeout", "$4") + `, ` + shorter("lock_timeout", "$5") + `, ` + shorter("tcp_user_timeout", "$4") + ` OFFSET 0
) AS limits`),
		// The row has done its work once the check is queued.
		leave: fill(`WITH mine AS (DELETE FROM @.holdfast_gate_step WHERE ctid = $1::text::tid AND xact = pg_current_xact_id() RETURNING 1)
SELECT count(*), ` + shorter("statement_timeout", "$2") + `, ` + shorter("idle_in_transaction_session_timeout", "$2") + ` FROM mine`),

		addLock:   fill(`INSERT INTO @.holdfast_gate (lock, active) VALUES ($1, '') ON CONFLICT DO NOTHING`),
		hasLock:   fill(`SELECT EXISTS (SELECT FROM @.holdfast_gate WHERE lock = $1)`),
		probeTry:  fill(`SELECT count(*) FROM (SELECT FROM @.holdfast_gate WHERE lock = '' FOR SHARE SKIP LOCKED) AS free`),
		probeLock: fill(`SELECT active FROM @.holdfast_gate WHERE lock = '' FOR NO KEY UPDATE`),
		probeSet:  fill(`UPDATE @.holdfast_gate SET active = $1 WHERE lock = ''`),
		probeStep: fill(`INSERT INTO @.holdfast_gate_step (lock, domain, slot, token) VALUES ('', 'probe', 0, 'probe')`),
	}
}
