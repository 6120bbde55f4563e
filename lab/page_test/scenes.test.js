import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { initial, reduce } from '../page/model.js';
import { atStep, before, beginning, follow, placeOf, restored } from '../page/progress.js';
import { sceneOf, scenes } from '../page/scenes/index.js';
import { factsOf, pausedHolder } from '../page/scenes/paused-holder.js';

const log = JSON.parse(readFileSync(new URL('./fixture-five-steps.json', import.meta.url), 'utf8'));
const live = reduce(initial(), { kind: 'live', atMs: 0, on: true });

/** Follows a visitor through events; `pick` sees each new place. */
function walk(events, { state = live, progress = beginning(), pick = () => {} } = {}) {
	for (const event of events) {
		const next = reduce(state, event);
		progress = follow(pausedHolder, progress, state, next);
		state = next;
		pick(progress, state, event);
	}
	return { state, progress };
}

/** The fixture's events of a round, up to and with the first that `last` picks, and then `more`. */
function cut(last, more = [], round = 1) {
	const from = log.events.findIndex((e) => e.kind === 'round' && e.round === round);
	const to = log.events.findIndex((e, i) => i >= from && last(e));
	const events = log.events.slice(from, to + 1);
	const end = events.at(-1);
	return [...events, ...more.map((e, i) => ({ seq: end.seq + i + 1, atMs: end.atMs + 10 * (i + 1), ...e }))];
}

test('whoever plays by hand is followed through the five steps', () => {
	const steps = [];
	const { progress, state } = walk(log.events, { pick: (p) => {
		const now = `${p.step}${p.finished ? ' done' : ''}`;
		if (steps.at(-1) !== now) {
			steps.push(now);
		}
	} });
	assert.deepEqual(steps, ['1', '1 done', '2', '2 done', '3', '3 done', '4', '4 done', '5', '5 done']);
	assert.equal(progress.done, 5);
	const moment = pausedHolder.closing.moment(state);
	assert.equal(state.timeline.marks.find((m) => m.seq === moment).kind, 'last-look');
	assert.match(pausedHolder.closing.title, /At no point could A have known/);
	assert.match(pausedHolder.closing.text(state)[0], /2\.8 ms before it was stopped, it had 2\.99 s left/);
});

test('what a step proved has the measured numbers, and keeps them', () => {
	const proved = {};
	walk(log.events, { pick: (p) => { if (p.finished) { proved[p.step] = p.proved; } } });
	assert.match(proved[1], /ticket 33 in 3\.6 ms, renewed its lease twice, and its write is line 33/);
	assert.match(proved[2], /2\.99 s of its lease left, and was stopped 2\.8 ms later; after 3\.39 s .* holds 33/);
	assert.match(proved[3], /ticket is 34 = 33 \+ 1, and its write is line 34/);
	assert.match(proved[4], /^3\.6 ms after it woke, A wrote with 33 behind B’s 34; it found out 1\.6 ms later: the ledger is corrupted/);
	assert.match(proved[5], /^33 < 34/);
});

test('no sentence of an unfinished step says undefined', () => {
	walk(log.events, { pick: (p, state) => {
		for (const step of pausedHolder.steps) {
			const texts = [step.off(state), ...step.actions.flatMap((a) => [a.text, a.watch, a.label])];
			assert.doesNotMatch(texts.join(), /undefined|null|NaN/);
		}
		assert.doesNotMatch(p.proved, /undefined|null|NaN/);
	} });
});

test('each action says where there is something to see, and that is a piece of the page', () => {
	const markup = readFileSync(new URL('../page/index.html', import.meta.url), 'utf8');
	for (const scene of scenes) {
		for (const action of scene.steps.flatMap((step) => step.actions)) {
			assert.ok(action.aside || action.sights.length > 0, action.label);
			for (const sight of action.sights) {
				assert.match(markup, new RegExp(`<hf-${sight} `), action.label);
			}
		}
	}
});

test('before each click the guide names one button that can be pressed', () => {
	walk(log.events, { pick: (p, state, event) => {
		const { action, off } = placeOf(pausedHolder, p, state);
		if (event.kind === 'round' || !state.workers.B.pid) {
			return;
		}
		// Between an action and its last consequence, as between waking and writing, there is a moment of its own.
		if (!['woken', 'wrote', 'svc-granted', 'looked'].includes(event.kind)) {
			assert.equal(off, '', `${event.kind} ${event.seq} in step ${p.step}`);
		}
		assert.equal(action === null, p.finished || (p.step === 4 && event.kind === 'wrote'));
	} });
});

test('a reset goes back to step 1, from the end of step 4 on to step 5, and within step 5 nowhere', () => {
	const fresh = { seq: 900, atMs: 0, kind: 'round', who: 'lab', round: 9, ttlMs: 4000, compare: false, mark: 32, lastToken: 32, lines: 32 };
	const atThree = walk(cut((e) => e.kind === 'acquired' && e.who === 'B'));
	assert.equal(atThree.progress.step, 3);
	assert.equal(walk([fresh], atThree).progress.step, 1);
	const four = walk(cut((e) => e.kind === 'corrupted'));
	assert.deepEqual([four.progress.step, four.progress.finished], [4, true]);
	const five = walk([fresh], four);
	assert.deepEqual([five.progress.step, five.progress.finished, five.progress.done], [5, false, 4]);
	assert.equal(walk([{ ...fresh, seq: 950, round: 10 }], five).progress.step, 5);
});

test('who leaves the path is told, and only then', () => {
	const off = (events, step) => {
		const { state, progress } = walk(events);
		return placeOf(pausedHolder, atStep(progress, step), state).off;
	};
	const started = cut((e) => e.kind === 'started' && e.who === 'B');
	assert.equal(off(started, 1), '');
	const acquired = cut((e) => e.kind === 'wrote');
	assert.match(off([...acquired, { seq: 990, atMs: 9000, kind: 'killed', who: 'A', pid: 1, token: 33 }], 2), /A holds no ticket/);
	assert.match(off([...acquired, { seq: 990, atMs: 9000, kind: 'compare', who: 'gate', on: true, mark: 33 }], 2), /compares tokens/);
	const expired = cut((e) => e.kind === 'svc-freed');
	assert.equal(off(expired, 3), '');
	assert.match(off([...expired, { seq: 990, atMs: 20000, kind: 'killed', who: 'B', pid: 1 }], 3), /B is dead: start it first/);
	assert.match(off([...expired, { seq: 990, atMs: 20000, kind: 'killed', who: 'A', pid: 1, token: 33 }], 3), /not standing still/);
	assert.match(off(expired, 4), /B has not written/);
	assert.match(off(cut((e) => e.kind === 'acquired', [{ kind: 'paused', who: 'A', token: 33, poised: true }]), 1), /A is stopped/);
});

test('A woken before its lease ran out has written honestly', () => {
	const events = cut((e) => e.kind === 'paused', [
		{ kind: 'woken', who: 'A', token: 33, poised: true, pausedMs: 10 },
		{ kind: 'wrote', who: 'A', token: 33, value: 'x', compare: false, line: 34, basis: 33, mark: 33 },
	]);
	const { state, progress } = walk(events);
	const facts = factsOf(state);
	assert.deepEqual([facts.stop, facts.late], [null, null]);
	assert.deepEqual([progress.step, progress.finished], [2, false]);
});

test('B, waiting before, may be told of its grant before the service is heard', () => {
	const events = cut((e) => e.kind === 'paused', [
		{ kind: 'acquired', who: 'B', token: 34, tookMs: 4000, leftMs: 3000, mark: 34 },
		{ kind: 'svc-freed', who: 'service', worker: 'A', token: 33, cause: 'expired' },
	]);
	const { state, progress } = walk(events);
	assert.equal(factsOf(state).b.token, 34);
	assert.deepEqual([progress.step, progress.finished], [2, true], 'what it proved can be read');
	const last = events.at(-1);
	const wrote = { seq: last.seq + 1, atMs: last.atMs + 9, kind: 'wrote', who: 'B', token: 34, line: 34, mark: 34 };
	const on = walk([wrote], { state, progress });
	assert.deepEqual([on.progress.step, on.progress.finished], [3, true]);
});

test('the stage for a step is set by all that the steps before it need', () => {
	const labels = (n) => before(pausedHolder, n).map((a) => a.label);
	assert.deepEqual(labels(1), []);
	assert.deepEqual(labels(2), ['A acquires', 'A writes']);
	assert.deepEqual(labels(4), ['A acquires', 'A writes', 'A is stopped', 'the lease runs out', 'B acquires', 'B writes']);
	assert.deepEqual(labels(5), []);
});

test('progress survives a reload of the same world only', () => {
	const kept = JSON.stringify({ scene: 'paused-holder', world: 'w', step: 3, done: 2, finished: true, free: false, proved: 'x' });
	assert.deepEqual(restored(kept, pausedHolder, 'w'), { step: 3, done: 2, finished: true, free: false, proved: 'x' });
	for (const text of ['', '{', '[]', 'null', '{"scene":"paused-holder","world":"w","step":9,"done":0}',
		'{"scene":"paused-holder","world":"w","step":"1","done":0}']) {
		assert.deepEqual(restored(text, pausedHolder, 'w'), beginning());
	}
	assert.deepEqual(restored(kept, pausedHolder, 'other'), beginning());
});

test('each scene is complete', () => {
	assert.equal(sceneOf('nonsense'), scenes[0]);
	for (const scene of scenes) {
		assert.equal(new Set(scene.steps.map((s) => s.id)).size, scene.steps.length);
		for (const step of scene.steps) {
			assert.ok(step.actions.length > 0 && step.actions.every((a) => a.text && a.watch && a.label));
		}
	}
});
