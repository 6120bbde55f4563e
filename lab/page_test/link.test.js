import assert from 'node:assert/strict';
import test from 'node:test';
import { badValue, defaults, format, parse } from '../page/link.js';

const scenes = ['paused-holder', 'other'];

test('an empty link is the defaults', () => {
	for (const hash of ['', '#', '#nothing=here', '#&&==', '#%', '#%E0%A4%A']) {
		const { link, problems } = parse(hash, scenes);
		assert.deepEqual(link, defaults('paused-holder'), hash);
		assert.deepEqual(problems, [], hash);
	}
});

test('what is written is read again', () => {
	const links = [
		defaults('paused-holder'),
		{ scene: 'other', ttlMs: 2500, compare: true, a: 'a&b=c#d%20', b: '<img src=x onerror=alert(1)>', speed: 0.5, theme: 'dark', step: 3 },
		{ ...defaults('other'), a: '発票 ✓', b: '"\'\\', speed: 4, theme: 'light', ttlMs: 10000 },
	];
	for (const link of links) {
		assert.deepEqual(parse(format(link), scenes), { link, problems: [] });
	}
});

test('the link of the contract', () => {
	const { link } = parse('#scene=paused-holder&ttl=4&compare=on&a=x&b=y&speed=2&theme=dark', scenes);
	assert.deepEqual(link, { scene: 'paused-holder', ttlMs: 4000, compare: true, a: 'x', b: 'y', speed: 2, theme: 'dark', step: 0 });
});

test('what is not possible is named and has its default', () => {
	const bad = {
		scene: ['x', '__proto__', ''], ttl: ['1.9', '10.1', '-4', '1e1', '0x4', 'NaN', 'Infinity', '', ' 4', '99999999'],
		compare: ['true', '1', 'ON', ''], a: ['', '   ', 'x'.repeat(81), 'a\nb', 'a\u202eb', 'a\u0000'], b: ['\u200b'],
		speed: ['3', '0', '', ' 1', '-1', 'x'], theme: ['blue', ''], step: ['0', '10', 'x', '-1', '1.5'],
	};
	for (const [key, texts] of Object.entries(bad)) {
		for (const text of texts) {
			const { link, problems } = parse(`#${new URLSearchParams({ [key]: text })}`, scenes);
			assert.deepEqual(link, defaults('paused-holder'), `${key}=${text}`);
			assert.equal(problems.length, 1, `${key}=${text}`);
		}
	}
});

test('unknown keys, also those of every object, are ignored', () => {
	const { link, problems } = parse('#__proto__=1&constructor=2&toString=3&ttl=3', scenes);
	assert.deepEqual([link.ttlMs, problems.length], [3000, 0]);
});

test('a job is what the lab takes', () => {
	assert.equal(badValue('x'.repeat(80)), '');
	assert.equal(badValue('😀'.repeat(80)), '', 'counted in characters, not in halves of them');
	assert.notEqual(badValue('😀'.repeat(81)), '');
	assert.equal(badValue('<img onerror>'), '');
	assert.notEqual(badValue('\ud800'), '');
});
