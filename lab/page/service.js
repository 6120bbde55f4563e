// @ts-check
/**
 * A small client of the lock service's public API (docs/api.md), which the lab passes on: who holds the lock, who waits,
 * and how long the service would still wait for the holder. It asks GetLock on each event of the watch, and now and then
 * in between, because a renewal is no event.
 */

import { api } from './feed.js';

/** @typedef {import('./types.js').LabEvent} LabEvent */

const askMs = 300;
const waitMs = 3000;
/** The events of a lock that change what GetLock answers. */
const kinds = ['queued', 'left', 'granted', 'released', 'revoked', 'closed', 'reopened', 'reload'];

/** What the page asks of the world's lock service. */
export class ServiceClient {
	#how;
	#turn = 0;
	/** @type {EventSource|null} */
	#watch = null;
	#due = false;
	/** @type {() => void} */
	#wake = () => {};

	/**
	 * @param {object} how
	 * @param {() => number} how.now world time
	 * @param {() => {round: number, lock: string}} how.round
	 * @param {(event: LabEvent) => void} how.read takes a `service-read`
	 */
	constructor(how) {
		this.#how = how;
	}

	/** Asks this world's service from now on. @param {string} world @param {boolean} stream whether to watch as well */
	attach(world, stream) {
		this.detach();
		const turn = this.#turn;
		const base = `${api}/worlds/${world}/service`;
		if (stream) {
			this.#open(base);
		}
		void this.#keepAsking(base, turn);
	}

	/** Asks nothing any more. */
	detach() {
		this.#turn++;
		this.#watch?.close();
		this.#watch = null;
		this.#wake();
	}

	/** @param {string} base */
	#open(base) {
		const watch = new EventSource(`${base}/v1/watch?lock=${encodeURIComponent(this.#how.round().lock)}`);
		this.#watch = watch;
		for (const kind of kinds) {
			watch.addEventListener(kind, () => this.#askNow());
		}
		watch.onerror = () => {
			// The polling goes on without it; the next round, or a new connection to the lab, opens another one.
			if (watch.readyState === EventSource.CLOSED && this.#watch === watch) {
				this.#watch = null;
			}
		};
	}

	#askNow() {
		this.#due = true;
		this.#wake();
	}

	/** @param {string} base @param {number} turn */
	async #keepAsking(base, turn) {
		while (turn === this.#turn) {
			this.#due = false;
			await this.#ask(base, turn);
			if (turn === this.#turn && !this.#due) {
				await new Promise((resolve) => {
					const timer = setTimeout(resolve, askMs);
					this.#wake = () => {
						clearTimeout(timer);
						resolve(undefined);
					};
				});
			}
		}
	}

	/** @param {string} base @param {number} turn */
	async #ask(base, turn) {
		const { round, lock } = this.#how.round();
		// What is told is counted from before the question left, as the holder itself counts.
		const atMs = this.#how.now();
		const found = round === 0 ? null : await getLock(base, lock);
		if (found && turn === this.#turn) {
			this.#how.read({ kind: 'service-read', atMs, round, ...found });
		}
	}
}

/**
 * @param {string} base @param {string} lock
 * @returns {Promise<{ok: boolean, holder?: {worker: string, token: number}|null, queue?: string[], ttlLeftMs?: number}>}
 */
async function getLock(base, lock) {
	try {
		const answer = await fetch(`${base}/holdfast.v1.LockService/GetLock`, {
			method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ lock }),
			cache: 'no-store', signal: AbortSignal.timeout(waitMs),
		});
		const told = await answer.json();
		return answer.ok ? { ok: true, ...readLock(told) } : { ok: told.code === 'not_found', holder: null, queue: [] };
	} catch {
		return { ok: false };
	}
}

/**
 * What an answer of GetLock says. In JSON its numbers are strings, and what is zero is left out.
 * @param {any} told
 * @returns {{holder: {worker: string, token: number}|null, queue: string[], ttlLeftMs: number}}
 */
export function readLock(told) {
	const [holder] = Array.isArray(told?.lock?.holders) ? told.lock.holders : [];
	const queue = Array.isArray(told?.lock?.queue) ? told.lock.queue : [];
	return {
		holder: holder ? { worker: workerOf(holder.label), token: Number(holder.tokenNumber ?? 0) } : null,
		queue: queue.map((/** @type {any} */ waiter) => workerOf(waiter.label)),
		ttlLeftMs: Number(holder?.ttlLeftMs ?? 0),
	};
}

/** Who a session belongs to, by its label. @param {unknown} label @returns {string} */
function workerOf(label) {
	return typeof label === 'string' ? label.replace(/^worker /, '') : '';
}
