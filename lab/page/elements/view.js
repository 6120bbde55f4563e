// @ts-check
/** What a visitor sees of the page: on a small screen not all of the stage at a time. */

import { still } from './dom.js';

/**
 * How far to scroll down so that a visitor sees these boxes: as much of all of them as fits, of the first one above all,
 * and of one that is higher than the room its top. Nothing moves that is in view already.
 * @param {{top: number, bottom: number}[]} boxes the most important one first @param {{top: number, bottom: number}} room
 * @returns {number}
 */
export function way(boxes, room) {
	let by = 0;
	for (const box of [...boxes].reverse()) {
		by += Math.max(0, box.bottom - by - room.bottom);
		by -= Math.max(0, room.top - (box.top - by));
	}
	return by;
}

/** What is left free around what is brought into view, in pixels. */
const margin = 8;

/**
 * Brings pieces of the page into view, the first of them above all.
 * @param {Element[]} pieces @param {boolean} [travel] so that one sees where they are
 */
export function show(pieces, travel = false) {
	const { scrollPaddingTop, scrollPaddingBottom } = getComputedStyle(document.documentElement);
	const room = {
		top: (parseFloat(scrollPaddingTop) || 0) + margin,
		bottom: innerHeight - (parseFloat(scrollPaddingBottom) || 0) - margin,
	};
	const by = way(pieces.map((piece) => piece.getBoundingClientRect()), room);
	if (Math.abs(by) > 1) {
		scrollBy({ top: by, behavior: travel && !still() ? 'smooth' : 'instant' });
	}
}
