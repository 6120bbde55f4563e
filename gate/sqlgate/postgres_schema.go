package sqlgate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"holdfast/fence"
)

// postgresSchema is everything that a gate keeps in a PostgreSQL database, in
// the order in which it is created; @ stands for the schema. A database whose
// objects of these names differ is refused: so a later version changes the
// names.
//
// The triggers hold for everybody who writes to these tables, with or without
// a gate, also where session_replication_role is replica: a mark never falls
// (E4), and no guarded transaction commits unless the record that it was
// judged by is still in force. The check at the commit takes its locks in the
// order in which a raise does, and holds them until the transaction has ended;
// it runs in the server, so that a client that is stopped cannot be stopped
// between check and commit (E5). A row of holdfast_gate_step is there to queue
// that check.
const postgresSchema = `
CREATE TABLE @.holdfast_gate (
	lock text COLLATE "C" PRIMARY KEY,
	active text NOT NULL -- fence domain, or empty: none yet
);
CREATE TABLE @.holdfast_gate_mark (
	lock text COLLATE "C" NOT NULL,
	domain text NOT NULL,
	slot bigint NOT NULL,
	number bigint NOT NULL CHECK (number > 0),
	token text NOT NULL, -- the highest accepted
	raised_at timestamptz NOT NULL,
	raised_by text NOT NULL,
	PRIMARY KEY (lock, domain, slot)
);
CREATE TABLE @.holdfast_gate_intent (
	lock text COLLATE "C" NOT NULL,
	domain text NOT NULL,
	slot bigint NOT NULL,
	number bigint NOT NULL CHECK (number > 0),
	token text NOT NULL, -- the highest that somebody is arming, or has armed
	PRIMARY KEY (lock, domain, slot)
);
CREATE UNLOGGED TABLE @.holdfast_gate_step (
	lock text NOT NULL,
	domain text NOT NULL,
	slot bigint NOT NULL,
	token text NOT NULL, -- the mark that a transaction was judged by
	xact xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE FUNCTION @.holdfast_gate_check() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
DECLARE
	now_active text;
	now_token text;
BEGIN
	SELECT g.active INTO now_active FROM @.holdfast_gate AS g WHERE g.lock = NEW.lock FOR SHARE;
	SELECT m.token INTO now_token FROM @.holdfast_gate_mark AS m
	WHERE m.lock = NEW.lock AND m.domain = NEW.domain AND m.slot = NEW.slot FOR SHARE;
	IF now_active IS DISTINCT FROM NEW.domain OR now_token IS DISTINCT FROM NEW.token THEN
		RAISE EXCEPTION 'holdfast: this transaction began with token % of lock %, and the gate has seen a newer one', NEW.token, NEW.lock
		USING ERRCODE = 'ZHF01', DETAIL = format('active domain %s, mark %s', now_active, now_token);
	END IF;
	RETURN NULL;
END
$body$;
CREATE FUNCTION @.holdfast_gate_keep() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
BEGIN
	IF TG_OP = 'UPDATE' THEN
		IF NEW.lock = OLD.lock AND NEW.domain = OLD.domain AND NEW.slot = OLD.slot AND NEW.number > OLD.number THEN
			RETURN NEW;
		END IF;
	END IF;
	RAISE EXCEPTION 'holdfast: a mark never falls, and is never deleted' USING ERRCODE = 'ZHF02';
END
$body$;
CREATE CONSTRAINT TRIGGER holdfast_gate_check AFTER INSERT ON @.holdfast_gate_step
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION @.holdfast_gate_check();
CREATE TRIGGER holdfast_gate_keep BEFORE UPDATE OR DELETE ON @.holdfast_gate_mark FOR EACH ROW EXECUTE FUNCTION @.holdfast_gate_keep();
CREATE TRIGGER holdfast_gate_keep_all BEFORE TRUNCATE ON @.holdfast_gate_mark FOR EACH STATEMENT EXECUTE FUNCTION @.holdfast_gate_keep();
CREATE TRIGGER holdfast_gate_keep BEFORE DELETE ON @.holdfast_gate FOR EACH ROW EXECUTE FUNCTION @.holdfast_gate_keep();
CREATE TRIGGER holdfast_gate_keep_all BEFORE TRUNCATE ON @.holdfast_gate FOR EACH STATEMENT EXECUTE FUNCTION @.holdfast_gate_keep();
ALTER TABLE @.holdfast_gate_step ENABLE ALWAYS TRIGGER holdfast_gate_check;
ALTER TABLE @.holdfast_gate_mark ENABLE ALWAYS TRIGGER holdfast_gate_keep;
ALTER TABLE @.holdfast_gate_mark ENABLE ALWAYS TRIGGER holdfast_gate_keep_all;
ALTER TABLE @.holdfast_gate ENABLE ALWAYS TRIGGER holdfast_gate_keep;
ALTER TABLE @.holdfast_gate ENABLE ALWAYS TRIGGER holdfast_gate_keep_all;
`

// postgresObjects is how the catalogs describe what postgresSchema makes, in
// words that do not change with the server's version. The numbers of triggers
// are pg_trigger.tgtype.
var postgresObjects = []string{
	"column holdfast_gate lock text not null",
	"column holdfast_gate active text not null",
	"column holdfast_gate_mark lock text not null",
	"column holdfast_gate_mark domain text not null",
	"column holdfast_gate_mark slot bigint not null",
	"column holdfast_gate_mark number bigint not null",
	"column holdfast_gate_mark token text not null",
	"column holdfast_gate_mark raised_at timestamp with time zone not null",
	"column holdfast_gate_mark raised_by text not null",
	"column holdfast_gate_intent lock text not null",
	"column holdfast_gate_intent domain text not null",
	"column holdfast_gate_intent slot bigint not null",
	"column holdfast_gate_intent number bigint not null",
	"column holdfast_gate_intent token text not null",
	"column holdfast_gate_step lock text not null",
	"column holdfast_gate_step domain text not null",
	"column holdfast_gate_step slot bigint not null",
	"column holdfast_gate_step token text not null",
	"column holdfast_gate_step xact xid8 not null",
	"key holdfast_gate lock",
	"key holdfast_gate_mark lock, domain, slot",
	"key holdfast_gate_intent lock, domain, slot",
	"trigger holdfast_gate_check on holdfast_gate_step: holdfast_gate_check 5 A deferred",
	"trigger holdfast_gate_keep on holdfast_gate_mark: holdfast_gate_keep 27 A ",
	"trigger holdfast_gate_keep_all on holdfast_gate_mark: holdfast_gate_keep 34 A ",
	"trigger holdfast_gate_keep on holdfast_gate: holdfast_gate_keep 11 A ",
	"trigger holdfast_gate_keep_all on holdfast_gate: holdfast_gate_keep 34 A ",
}

// readObjects lists what is there, as postgresObjects does, and functions with
// their bodies.
const readObjects = `
SELECT format('column %s %s %s%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN ' not null' ELSE '' END), ''
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = $1::oid AND c.relname LIKE 'holdfast\_gate%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format('key %s %s', c.relname, (SELECT string_agg(a.attname, ', ' ORDER BY k.place) FROM unnest(x.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
	JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = k.attnum)), ''
FROM pg_class AS c JOIN pg_index AS x ON x.indrelid = c.oid AND x.indisprimary
WHERE c.relnamespace = $1::oid AND c.relname LIKE 'holdfast\_gate%'
UNION ALL
SELECT format('trigger %s on %s: %s %s %s %s', t.tgname, c.relname, p.proname, t.tgtype, t.tgenabled, CASE WHEN t.tginitdeferred THEN 'deferred' ELSE '' END), ''
FROM pg_class AS c JOIN pg_trigger AS t ON t.tgrelid = c.oid JOIN pg_proc AS p ON p.oid = t.tgfoid
WHERE c.relnamespace = $1::oid AND c.relname LIKE 'holdfast\_gate%' AND NOT t.tgisinternal
UNION ALL
SELECT 'function ' || p.proname, p.prosrc
FROM pg_proc AS p WHERE p.pronamespace = $1::oid AND p.proname LIKE 'holdfast\_gate%'`

// functionBodies cuts the functions out of the schema's text.
func functionBodies(text string) map[string]string {
	bodies := map[string]string{}
	for _, part := range strings.Split(text, "CREATE FUNCTION ")[1:] {
		name, rest, _ := strings.Cut(part, "() ")
		body := strings.Split(rest, "$body$")[1]
		bodies["function "+name[strings.LastIndex(name, ".")+1:]] = body
	}
	return bodies
}

// ensure creates the gate's tables if there are none, and checks those that
// are there.
func (g *Postgres) ensure(ctx context.Context, conn *sql.Conn) error {
	have, err := g.readSchema(ctx, conn)
	if err == nil && len(have) == 0 {
		err = g.create(ctx, conn)
		if err == nil {
			have, err = g.readSchema(ctx, conn)
		}
	}
	if err != nil {
		return err
	}
	for name, body := range functionBodies(g.schemaText()) {
		switch got, ok := have[name]; {
		case !ok:
			return fmt.Errorf("%w: %s is missing in schema %s, but others of the gate are there: somebody dropped it", fence.ErrRecord, name, g.schema)
		case squeeze(got) != squeeze(body):
			return fmt.Errorf("%w: %s in schema %s is not as this version of the gate makes it", fence.ErrRecord, name, g.schema)
		}
		delete(have, name)
	}
	for _, o := range postgresObjects {
		if _, ok := have[o]; !ok {
			return fmt.Errorf("%w: schema %s lacks the %s, but others of the gate are there: somebody changed it", fence.ErrRecord, g.schema, o)
		}
		delete(have, o)
	}
	for name := range have {
		return fmt.Errorf("%w: the %s in schema %s is not known to this version of the gate", fence.ErrRecord, name, g.schema)
	}
	return nil
}

func (g *Postgres) schemaText() string { return strings.ReplaceAll(postgresSchema, "@.", g.schema+".") }

func (g *Postgres) readSchema(ctx context.Context, q queryer) (map[string]string, error) {
	have := map[string]string{}
	// Not to_regnamespace, which may answer from what the session knew.
	var namespace string
	err := q.QueryRowContext(ctx, `SELECT oid::text FROM pg_namespace WHERE nspname = $1`, strings.Trim(g.schema, `"`)).Scan(&namespace)
	if errors.Is(err, sql.ErrNoRows) {
		return have, nil
	}
	if err != nil {
		return nil, err
	}
	rows, err := q.QueryContext(ctx, readObjects, namespace)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, body string
		if err := rows.Scan(&name, &body); err != nil {
			return nil, err
		}
		have[name] = body
	}
	return have, rows.Err()
}

// createLock keeps programs that create the same tables apart; it is the key
// of an advisory lock, and any number would do.
const createLock = 0x686f6c6466617374

func (g *Postgres) create(ctx context.Context, conn *sql.Conn) error {
	err := g.inTx(ctx, conn, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, g.sql.limit, serverLimit(ctx), "on"); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(createLock)); err != nil {
			return err
		}
		if have, err := g.readSchema(ctx, tx); err != nil || len(have) > 0 {
			return err // somebody else was first
		}
		var exists bool
		if err := tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, strings.Trim(g.schema, `"`)).Scan(&exists); err != nil {
			return err
		}
		texts := statementsOf(g.schemaText())
		if !exists {
			texts = slices.Insert(texts, 0, "CREATE SCHEMA "+g.schema)
		}
		for _, text := range texts {
			if _, err := tx.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
	switch sqlState(err) {
	case "":
		return err
	case stateNoLock, stateCancelled:
		return fmt.Errorf("%w: another program is creating the gate's tables and does not end; try again: %w", fence.ErrUndrained, err)
	case statePrivilege:
		return cannot("this user may not create the gate's tables in schema %s: let one who may open the gate once, and grant this one USAGE on the schema and SELECT, INSERT, UPDATE and DELETE on its tables: %w", g.schema, err)
	}
	return cannot("the gate's tables cannot be made in schema %s: %w", g.schema, err)
}

// statementsOf splits the schema's text at the semicolons that end a line
// outside of a function's body.
func statementsOf(text string) (all []string) {
	var now strings.Builder
	inside := false
	for line := range strings.Lines(text) {
		now.WriteString(line)
		inside = inside != (strings.Count(line, "$body$")%2 == 1)
		if !inside && strings.HasSuffix(strings.TrimSpace(line), ";") {
			all = append(all, now.String())
			now.Reset()
		}
	}
	return all
}

// addLock makes this lock's row, and the probe's.
func (g *Postgres) addLock(ctx context.Context, conn *sql.Conn) error {
	for _, lock := range []string{"", g.guard.Lock} {
		var there bool
		err := conn.QueryRowContext(ctx, g.sql.hasLock, lock).Scan(&there)
		if err == nil && !there {
			_, err = conn.ExecContext(ctx, g.sql.addLock, lock)
		}
		if sqlState(err) == statePrivilege {
			return cannot("this user may not use the gate's tables: grant USAGE on schema %s and SELECT, INSERT, UPDATE and DELETE on its tables: %w", g.schema, err)
		}
		if err != nil {
			return cannot("it cannot be written: %w", err)
		}
	}
	return nil
}
