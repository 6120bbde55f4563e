// @ts-check
/**
 * The page's line to its world: makes the world, or finds the one this tab had before a reload; hears its journal as a
 * stream, or by polling when the lab asks for that (a browser has only six connections to one host, for all tabs
 * together); takes the visitor's actions to it; and keeps trying while the lab is away.
 */

import { keep, recall } from './kept.js';

/** @typedef {import('./types.js').LabEvent} LabEvent */
/** @typedef {'starting'|'live'|'polling'|'lost'|'ended'} Connection */
/** @typedef {{ok:true, seq:number}|{ok:false, text:string, status:number}} Answer status 0: no answer came */
/** @typedef {object} WorldSettings
 * @property {number} [ttlMs]
 * @property {boolean} [compare]
 * @property {{A?:string, B?:string}} [values]
 */
/** @typedef {object} Listener
 * @property {(event: LabEvent) => void} event
 * @property {(atMs: number) => void} clock
 * @property {(how: Connection, text: string) => void} connection
 * @property {(world: string) => void} world this is now the page's world; nothing of another one is true any more
 * @property {() => WorldSettings} settings with which to begin a new one
 */

/** Where the lab's API is. */
export const api = '/lab/v1';

const stored = 'holdfast-lab-world';
const pollMs = 200;
/** A stream says the time every second; a silent one is dead. */
const silentMs = 5000;
const retryMs = { first: 250, most: 2000 };
/** How long an answer may take: to what begins a world or a round, and to a question. */
const answerMs = { POST: 10000, GET: 3000 };

const away = 'The lab does not answer. If its server was stopped, this world’s service and workers died with it. The page keeps looking for it.';

/** One page's line to one world at a time. */
export class Feed {
	#tell;
	#world = '';
	#seq = 0;
	/** Counts up whenever the line is made anew; what belongs to an older count stops by itself. */
	#turn = 0;
	/** @type {EventSource|null} */
	#stream = null;
	#heardAt = 0;
	/** @type {Connection} */
	#how = 'starting';
	/** @type {() => void} */
	#letGoOfLock = () => {};

	/** @param {Listener} listener */
	constructor(listener) {
		this.#tell = listener;
		setInterval(() => this.#watchSilence(), 1000);
	}

	/** The world's id, or ''. @returns {string} */
	get world() {
		return this.#world;
	}

	/** Whether the journal comes as a stream now. @returns {boolean} */
	get streaming() {
		return this.#how === 'live';
	}

	/** Goes on with the world that this tab had before it was reloaded, or begins one. */
	async start() {
		const before = recall(stored);
		if (/^[\w-]{20,64}$/.test(before) && await this.#own(before)) {
			this.#take(before);
			await this.#find(++this.#turn, false);
			return;
		}
		await this.begin();
	}

	/** Begins a new world. */
	async begin() {
		const turn = ++this.#turn;
		this.#close();
		this.#connection('starting', '');
		for (let wait = retryMs.first; turn === this.#turn; wait = Math.min(retryMs.most, wait * 2)) {
			const answer = await send('POST', `${api}/worlds`, this.#tell.settings());
			if (turn !== this.#turn) {
				return;
			}
			if (answer.status === 201 && typeof answer.body.world === 'string') {
				await this.#own(answer.body.world);
				this.#take(answer.body.world);
				this.#open(turn);
				return;
			}
			if (answer.status === 503 || answer.status === 429) {
				this.#connection('ended', `There is no world for this page yet: ${answer.text}`);
				return;
			}
			if (answer.status !== 0 && answer.status < 500) {
				this.#connection('ended', `The lab refuses to begin a world: ${answer.text}`);
				return;
			}
			this.#connection('lost', away);
			await sleep(wait);
		}
	}

	/** Does something in the world. @param {Record<string, unknown>} action @returns {Promise<Answer>} */
	async act(action) {
		const turn = this.#turn;
		const answer = await send('POST', `${api}/worlds/${this.#world}/actions`, action);
		if (answer.status === 200) {
			return { ok: true, seq: Number(answer.body.seq ?? 0) };
		}
		if (turn === this.#turn && (answer.status === 0 || answer.status === 404)) {
			this.#lose();
		}
		return { ok: false, status: answer.status, text: answer.status === 0 ? 'the lab did not answer' : answer.text };
	}

	/** The page was frozen by the browser and is back. */
	wake() {
		if (this.#how === 'live' || this.#how === 'polling') {
			this.#lose();
		}
	}

	/** @param {string} world */
	#take(world) {
		this.#world = world;
		this.#seq = 0;
		keep(stored, world);
		this.#tell.world(world);
	}

	/**
	 * Whether this tab may use the world: a duplicated tab has the same session storage, and finds the lock taken. A tab
	 * that was reloaded may have to wait a moment until its former self has let go.
	 * @param {string} world @returns {Promise<boolean>}
	 */
	async #own(world) {
		this.#letGoOfLock();
		if (!navigator.locks) {
			return true;
		}
		const [entry] = performance.getEntriesByType('navigation');
		const patience = /** @type {PerformanceNavigationTiming|undefined} */ (entry)?.type === 'reload' ? 2000 : 300;
		return new Promise((resolve) => {
			const held = new Promise((letGo) => {
				this.#letGoOfLock = () => letGo(undefined);
			});
			navigator.locks.request(`holdfast-lab ${world}`, { signal: AbortSignal.timeout(patience) }, () => {
				resolve(true);
				return held;
			}).catch(() => resolve(false));
		});
	}

	/** @param {Connection} how @param {string} text */
	#connection(how, text) {
		this.#how = how;
		this.#tell.connection(how, text);
	}

	#close() {
		this.#stream?.close();
		this.#stream = null;
	}

	/** Opens the stream. @param {number} turn */
	#open(turn) {
		this.#close();
		const stream = new EventSource(`${api}/worlds/${this.#world}/events?after=${this.#seq}`);
		this.#stream = stream;
		this.#heardAt = performance.now();
		/** @param {string} name @param {(data: Record<string, any>) => void} take */
		const on = (name, take) => stream.addEventListener(name, (message) => {
			if (turn !== this.#turn || stream !== this.#stream) {
				return;
			}
			this.#heardAt = performance.now();
			if (this.#how !== 'live') {
				this.#connection('live', '');
			}
			take(parsed(/** @type {MessageEvent} */ (message).data));
		});
		on('open', () => {});
		on('message', (data) => this.#event(/** @type {LabEvent} */ (data)));
		on('clock', (data) => this.#tell.clock(Number(data.atMs)));
		on('poll', () => {
			this.#close();
			this.#connection('polling', '');
			void this.#poll(turn);
		});
		on('end', (data) => this.#ended(String(data.reason ?? '')));
		stream.onerror = () => {
			if (turn === this.#turn && stream === this.#stream) {
				this.#lose();
			}
		};
	}

	/** Asks again and again, until the lab lets this world stream. @param {number} turn */
	async #poll(turn) {
		let may = 0;
		while (turn === this.#turn) {
			const answer = await this.#ask();
			if (turn !== this.#turn) {
				return;
			}
			if (answer.status !== 200) {
				this.#lose();
				return;
			}
			may = answer.body.streams === true ? may + 1 : 0;
			// Two pages that were both told "yes" must not push each other out for ever: only a lasting yes counts.
			if (may >= 5 && !document.hidden) {
				this.#open(turn);
				return;
			}
			await sleep(pollMs);
		}
	}

	async #ask() {
		const answer = await send('GET', `${api}/worlds/${this.#world}/events?after=${this.#seq}`);
		if (answer.status === 200) {
			for (const event of Array.isArray(answer.body.events) ? answer.body.events : []) {
				this.#event(event);
			}
			this.#tell.clock(Number(answer.body.nowMs));
		}
		return answer;
	}

	/** @param {LabEvent} event */
	#event(event) {
		if (typeof event?.kind === 'string' && typeof event.seq === 'number' && event.seq > this.#seq) {
			this.#seq = event.seq;
			this.#tell.event(event);
		}
	}

	/** @param {string} reason */
	#ended(reason) {
		this.#turn++;
		this.#close();
		keep(stored, '');
		this.#connection('ended', `This world has ended${reason ? `: ${reason}` : ''}. Its service and its workers are gone.`);
	}

	#lose() {
		void this.#find(++this.#turn, true);
	}

	/**
	 * Looks for the world until the lab answers. If it does not know it any more, it was started anew meanwhile, or ended
	 * the world while nobody listened.
	 * @param {number} turn @param {boolean} tell whether the visitor saw the world before
	 */
	async #find(turn, tell) {
		this.#close();
		for (let wait = retryMs.first; turn === this.#turn; wait = Math.min(retryMs.most, wait * 1.6)) {
			const answer = await this.#ask();
			if (turn !== this.#turn) {
				return;
			}
			if (answer.status === 200) {
				this.#open(turn);
				return;
			}
			if (answer.status === 404 && /has ended: /.test(answer.text) && tell) {
				this.#ended(answer.text.replace(/^.*?has ended: /, '').replace(/; reload.*$/, ''));
				return;
			}
			if (answer.status === 404) {
				await this.begin();
				return;
			}
			this.#connection('lost', away);
			await sleep(wait);
		}
	}

	#watchSilence() {
		if (this.#how === 'live' && performance.now() - this.#heardAt > silentMs) {
			this.#connection('lost', away);
			this.#lose();
		}
	}
}

/**
 * One call of the lab's API.
 * @param {'GET'|'POST'} method @param {string} url @param {unknown} [body]
 * @returns {Promise<{status: number, text: string, body: Record<string, any>}>} status 0: no answer
 */
async function send(method, url, body) {
	try {
		const answer = await fetch(url, {
			method,
			headers: { Accept: 'application/json', ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
			body: body === undefined ? null : JSON.stringify(body),
			cache: 'no-store',
			signal: AbortSignal.timeout(answerMs[method]),
		});
		const told = parsed(await answer.text());
		return { status: answer.status, body: told, text: typeof told.error === 'string' ? told.error : `status ${answer.status}` };
	} catch {
		return { status: 0, body: {}, text: 'no answer' };
	}
}

/** @param {unknown} text @returns {Record<string, any>} what is not a JSON object is an empty one */
function parsed(text) {
	try {
		const value = JSON.parse(String(text));
		return value !== null && typeof value === 'object' ? value : {};
	} catch {
		return {};
	}
}

/** @param {number} ms @returns {Promise<void>} */
function sleep(ms) {
	return new Promise((resolve) => setTimeout(resolve, ms));
}
