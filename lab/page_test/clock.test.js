import assert from 'node:assert/strict';
import test from 'node:test';
import { Clock } from '../page/clock.js';

function clockAt(start) {
	let tick = start;
	const clock = new Clock(() => tick);
	return { clock, pass: (ms) => { tick += ms; } };
}

test('it runs with the browser’s clock from what it heard', () => {
	const { clock, pass } = clockAt(5000);
	assert.equal(clock.now(), 0, 'nothing heard yet');
	clock.restart(100);
	pass(50);
	assert.equal(clock.now(), 150);
});

test('it never goes back, and is steered to the least delayed message', () => {
	const { clock, pass } = clockAt(0);
	clock.restart(0);
	let last = 0;
	for (let i = 1; i <= 300; i++) {
		pass(20);
		clock.hear(i * 20 - (i % 7) * 13 + 100);
		const now = clock.now();
		assert.ok(now >= last, 'no step back');
		last = now;
	}
	assert.ok(Math.abs(last - (300 * 20 + 100)) < 15, `it is ${last}`);
});

test('a late message does not slow it down, a far-off one is caught up with', () => {
	const { clock, pass } = clockAt(0);
	clock.restart(1000);
	pass(100);
	clock.hear(600);
	assert.equal(clock.now(), 1100);
	pass(10);
	clock.hear(9000);
	assert.equal(clock.now(), 9000);
});

test('while the world is away its time stands; a new round starts at its own time', () => {
	const { clock, pass } = clockAt(0);
	clock.restart(500);
	pass(10);
	clock.stop();
	pass(5000);
	assert.equal(clock.now(), 510);
	clock.hear(NaN);
	assert.equal(clock.now(), 510);
	clock.hear(7000);
	pass(5);
	assert.equal(clock.now(), 7005);
	clock.restart(0);
	pass(3);
	assert.equal(clock.now(), 3);
});
