import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { can, initial, overlapsOf, reduce } from '../page/model.js';

const log = JSON.parse(readFileSync(new URL('./fixture-five-steps.json', import.meta.url), 'utf8'));
const live = reduce(initial(), { kind: 'live', atMs: 0, on: true });

/** The state after the fixture's events up to and with the first that `last` picks. */
function until(last, round = 1) {
	let state = live;
	for (const event of log.events) {
		state = reduce(state, event);
		if (state.round === round && last(event)) {
			return state;
		}
	}
	throw new Error('no such event');
}

test('a round begins with the honest runs behind it', () => {
	const state = until((e) => e.kind === 'started' && e.who === 'B');
	assert.equal(state.service.lastToken, 32);
	assert.equal(state.gate.mark, 32);
	assert.equal(state.ledger.earlier.length, 3);
	assert.equal(state.ledger.lines, 32);
	assert.equal(state.workers.A.status, 'idle');
	assert.equal(state.workers.A.value, log.settings.values.A);
});

test('A holds 33 by both views', () => {
	const state = until((e) => e.kind === 'heard');
	assert.deepEqual(state.service.holder, { worker: 'A', token: 33 });
	assert.equal(state.workers.A.token, 33);
	assert.ok(state.workers.A.leftAt < state.service.leftAt, 'the client is the more cautious one');
	assert.equal(state.timeline.ticks.length, 2);
});

test('while A stands still the service gives its lock away, and A thinks that it holds', () => {
	const state = until((e) => e.kind === 'acquired' && e.who === 'B');
	assert.equal(state.workers.A.status, 'holds');
	assert.equal(state.workers.A.token, 33);
	assert.ok(state.workers.A.poised);
	assert.equal(state.workers.B.token, 34);
	assert.deepEqual(state.service.holder, { worker: 'B', token: 34 });
	assert.equal(state.gate.mark, 34);
	assert.equal(state.timeline.overlaps.length, 1);
	assert.deepEqual(state.timeline.overlaps[0].tokens, [33, 34]);
	assert.equal(state.timeline.overlaps[0].to, null);
	assert.equal(state.timeline.serviceBands[0].cause, 'expired');
	assert.equal(state.timeline.marks.filter((m) => m.kind === 'last-look').length, 1);
});

test('without the comparison the late write is in the ledger and breaks it', () => {
	const state = until((e) => e.kind === 'lost');
	const row = state.ledger.rows.at(-1);
	assert.deepEqual([row.token, row.verdict, row.bad, row.line], [33, 'accepted', true, 35]);
	assert.equal(state.ledger.corrupted.length, 1);
	assert.equal(state.workers.A.status, 'lost');
	assert.equal(state.workers.A.lostToken, 33);
	assert.notEqual(state.timeline.overlaps[0].to, null);
});

test('with the comparison it is refused and the ledger is whole', () => {
	const state = until((e) => e.kind === 'lost', 2);
	const row = state.ledger.rows.at(-1);
	assert.deepEqual([row.token, row.verdict, row.bad, row.line, row.mark], [33, 'refused', false, null, 34]);
	assert.equal(state.ledger.corrupted.length, 0);
	assert.equal(state.gate.last.verdict, 'refused');
	assert.equal(state.round, 2);
});

test('a new round forgets everything, a repeated event changes nothing', () => {
	const second = until((e) => e.kind === 'round', 2);
	assert.equal(second.ledger.rows.length, 0);
	assert.equal(second.timeline.bands.length, 0);
	assert.equal(second.gate.compare, true);
	const last = log.events.at(-1);
	const all = log.events.reduce(reduce, live);
	assert.equal(reduce(all, last), all);
	assert.equal(reduce(all, log.events[0]), all, 'an old round does not come back');
});

test('reduce changes nothing in place', () => {
	const freeze = (value) => {
		if (value && typeof value === 'object' && !Object.isFrozen(value)) {
			Object.freeze(value);
			Object.values(value).forEach(freeze);
		}
		return value;
	};
	log.events.reduce((state, event) => freeze(reduce(state, freeze(event))), freeze(live));
});

test('unknown kinds and hostile ones are ignored', () => {
	const state = until((e) => e.kind === 'started' && e.who === 'B');
	for (const kind of ['constructor', '__proto__', 'toString', 'later-invention']) {
		const after = reduce(state, { seq: state.seq + 1, atMs: 1, kind, who: 'A' });
		assert.equal(after.workers.A.status, 'idle');
	}
	assert.equal(reduce(state, { seq: state.seq + 1, atMs: 1, kind: 'queued', who: '__proto__' }).workers.A.status, 'idle');
});

test('can says why not', () => {
	const idle = until((e) => e.kind === 'started' && e.who === 'B');
	assert.equal(can(idle, 'A', 'acquire'), true);
	assert.match(String(can(idle, 'A', 'write')), /acquire first/);
	assert.match(String(can(idle, 'A', 'wake')), /not stopped/);
	assert.match(String(can(idle, 'A', 'start')), /is running/);
	const stopped = until((e) => e.kind === 'paused');
	assert.equal(can(stopped, 'A', 'wake'), true);
	assert.equal(can(stopped, 'A', 'kill'), true);
	for (const one of ['acquire', 'write', 'release', 'pause']) {
		assert.match(String(can(stopped, 'A', one)), /stopped/);
	}
	const dead = reduce(stopped, { seq: 999, atMs: 99999, kind: 'killed', who: 'A', pid: 1 });
	assert.equal(dead.workers.A.status, 'dead');
	assert.equal(can(dead, 'A', 'start'), true);
	assert.match(String(can(dead, 'A', 'kill')), /dead/);
	assert.equal(dead.timeline.bands[0].to, 99999);
	const away = reduce(dead, { kind: 'live', atMs: 0, on: false, text: 'the server is away' });
	assert.equal(can(away, 'A', 'start'), 'the server is away');
	const lost = until((e) => e.kind === 'lost');
	assert.equal(can(lost, 'A', 'acquire'), true);
	assert.match(String(can(lost, 'A', 'write')), /acquire again/);
});

test('what the public API answered wins over older events, and over no other round', () => {
	const state = until((e) => e.kind === 'heard');
	const read = { kind: 'service-read', atMs: state.atMs + 500, round: 1, ok: true, holder: { worker: 'A', token: 33 }, queue: ['B'], ttlLeftMs: 3400 };
	const after = reduce(state, read);
	assert.equal(after.service.leftAt, state.atMs + 3900);
	assert.deepEqual(after.service.queue, ['B']);
	assert.equal(after.seq, state.seq);
	assert.equal(reduce(state, { ...read, round: 7 }), state);
	const late = reduce(after, { seq: state.seq + 1, atMs: state.atMs + 100, kind: 'heard', who: 'service', worker: 'A', token: 33, ttlLeftMs: 1 });
	assert.equal(late.service.leftAt, state.atMs + 3900);
	assert.equal(reduce(after, { ...read, atMs: state.atMs - 1, holder: null }).service.holder.worker, 'A');
	assert.equal(reduce(after, { kind: 'service-read', atMs: 0, round: 1, ok: false }).service.fresh, false);
});

test('overlaps are of different workers only, and touch is no overlap', () => {
	const band = (worker, token, from, to) => ({ worker, token, from, to, seq: token });
	assert.deepEqual(overlapsOf([band('A', 33, 0, 10), band('B', 34, 10, 20)]), []);
	assert.deepEqual(overlapsOf([band('A', 33, 0, null), band('A', 34, 5, null)]), []);
	assert.deepEqual(overlapsOf([band('B', 34, 5, null), band('A', 33, 0, 10)]), [{ from: 5, to: 10, tokens: [33, 34] }]);
});
