import assert from 'node:assert/strict';
import { test } from 'node:test';

// The elements extend what only a browser has; nothing here builds one.
Object.assign(globalThis, { HTMLElement: class {}, matchMedia: () => ({ matches: false }) });
const { way } = await import('../page/elements/view.js');

const room = { top: 10, bottom: 410 };
const box = (top, height) => ({ top, bottom: top + height });

test('what is in view stays where it is', () => {
	assert.equal(way([box(10, 400)], room), 0);
	assert.equal(way([box(200, 50), box(20, 100)], room), 0);
	assert.equal(way([], room), 0);
});

test('what is below or above comes into view by the shortest way', () => {
	assert.equal(way([box(400, 100)], room), 90);
	assert.equal(way([box(-50, 100)], room), -60);
});

test('of two that do not fit together the first is seen whole, and of the other as much as fits', () => {
	assert.equal(way([box(600, 300), box(900, 200)], room), 590, 'the first at the top, the second below it');
	assert.equal(way([box(900, 200), box(600, 300)], room), 690, 'the first at the bottom, the second above it');
});

test('of one that is higher than the room the top is seen', () => {
	assert.equal(way([box(600, 900)], room), 590);
});
