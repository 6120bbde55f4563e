// @ts-check
import { h, put, s, say, seconds } from './dom.js';

/** A clock: a dial that a hand crosses once in ten seconds, and the time in figures beside it. */
export class Clock {
	#hand = s('path', { d: 'M16 17V5', class: 'clock-hand' });
	#figures = h('span', { class: 'figures' }, '0.0');

	/** @param {string} label whose clock this is */
	constructor(label) {
		const marks = Array.from({ length: 10 }, (_, i) => s('path', {
			d: i === 0 ? 'M16 2V6.5' : 'M16 2V4', transform: `rotate(${i * 36} 16 16)`, class: 'clock-mark',
		}));
		this.el = h('span', { class: 'clock', role: 'img', 'aria-label': label },
			s('svg', { viewBox: '0 0 32 32', 'aria-hidden': 'true', focusable: 'false' },
				s('circle', { cx: 16, cy: 16, r: 14.5, class: 'clock-face' }), ...marks, this.#hand,
				s('circle', { cx: 16, cy: 16, r: 1.7, class: 'clock-pin' })),
			this.#figures, h('span', { class: 'unit' }, ' s'));
	}

	/** @param {number} ms the time to show @param {boolean} [stopped] it stands still */
	show(ms, stopped = false) {
		put(this.#hand, 'transform', `rotate(${((Math.max(0, ms) % 10000) * 0.036).toFixed(1)} 16 16)`);
		say(this.#figures, seconds(ms));
		put(this.el, 'data-stopped', stopped);
	}
}
