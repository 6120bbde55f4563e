// @ts-check
/**
 * The shapes on the timeline. Each makes a group once and returns how to put it in its place: x positions change with
 * the clock, so nothing is drawn anew for that.
 */

import { put, s, say, seconds } from './dom.js';
import { paint, patternOf } from './ticket.js';

/** @typedef {import('../types.js').Band} Band */
/** @typedef {import('../types.js').ServiceBand} ServiceBand */
/** @typedef {import('../types.js').Stop} Stop */
/** @typedef {import('../types.js').Tick} Tick */
/** @typedef {import('../types.js').Drop} Drop */
/** @typedef {import('../types.js').Mark} Mark */
/** @typedef {import('../types.js').Overlap} Overlap */
/** @typedef {import('../types.js').Lane} Lane */

/** @typedef {object} Shape
 * @property {SVGGElement} el
 * @property {number} from
 * @property {number|null} to null: it goes on
 * @property {number|null} seq the event it stands for, if one can point at it
 * @property {string} lane
 * @property {string} [words] what may be written on it: its name begins with that, so that it can be called by what is seen
 * @property {(x:(at:number) => number, now:number, width:number) => void} place `width` is the view's
 */

/** Where things are, from above, in pixels. */
export const lanes = {
	axis: 13, height: 208,
	/** @type {Record<Lane, number>} the middle of each lane */
	middle: { A: 50, B: 101, service: 144, gate: 182 },
	band: 26, serviceBand: 16,
};

/** The drawing order, from below. */
export const layers = ['ticks', 'bands', 'stops', 'drops', 'marks', 'overlaps'];

/** @param {number} at @param {string} className */
const groupOf = (at, className) => s('g', { class: className, 'data-at': Math.round(at) });

/**
 * A time in which a worker thinks that it holds. Its label ends where the worker was first stopped.
 * @param {Band} band @param {() => number|null} [stopOf] when that was
 * @returns {Shape}
 */
export function bandShape(band, stopOf) {
	const y = lanes.middle[band.worker === 'B' ? 'B' : 'A'] - lanes.band / 2;
	const el = groupOf(band.from, 'band');
	put(el, 'data-band', band.worker);
	put(el, 'data-token', band.token);
	return spanShape(el, band, { y, height: lanes.band, lane: band.worker, words: `thinks it holds ${band.token}`, stopOf });
}

/** A time in which somebody holds by the service's books. @param {ServiceBand} band @returns {Shape} */
export function serviceShape(band) {
	const y = lanes.middle.service - lanes.serviceBand / 2;
	const el = groupOf(band.from, 'band band-service');
	put(el, 'data-token', band.token);
	return spanShape(el, band, { y, height: lanes.serviceBand, lane: 'service', words: `${band.worker} holds ${band.token}` });
}

/**
 * @param {SVGGElement} el @param {Band} band
 * @param {{y:number, height:number, lane:string, words:string, stopOf?:() => number|null}} how @returns {Shape}
 */
function spanShape(el, { token, from, to, seq }, { y, height, lane, words, stopOf }) {
	paint(el, token);
	const paper = s('rect', { y, height, class: 'band-paper', fill: `url(#${patternOf(token)})`, rx: 1.5 });
	const plate = s('rect', { y: y + height / 2 - 7.5, height: 15, class: 'band-plate', rx: 2 });
	const label = s('text', { y: y + height / 2 + 4.2, class: 'band-label' });
	el.append(paper, plate, label);
	const long = words.length * 6.1 + 12;
	const short = String(token);
	return {
		el, from, to, seq, lane, words,
		place(x, now) {
			const left = x(from);
			const width = Math.max(2, x(to ?? now) - left);
			put(paper, 'x', left.toFixed(1));
			put(paper, 'width', width.toFixed(1));
			const start = Math.max(left, 0);
			const room = Math.min(left + width, x(stopOf?.() ?? Infinity)) - start;
			const text = room > long + 8 ? words : room > short.length * 8 + 10 ? short : '';
			say(label, text);
			const plateWidth = text === words ? long : short.length * 7.4 + 9;
			put(plate, 'visibility', text ? null : 'hidden');
			put(plate, 'x', (start + 4).toFixed(1));
			put(plate, 'width', plateWidth.toFixed(1));
			put(label, 'x', (start + 4 + plateWidth / 2).toFixed(1));
		},
	};
}

/** An edge of torn paper, from above. @param {number} x @param {number} y @param {number} height @param {number} way */
function tornEdge(x, y, height, way) {
	const teeth = [0, 2.6, -1.4, 3.4, -2.2, 1.8, -2.8, 2.2, 0];
	return teeth.map((tooth, i) => `${i ? 'L' : 'M'}${(x + tooth * way).toFixed(1)} ${(y + (height * i) / (teeth.length - 1)).toFixed(1)}`).join('');
}

/** A time in which a worker stands still: a gap with torn edges; what it thinks goes on behind it. @param {Stop} stop @returns {Shape} */
export function stopShape(stop) {
	const height = lanes.band + 14;
	const y = lanes.middle[stop.worker === 'B' ? 'B' : 'A'] - height / 2;
	const el = groupOf(stop.from, 'stop');
	const veil = s('path', { class: 'stop-veil' });
	const edges = s('path', { class: 'stop-edge' });
	const label = s('text', { y: y + height / 2 + 4.4, class: 'stop-label' }, 'stopped');
	const plate = s('rect', { y: y + height / 2 - 8.5, height: 17, width: 58, rx: 2, class: 'stop-plate' });
	el.append(veil, edges, plate, label);
	return {
		el, from: stop.from, to: stop.to, seq: stop.seq, lane: stop.worker, words: 'stopped',
		place(x, now) {
			const left = x(stop.from);
			const right = Math.max(left + 3, x(stop.to ?? now));
			const one = tornEdge(left, y, height, 1);
			const other = tornEdge(right, y, height, stop.to === null ? 0 : -1);
			const back = other.slice(1).split('L').reverse().join('L');
			put(veil, 'd', `${one}L${back}Z`);
			put(edges, 'd', stop.to === null ? one : one + other);
			const start = Math.max(left, 0);
			const fits = right - start > 66;
			put(label, 'visibility', fits ? null : 'hidden');
			put(plate, 'visibility', fits ? null : 'hidden');
			put(label, 'x', (start + 37).toFixed(1));
			put(plate, 'x', (start + 8).toFixed(1));
		},
	};
}

/** A renewal: on a worker's lane as it counted, on the service's as it was heard. @param {Tick} tick @returns {Shape} */
export function tickShape(tick) {
	const service = tick.lane === 'service';
	const half = (service ? lanes.serviceBand : lanes.band) / 2;
	const y = lanes.middle[tick.lane] + half;
	const el = groupOf(tick.at, 'tick');
	el.append(s('path', { class: 'tick-reach', d: `M-5 ${y - 2}h10v12h-10z` }), s('path', { class: 'tick-line', d: `M0 ${y + 1}v7` }));
	return pointShape(el, tick.at, tick.seq, tick.lane);
}

/** @param {SVGGElement} el @param {number} at @param {number|null} seq @param {string} lane @returns {Shape} */
function pointShape(el, at, seq, lane) {
	return { el, from: at, to: at, seq, lane, place: (x) => put(el, 'transform', `translate(${x(at).toFixed(1)} 0)`) };
}

/** A write: a drop from a worker's lane to the gate's; one that is refused bounces. @param {Drop} drop @returns {Shape} */
export function dropShape(drop) {
	const top = lanes.middle[drop.worker === 'B' ? 'B' : 'A'] + lanes.band / 2;
	const gate = lanes.middle.gate;
	const el = groupOf(drop.at, 'drop');
	put(el, 'data-verdict', drop.verdict);
	put(el, 'data-token', drop.token);
	paint(el, drop.token);
	el.append(s('path', { class: 'drop-reach', d: `M-9 ${top}h18V${gate + 12}h-18z` }),
		s('circle', { class: 'drop-start', cy: top, r: 3.5 }));
	if (drop.verdict === 'accepted') {
		el.append(s('path', { class: 'drop-line', d: `M0 ${top + 4}V${gate - 9}` }),
			s('path', { class: 'drop-body', d: `M0 ${gate - 13}C3 ${gate - 7} 7.5 ${gate - 4} 7.5 ${gate + 1}a7.5 7.5 0 0 1 -15 0C-7.5 ${gate - 4} -3 ${gate - 7} 0 ${gate - 13}Z` }));
	} else {
		el.append(s('path', { class: 'drop-line', d: `M0 ${top + 4}V${gate - 6}` }),
			s('path', { class: 'drop-bounce', d: `M0 ${gate - 6}C3 ${gate - 30} 15 ${gate - 34} 19 ${gate - 22}` }),
			s('circle', { class: 'drop-off', cx: 20, cy: gate - 15, r: 7 }),
			s('path', { class: 'drop-cross', d: `M17.2 ${gate - 17.8}l5.6 5.6m0 -5.6l-5.6 5.6` }));
	}
	return pointShape(el, drop.at, drop.seq, drop.worker);
}

/** @type {Record<string, string>} what a mark is drawn as, around (0, 0) */
const signs = {
	'last-look': 'M0 -30V13M-4 -30h8',
	looked: 'M0 -13V-8',
	queued: 'M-3 -5L3 0L-3 5Z',
	'gave-up': 'M3 -5L-3 0L3 5Z',
	lost: 'M0 -10L6 0L0 10L-6 0Z',
	killed: 'M-6 -6L6 6M6 -6L-6 6',
	ended: 'M-6 -6L6 6M6 -6L-6 6',
	started: 'M-5 -7L6 0L-5 7Z',
	'compare-on': 'M-6 -2h12M-6 3h12M0 -10V-2',
	'compare-off': 'M-6 3L5 -6M0 -10V-2',
	corrupted: 'M0 -11L11 9H-11Z',
};

/** @type {Record<string, {dx:number, dy:number, anchor:string}>} where the words of a mark go; others have none */
const notes = {
	'last-look': { dx: -5, dy: -21, anchor: 'end' },
	lost: { dx: 10, dy: 4, anchor: 'start' },
	killed: { dx: 11, dy: 4, anchor: 'start' },
	ended: { dx: 11, dy: 4, anchor: 'start' },
	started: { dx: 11, dy: 4, anchor: 'start' },
	mark: { dx: 0, dy: 22, anchor: 'middle' },
};

/** Something that happened at one moment on one lane. @param {Mark} mark @returns {Shape} */
export function markShape(mark) {
	const y = lanes.middle[mark.lane];
	const el = groupOf(mark.at, 'mark');
	put(el, 'data-kind', mark.kind);
	const inner = s('g', { transform: `translate(0 ${mark.kind === 'corrupted' ? y + 18 : y})` });
	const sign = signs[mark.kind];
	inner.append(s('path', { class: 'mark-reach', d: 'M-8 -12h16v24h-16z' }));
	if (sign) {
		inner.append(s('path', { class: 'mark-sign', d: sign }));
	}
	const note = notes[mark.kind];
	const text = mark.kind === 'last-look' ? mark.text.replace('looks', 'looked') : mark.kind === 'mark' ? `mark ${mark.text}` : mark.text;
	const words = s('text', { class: 'mark-note', x: note?.dx ?? 0, y: note?.dy ?? 0 }, note ? text : '');
	inner.append(words);
	if (mark.kind === 'corrupted') {
		inner.append(s('path', { class: 'mark-shout', d: 'M0 -4V3M0 5.2V6.6' }));
	}
	el.append(inner);
	const point = pointShape(el, mark.at, mark.seq, mark.lane);
	const reach = text.length * 6.4 + 12;
	return {
		...point,
		words: note ? text : '',
		place(x, now, width) {
			point.place(x, now, width);
			if (note) {
				const at = x(mark.at);
				const anchor = note.anchor === 'end' && at < reach ? 'start' : note.anchor;
				put(words, 'text-anchor', anchor);
				put(words, 'x', anchor === note.anchor ? note.dx : -note.dx);
				put(words, 'visibility', note.anchor === 'start' && at + reach > width ? 'hidden' : null);
			}
		},
	};
}

const tabWidth = 100;

/** Both think that they hold. @param {Overlap} overlap @returns {Shape} */
export function overlapShape(overlap) {
	const top = lanes.middle.A - lanes.band / 2 - 5;
	const bottom = lanes.middle.B + lanes.band / 2 + 5;
	const middle = (lanes.middle.A + lanes.middle.B) / 2;
	const el = groupOf(overlap.from, 'overlap');
	put(el, 'data-overlap', overlap.tokens.join(' '));
	const wash = s('rect', { class: 'overlap-wash', y: middle - 10, height: 20 });
	const frame = s('rect', { class: 'overlap-frame', y: top, height: bottom - top, rx: 2 });
	const tab = s('rect', { class: 'overlap-tab', y: middle - 10, height: 20, width: tabWidth });
	const label = s('text', { class: 'overlap-label', y: middle + 4.6 }, 'two holders');
	el.append(wash, frame, tab, label);
	return {
		el, from: overlap.from, to: overlap.to, seq: null, lane: 'A',
		place(x, now, view) {
			const left = x(overlap.from) - 3;
			const width = Math.max(6, x(overlap.to ?? now) + 3 - left);
			for (const rect of [frame, wash]) {
				put(rect, 'x', left.toFixed(1));
				put(rect, 'width', width.toFixed(1));
			}
			const tabLeft = Math.min(Math.max(left, 0), Math.max(left + width, 0) < tabWidth ? left + width : view - tabWidth - 2);
			put(tab, 'x', tabLeft.toFixed(1));
			put(label, 'x', (tabLeft + tabWidth / 2).toFixed(1));
			put(el, 'aria-label', `two holders for ${seconds((overlap.to ?? now) - overlap.from)} s`);
		},
	};
}
