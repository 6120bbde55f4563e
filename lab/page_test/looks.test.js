// @ts-check
/** What must hold for colours, whoever changes them: who can tell tickets apart, and that red means one thing. */

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

// The elements extend what only a browser has; nothing here builds one.
Object.assign(globalThis, {
	HTMLElement: class {}, customElements: { define() {} }, matchMedia: () => ({ matches: false }),
});
const { ticketColours } = await import('../page/elements/ticket.js');
const { stateWords } = await import('../page/elements/worker.js');

const css = new URL('../page/css/', import.meta.url);
const numbers = Array.from({ length: 160 }, (_, i) => 33 + i);

/** @param {string} hex @returns {number[]} linear light, 0 to 1 */
function light(hex) {
	return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
		.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
}

/** @param {number[]} rgb */
const luminance = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;

/** WCAG's contrast of two colours. @param {string} one @param {string} other */
function contrast(one, other) {
	const [a, b] = [luminance(light(one)), luminance(light(other))].sort((x, y) => y - x);
	return (a + 0.05) / (b + 0.05);
}

/** @param {string} hex @returns {{hue: number, chroma: number}} */
function hueOf(hex) {
	const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
	const most = Math.max(r, g, b);
	const chroma = most - Math.min(r, g, b);
	if (chroma === 0) {
		return { hue: 0, chroma };
	}
	const turn = most === r ? ((g - b) / chroma + 6) % 6 : most === g ? (b - r) / chroma + 2 : (r - g) / chroma + 4;
	return { hue: turn * 60, chroma };
}

/** The custom properties of tokens.css as [light, dark]. @returns {Map<string, [string, string]>} */
function tokens() {
	const found = new Map();
	for (const [, name, day, night] of readFileSync(new URL('tokens.css', css), 'utf8')
		.matchAll(/--([\w-]+):\s*light-dark\((#\w{6}), (#\w{6})\)/g)) {
		found.set(name, [day, night]);
	}
	return found;
}

test('a number keeps its colour and pattern', () => {
	for (const n of numbers) {
		assert.deepEqual(ticketColours(n), ticketColours(n));
	}
	const looks = new Set(numbers.slice(0, 40).map((n) => `${ticketColours(n).fill} ${ticketColours(n).pattern}`));
	assert.equal(looks.size, 40, 'forty numbers in a row look different');
});

test('neighbours differ in lightness and pattern, so whoever sees no colours can tell them apart', () => {
	for (const n of numbers) {
		const [one, next] = [ticketColours(n), ticketColours(n + 1)];
		assert.notEqual(one.pattern, next.pattern, `${n}: pattern`);
		assert.ok(contrast(one.fill, next.fill) >= 2, `${n}: ${contrast(one.fill, next.fill).toFixed(2)}`);
	}
	assert.ok(contrast(ticketColours(33).fill, ticketColours(34).fill) >= 3, '33 and 34');
});

test('no ticket is red', () => {
	for (const n of numbers) {
		for (const colour of [ticketColours(n).fill, ticketColours(n).edgeLight, ticketColours(n).edgeDark]) {
			const { hue, chroma } = hueOf(colour);
			assert.ok(chroma < 0.15 || (hue > 30 && hue < 320), `${n}: ${colour} has hue ${hue.toFixed(0)}`);
		}
	}
});

test('a ticket can be read, and its edge be seen on both papers', () => {
	const [day, night] = /** @type {[string, string]} */ (tokens().get('paper'));
	for (const n of [32, ...numbers]) {
		const { fill, ink, edgeLight, edgeDark } = ticketColours(n);
		assert.ok(contrast(fill, ink) >= 4.5, `${n}: number ${contrast(fill, ink).toFixed(2)}`);
		assert.ok(contrast(edgeLight, day) >= 3, `${n}: edge by day ${contrast(edgeLight, day).toFixed(2)}`);
		assert.ok(contrast(edgeDark, night) >= 3, `${n}: edge by night ${contrast(edgeDark, night).toFixed(2)}`);
	}
});

test('words and lines have enough contrast in both themes', () => {
	const all = tokens();
	/** @param {string} name @param {number} theme */
	const of = (name, theme) => {
		const pair = all.get(name);
		assert.ok(pair, `--${name} is in tokens.css`);
		return pair[theme];
	};
	/** @type {[string, string[], number][]} */
	const needs = [
		['ink', ['paper', 'paper-2', 'bench', 'well'], 4.5], ['ink-2', ['paper', 'paper-2', 'bench'], 4.5],
		['broken', ['paper', 'broken-wash'], 4.5], ['ink', ['broken-wash'], 4.5], ['on-window', ['window'], 4.5],
		['inverse', ['ink'], 4.5], ['line', ['paper', 'paper-2'], 3], ['brass', ['paper', 'bench'], 3],
		['brass-edge', ['paper', 'paper-2'], 3], ['broken-fill', ['paper', 'bench'], 3],
	];
	for (const [front, backs, least] of needs) {
		for (const [theme, back] of [0, 1].flatMap((t) => backs.map((b) => /** @type {const} */ ([t, b])))) {
			const got = contrast(of(front, theme), of(back, theme));
			assert.ok(got >= least, `--${front} on --${back}, ${theme ? 'dark' : 'light'}: ${got.toFixed(2)} < ${least}`);
		}
	}
	for (const theme of [0, 1]) {
		assert.ok(contrast('#ffffff', of('broken-fill', theme)) >= 4.5, 'white on the red');
	}
});

test('red belongs to a corrupted ledger', () => {
	const allowed = /\[data-verdict="corrupted"\]|\[data-bad\]|\[data-kind="corrupted"\]|\.mark-shout|\.ledger-findings/;
	for (const file of readdirSync(css)) {
		const text = readFileSync(new URL(file, css), 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
		for (const [, selector, body] of text.matchAll(/([^{}]+)\{([^{}]*)\}/g)) {
			if (file !== 'tokens.css' && /--(on-)?broken/.test(body)) {
				assert.match(selector, allowed, `${file}: ${selector.trim()}`);
			}
			for (const [colour] of file === 'tokens.css' ? [] : body.matchAll(/#[0-9a-f]{3,8}\b|\b(?:red|rgb|hsl|oklch)\b\(?/gi)) {
				assert.fail(`${file}: ${selector.trim()} has a colour of its own: ${colour}`);
			}
		}
	}
});

test('a worker says what it thinks, stopped or not', () => {
	const base = /** @type {any} */ ({ status: 'holds', stopped: false, token: 33, lostToken: null, lostText: '' });
	assert.equal(stateWords(base), 'holds 33');
	assert.equal(stateWords({ ...base, stopped: true }), 'stopped: thinks it holds 33');
	assert.equal(stateWords({ ...base, status: 'waiting', token: null, stopped: true }), 'stopped while waiting');
	assert.equal(stateWords({ ...base, status: 'lost', token: null, lostToken: 33 }), 'knows that it lost 33');
	assert.equal(stateWords({ ...base, status: 'dead', token: null, lostText: 'killed' }), 'killed');
});
