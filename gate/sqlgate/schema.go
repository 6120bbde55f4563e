package sqlgate

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"holdfast/fence"
)

// schema is everything that a gate keeps in a SQLite database, in the order in
// which it is created. A database whose objects of these names differ is
// refused: so a later version changes the names.
//
// The triggers hold for everybody who writes to the database, with or without
// a gate: a mark never falls (E4).
var schema = []struct{ kind, name, rest string }{
	{"TABLE", "holdfast_gate", `(
	lock TEXT NOT NULL PRIMARY KEY,
	active TEXT NOT NULL, -- fence domain, or empty: none yet
	writes INTEGER NOT NULL, -- writes that passed the gate
	probes INTEGER NOT NULL -- times that a process opened the gate
) STRICT`},
	{"TABLE", "holdfast_gate_mark", `(
	lock TEXT NOT NULL,
	domain TEXT NOT NULL,
	slot INTEGER NOT NULL,
	number INTEGER NOT NULL CHECK (number > 0),
	token TEXT NOT NULL, -- the highest accepted
	raised_at TEXT NOT NULL, -- by the clock of raised_by
	raised_by TEXT NOT NULL,
	PRIMARY KEY (lock, domain, slot)
) STRICT`},
	{"TRIGGER", "holdfast_gate_mark_insert", ` BEFORE INSERT ON holdfast_gate_mark
WHEN EXISTS (SELECT 1 FROM holdfast_gate_mark AS m WHERE m.lock = NEW.lock AND m.domain = NEW.domain AND m.slot = NEW.slot)
BEGIN SELECT RAISE(ABORT, 'holdfast: a mark is never replaced'); END`},
	{"TRIGGER", "holdfast_gate_mark_update", ` BEFORE UPDATE ON holdfast_gate_mark
WHEN NEW.number <= OLD.number OR NEW.lock <> OLD.lock OR NEW.domain <> OLD.domain OR NEW.slot <> OLD.slot
BEGIN SELECT RAISE(ABORT, 'holdfast: a mark never falls'); END`},
	{"TRIGGER", "holdfast_gate_mark_delete", ` BEFORE DELETE ON holdfast_gate_mark
BEGIN SELECT RAISE(ABORT, 'holdfast: a mark is never deleted'); END`},
	{"TRIGGER", "holdfast_gate_delete", ` BEFORE DELETE ON holdfast_gate
BEGIN SELECT RAISE(ABORT, 'holdfast: a gate is never deleted'); END`},
}

// ensureSchema creates what is missing when nothing is there, and checks what
// is. The caller holds the write lock.
func ensureSchema(ctx context.Context, conn *sql.Conn) error {
	have, err := readSchema(ctx, conn)
	if err != nil {
		return err
	}
	if len(have) == 0 {
		for _, o := range schema {
			if _, err := conn.ExecContext(ctx, "CREATE "+o.kind+" main."+o.name+o.rest); err != nil {
				return fmt.Errorf("cannot create %s (SQLite 3.37 or newer is needed): %w", o.name, err)
			}
		}
		if have, err = readSchema(ctx, conn); err != nil {
			return err
		}
	}
	for _, o := range schema {
		sqlText, ok := have[o.name]
		if !ok {
			return fmt.Errorf("%w: %s %s is missing, but others of the gate are there: somebody dropped it", fence.ErrRecord, strings.ToLower(o.kind), o.name)
		}
		if !strings.HasSuffix(squeeze(sqlText), squeeze(o.rest)) {
			return fmt.Errorf("%w: %s %s is not as this version of the gate makes it: %q", fence.ErrRecord, strings.ToLower(o.kind), o.name, clip(sqlText))
		}
		delete(have, o.name)
	}
	for name := range have {
		return fmt.Errorf("%w: %s is not known to this version of the gate", fence.ErrRecord, name)
	}
	return nil
}

// readSchema returns the text of each object with the gate's prefix.
func readSchema(ctx context.Context, conn *sql.Conn) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, `SELECT name, sql FROM main.sqlite_master WHERE sql IS NOT NULL AND substr(lower(name), 1, ?) = ?`, len(tablePrefix), tablePrefix)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have := make(map[string]string)
	for rows.Next() {
		var name, text string
		if err := rows.Scan(&name, &text); err != nil {
			return nil, err
		}
		have[name] = text
	}
	return have, rows.Err()
}

func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
