import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { initial, reduce } from '../page/model.js';
import { Player } from '../page/player.js';
import { pausedHolder } from '../page/scenes/paused-holder.js';

const log = JSON.parse(readFileSync(new URL('./fixture-five-steps.json', import.meta.url), 'utf8'));

/** What each press brings about: the fixture's events up to its last consequence. */
const until = {
	'acquire A': (e) => e.kind === 'acquired' && e.who === 'A', 'write A': (e) => e.kind === 'wrote' && e.who === 'A',
	'pause A': (e) => e.kind === 'paused', 'acquire B': (e) => e.kind === 'acquired' && e.who === 'B',
	'write B': (e) => e.kind === 'wrote' && e.who === 'B', 'wake A': (e) => e.kind === 'lost',
	reset: (e) => e.kind === 'started' && e.who === 'B', compare: () => true,
};
/** What comes by itself. */
const free = ['pulse', 'heard', 'svc-freed'];

/** A world made of the fixture: time passes with each sleep, and an event comes when its cause was pressed. */
function world() {
	const made = {
		state: reduce(initial(), { kind: 'live', atMs: 0, on: true }), slept: 0, pressed: [], at: [], left: [...log.events],
		feed(last) {
			for (;;) {
				const event = made.left.shift();
				made.state = reduce(made.state, event);
				if (last(event)) {
					return;
				}
			}
		},
		hands: {
			state: () => made.state,
			press(target) {
				const name = typeof target === 'string' ? target : `${target.do} ${target.worker}`;
				made.pressed.push(name);
				made.at.push(made.slept);
				if (name === 'compare') {
					return '';
				}
				made.feed(until[name]);
				return '';
			},
			act: async (target) => made.hands.press(target),
			async sleep(ms) {
				made.slept += ms;
				if (made.slept % 400 === 0 && free.includes(made.left[0]?.kind)) {
					made.state = reduce(made.state, made.left.shift());
				}
			},
			changed() {},
		},
	};
	made.feed(until.reset);
	return made;
}

const actions = (n) => pausedHolder.steps[n - 1].actions;

test('it plays steps 1 to 5 on the buttons, each to its end', async () => {
	const w = world();
	const player = new Player(w.hands);
	const presses = [];
	for (let n = 1; n <= 5; n++) {
		w.pressed.length = 0;
		assert.equal(await player.play(actions(n)), true, `step ${n}: ${player.text}`);
		assert.equal(player.playing, false);
		assert.equal(pausedHolder.steps[n - 1].done(w.state), true);
		presses.push([...w.pressed]);
	}
	const again = ['acquire A', 'write A', 'pause A', 'acquire B', 'write B', 'wake A'];
	assert.deepEqual(presses, [again.slice(0, 2), ['pause A'], again.slice(3, 5), ['wake A'], ['reset', ...again]]);
});

test('it points for a while before each click, shorter when it is faster', async () => {
	const waits = {};
	for (const speed of [0.5, 1, 2, 4]) {
		const w = world();
		const player = new Player(w.hands);
		player.speed = speed;
		await player.play(actions(1));
		[waits[speed]] = w.at;
	}
	assert.deepEqual(waits, { 0.5: 3200, 1: 1600, 2: 800, 4: 400 });
});

test('paused, it presses nothing; one click on presses once and stands still again', async () => {
	const w = world();
	const player = new Player(w.hands);
	let ticks = 0;
	const seen = [];
	const sleep = w.hands.sleep;
	w.hands.sleep = async (ms) => {
		await sleep(ms);
		ticks++;
		if (ticks === 2) { player.pause(); }
		if (ticks === 200) { seen.push([...w.pressed], player.paused); player.step(); }
		if (ticks === 400) { seen.push([...w.pressed], player.paused); player.resume(); }
	};
	assert.equal(await player.play(actions(1)), true);
	assert.deepEqual(seen, [[], true, ['acquire A'], true]);
	assert.deepEqual(w.pressed, ['acquire A', 'write A']);
});

test('started for one click it stands still after it', async () => {
	const w = world();
	const player = new Player(w.hands);
	const sleep = w.hands.sleep;
	w.hands.sleep = async (ms) => {
		await sleep(ms);
		if (w.slept > 60000) { player.stop('enough'); }
	};
	assert.equal(await player.play(actions(1), true), false);
	assert.deepEqual(w.pressed, ['acquire A']);
	assert.equal(player.text, 'enough');
});

test('what the visitor does meanwhile is not done again', async () => {
	const w = world();
	const player = new Player(w.hands);
	const sleep = w.hands.sleep;
	let done = false;
	w.hands.sleep = async (ms) => {
		await sleep(ms);
		if (w.slept > 600 && !done) { done = true; w.feed(until['acquire A']); }
	};
	await player.play(actions(1));
	assert.deepEqual(w.pressed, ['write A']);
});

test('stopped, it presses nothing more, and a second play takes over from the first', async () => {
	const w = world();
	const player = new Player(w.hands);
	const first = player.play(actions(1));
	const second = player.play(actions(1));
	assert.equal(await first, false);
	assert.equal(await second, true);
	assert.deepEqual(w.pressed, ['acquire A', 'write A']);
	const third = player.play(actions(2));
	player.stop('You took over.');
	assert.equal(await third, false);
	assert.deepEqual(w.pressed, ['acquire A', 'write A']);
	assert.deepEqual([player.playing, player.text], [false, 'You took over.']);
});

test('a refused press, a lab that is away and a wait in vain end it with a reason', async () => {
	const refused = world();
	refused.hands.press = () => 'B is dead';
	const player = new Player(refused.hands);
	assert.equal(await player.play(actions(1)), false);
	assert.match(player.text, /B is dead/);

	const away = world();
	away.hands.press = () => {
		away.state = reduce(away.state, { kind: 'live', atMs: 0, on: false, text: 'away' });
		return '';
	};
	const second = new Player(away.hands);
	assert.equal(await second.play(actions(1)), false);
	assert.match(second.text, /away/);

	const vain = world();
	vain.hands.press = () => '';
	const third = new Player(vain.hands);
	assert.equal(await third.play(actions(1)), false);
	assert.match(third.text, /did not come/);
	assert.ok(vain.slept >= 10000 && vain.slept < 20000);
});

test('the stage is set by a reset and then without delay', async () => {
	const w = world();
	const player = new Player(w.hands);
	await player.play(actions(1));
	await player.play(actions(2));
	await player.play(actions(3));
	await player.play(actions(4));
	w.pressed.length = 0;
	const slept = w.slept;
	const acts = [...actions(1), ...actions(2)].filter((a) => !a.aside);
	assert.equal(await player.arrange(acts, async () => w.hands.press('reset')), true, player.text);
	assert.deepEqual(w.pressed, ['reset', 'acquire A', 'write A', 'pause A']);
	assert.ok(w.slept - slept < 6000);
	assert.equal(player.arranging, false);
});
