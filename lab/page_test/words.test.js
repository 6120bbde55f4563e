import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { readLock } from '../page/service.js';
import { Crier, sentence } from '../page/words.js';

const log = JSON.parse(readFileSync(new URL('./fixture-five-steps.json', import.meta.url), 'utf8'));

test('main events have a sentence, pulses have none', () => {
	for (const event of log.events) {
		const text = sentence(event);
		assert.doesNotMatch(text, /undefined|null/);
		assert.equal(text === '', ['pulse', 'heard', 'looked', 'svc-granted'].includes(event.kind) || (event.kind === 'started' && false), event.kind);
	}
	assert.equal(sentence({ kind: 'constructor' }), '');
	assert.equal(sentence({ kind: '__proto__' }), '');
});

test('the crier says quick things together and never all of many', () => {
	const said = [];
	const timers = [];
	const crier = new Crier((text) => said.push(text), (then, ms) => timers.push([then, ms]));
	crier.tell('one.');
	crier.tell('');
	crier.tell('two.');
	assert.deepEqual(said, []);
	timers.shift()[0]();
	assert.deepEqual(said, ['one. two.']);
	for (let i = 0; i < 20; i++) {
		crier.tell(`${i}.`);
	}
	assert.equal(timers.length, 1);
	timers.shift()[0]();
	assert.equal(said[1], '16. 17. 18. 19.');
	timers.shift()[0]();
	assert.equal(timers.length, 0);
	crier.tell('again.');
	timers.shift()[0]();
	assert.equal(said[2], 'again.');
});

test('an answer of the public API is read with its strings and its gaps', () => {
	assert.deepEqual(readLock({ lock: { name: 'invoices', holders: [{ tokenNumber: '33', label: 'worker A', ttlLeftMs: '3997' }],
		queue: [{ label: 'worker B' }] } }), { holder: { worker: 'A', token: 33 }, queue: ['B'], ttlLeftMs: 3997 });
	assert.deepEqual(readLock({ lock: { holders: [{ tokenNumber: '33', label: 'worker A' }] } }),
		{ holder: { worker: 'A', token: 33 }, queue: [], ttlLeftMs: 0 });
	for (const odd of [undefined, null, {}, { lock: {} }, { lock: { holders: {} } }, 'x']) {
		assert.equal(readLock(odd).holder, null);
	}
});
