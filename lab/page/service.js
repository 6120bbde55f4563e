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
 * What the service knows of a lock. A lock that nobody holds or waits for does not exist for it, and GetLock would answer
 * with an error, which browsers write to the console; so the list of locks is asked, which is then just empty. Only
 * GetLock names those who wait.
 * @param {string} base @param {string} lock
 * @returns {Promise<{ok: boolean, holder?: {worker: string, token: number}|null, queue?: string[], ttlLeftMs?: number}>}
 */
async function getLock(base, lock) {
	try {
		const list = await call(base, 'ListLocks', { prefix: lock });
		const listed = (Array.isArray(list?.locks) ? list.locks : []).find((/** @type {any} */ one) => one?.name === lock);
		if (!list || !listed) {
			return list ? { ok: true, holder: null, queue: [] } : { ok: false };
		}
		if (!listed.waiters) {
			return { ok: true, ...readLock({ lock: listed }) };
		}
		const told = await call(base, 'GetLock', { lock });
		return told ? { ok: true, ...readLock(told) } : { ok: false };
	} catch {
		return { ok: false };
	}
}

/**
 * One call of the service's API.
 * @param {string} base @param {string} method @param {Record<string, unknown>} body
 * @returns {Promise<any>} the answer, or null if it is an error
 */
async function call(base, method, body) {
	const answer = await fetch(`${base}/holdfast.v1.LockService/${method}`, {
		method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body),
		cache: 'no-store', signal: AbortSignal.timeout(waitMs),
	});
	const told = await answer.json();
	return answer.ok ? told : null;
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
