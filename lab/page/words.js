// @ts-check
/** What an event is called when it is read out: short, and in the words of the page. */

/** @typedef {import('./types.js').LabEvent} LabEvent */

/** What a page says whose workers are no processes of their own. */
export const imitation = 'Here both workers run inside the lab’s own process, so that “pause” and “kill” are imitated. '
	+ 'The lock service, the gate and the ledger are real.';

/** @type {Record<string, (event: LabEvent) => string>} */
const sentences = {
	round: (e) => `A new round: the last ticket is ${e.lastToken}, the gate ${e.compare ? 'compares' : 'does not compare'} tokens.`,
	compare: (e) => `The gate ${e.on ? 'compares tokens now' : 'does not compare tokens any more'}.`,
	queued: (e) => `${e.who} waits for the lock.`,
	acquired: (e) => `${e.who} holds the lock with ticket ${e.token}.`,
	paused: (e) => (e.poised ? `${e.who} is stopped, between its look at its lease and its write.` : `${e.who} is stopped.`),
	woken: (e) => `${e.who} is awake.`,
	wrote: (e) => `${e.who} wrote with ticket ${e.token}: accepted, line ${e.line}.`,
	refused: (e) => `The gate refused ${e.who}’s write: ${e.token} is less than ${e.mark}.`,
	released: (e) => `${e.who} released ${e.token}.`,
	'gave-up': (e) => `${e.who} waits no longer.`,
	lost: (e) => `${e.who} knows now that it lost its lease.`,
	killed: (e) => `${e.who} was killed.`,
	started: (e) => `${e.who} was started.`,
	ended: (e) => `${e.who}’s process ended by itself: ${e.text ?? ''}`,
	error: (e) => `Error: ${e.text ?? ''}`,
	corrupted: () => 'The ledger is corrupted.',
	'svc-freed': (e) => (e.cause === 'expired'
		? `The service heard nothing from ${e.worker} in time: ticket ${e.token}’s lease has run out.` : ''),
};

/** The sentence for an event, or '' for one that is not read out. @param {LabEvent} event @returns {string} */
export function sentence(event) {
	return Object.hasOwn(sentences, event.kind) ? sentences[event.kind](event) : '';
}

/**
 * Reads out, politely: what comes quickly one after another is said together, and never more than the last few things.
 */
export class Crier {
	#say;
	#later;
	/** @type {string[]} */
	#waiting = [];
	#busy = false;

	/**
	 * @param {(text: string) => void} say
	 * @param {(then: () => void, ms: number) => void} [later] setTimeout
	 */
	constructor(say, later = (then, ms) => void setTimeout(then, ms)) {
		this.#say = say;
		this.#later = later;
	}

	/** @param {string} text */
	tell(text) {
		if (text === '') {
			return;
		}
		this.#waiting = [...this.#waiting, text].slice(-4);
		if (!this.#busy) {
			this.#busy = true;
			this.#later(() => this.#next(), 250);
		}
	}

	#next() {
		if (this.#waiting.length === 0) {
			this.#busy = false;
			return;
		}
		const text = this.#waiting.join(' ');
		this.#waiting = [];
		this.#say(text);
		this.#later(() => this.#next(), 1500);
	}
}
