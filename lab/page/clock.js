// @ts-check
/**
 * The world's time as well as the browser can tell it. Each message of the lab carries a time of the world's clock; what
 * it took to arrive is never negative, so of the latest messages the one that is furthest ahead is the closest to the
 * truth. The clock is steered towards it and never goes back, except where a new round begins.
 */

const kept = 12;
const jumpMs = 1000;

/** World time, in milliseconds since the round began. */
export class Clock {
	#tick;
	/** @type {number[]} */
	#offsets = [];
	#offset = 0;
	#last = 0;
	#at = 0;
	#stopped = true;

	/** @param {() => number} tick a monotonic clock in ms, such as performance.now */
	constructor(tick) {
		this.#tick = tick;
	}

	/** A new round began: forget the old one's time. @param {number} atMs */
	restart(atMs) {
		this.#at = this.#tick();
		this.#offsets = [atMs - this.#at];
		this.#offset = atMs - this.#at;
		this.#last = atMs;
		this.#stopped = false;
	}

	/** A message of now says what time it is. @param {number} atMs */
	hear(atMs) {
		if (!Number.isFinite(atMs)) {
			return;
		}
		if (this.#stopped || this.#offsets.length === 0) {
			this.restart(Math.max(atMs, this.#last));
			return;
		}
		this.#offsets.push(atMs - this.#tick());
		if (this.#offsets.length > kept) {
			this.#offsets.shift();
		}
	}

	/** The world cannot be heard: its time stands until it is. */
	stop() {
		this.now();
		this.#stopped = true;
	}

	/** The world's time. @returns {number} */
	now() {
		const tick = this.#tick();
		const passed = Math.max(0, tick - this.#at);
		this.#at = tick;
		if (this.#stopped || this.#offsets.length === 0) {
			return this.#last;
		}
		const error = Math.max(...this.#offsets) - this.#offset;
		// A little too fast or too slow, until it is right; what is far ahead is caught up with at once.
		this.#offset += error > jumpMs ? error : Math.max(-0.2 * passed, Math.min(0.5 * passed, error));
		this.#last = Math.max(this.#last, tick + this.#offset);
		return this.#last;
	}
}
