// @ts-check
/**
 * "Play it for me": does what is left of a step, one click after another on the real buttons. Before a click it points at
 * the button for a while; after it, it waits for what the click brings about. Its speed is how long it points: what the
 * workers and the service do takes its real time.
 */

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./scenes/index.js').Action} Action */
/** @typedef {import('./scenes/index.js').Target} Target */

/** @typedef {object} Hands what the player can do
 * @property {() => State} state
 * @property {(target: Target) => string} press '' or why the button cannot be pressed
 * @property {(target: Target) => Promise<string>} act does the same without a button; '' or why not
 * @property {(ms: number) => Promise<void>} sleep
 * @property {() => void} changed the player's own state changed
 */

const dwellMs = 1600;
const tickMs = 50;
const longestMs = { click: 10000, wait: 30000 };

/** Ends the play where it is; its message is for the visitor. */
class Stopped extends Error {}

/** Plays actions. */
export class Player {
	#hands;
	/** Counts up with each play; an older one stops by itself. */
	turn = 0;
	#steps = 0;
	/** How fast it goes: 1 is normal. */
	speed = 1;
	/** Whether it plays, also while it is paused. */
	playing = false;
	paused = false;
	/** It sets the stage for a step, without pointing. */
	arranging = false;
	/** Why it stopped, for the visitor; '' when it came to the end. */
	text = '';
	/** The action that it points at or waits for. @type {Action|null} */
	at = null;

	/** @param {Hands} hands */
	constructor(hands) {
		this.#hands = hands;
	}

	/**
	 * Plays what is not done of these actions.
	 * @param {Action[]} actions @param {boolean} [oneClick] stands still again after one click
	 * @returns {Promise<boolean>} whether it came to the end
	 */
	play(actions, oneClick = false) {
		this.#steps = oneClick ? 1 : 0;
		return this.#run(false, oneClick, async (turn) => {
			for (const action of actions) {
				await this.#perform(action, turn);
			}
		});
	}

	/**
	 * Sets the stage: a new round, and these actions one after another without delay.
	 * @param {Action[]} actions @param {() => Promise<string>} reset @returns {Promise<boolean>}
	 */
	arrange(actions, reset) {
		return this.#run(true, false, async (turn) => {
			const { round } = this.#hands.state();
			this.#must(await reset(), turn);
			await this.#until(() => this.#hands.state().round !== round, longestMs.click, turn);
			for (const action of actions) {
				if (action.target && !action.done(this.#hands.state())) {
					this.#must(await this.#hands.act(action.target), turn);
				}
				await this.#until(action.done, longestMs.wait, turn);
			}
		});
	}

	/** Clicks nothing until it is resumed. */
	pause() {
		if (this.playing && !this.paused) {
			this.paused = true;
			this.#hands.changed();
		}
	}

	/** Goes on. */
	resume() {
		if (this.playing && this.paused) {
			this.paused = false;
			this.#hands.changed();
		}
	}

	/** Does the next click at once, and then stands still. */
	step() {
		if (this.playing) {
			this.#steps = 1;
			this.pause();
		}
	}

	/** Ends the play. @param {string} text why, for the visitor */
	stop(text) {
		if (this.playing) {
			this.turn++;
			this.#end(text);
		}
	}

	/** @param {string} text */
	#end(text) {
		Object.assign(this, { playing: false, paused: false, arranging: false, at: null, text });
		this.#hands.changed();
	}

	/** @param {boolean} arranging @param {boolean} paused @param {(turn: number) => Promise<void>} work */
	async #run(arranging, paused, work) {
		const turn = ++this.turn;
		Object.assign(this, { playing: true, paused, arranging, text: '', at: null });
		this.#hands.changed();
		try {
			await work(turn);
		} catch (err) {
			if (turn === this.turn) {
				this.#end(err instanceof Stopped ? err.message : String(err));
			}
			return false;
		}
		this.#end('');
		return true;
	}

	/** @param {Action} action @param {number} turn */
	async #perform(action, turn) {
		if (action.done(this.#hands.state())) {
			return;
		}
		this.at = action;
		this.#hands.changed();
		if (!action.target) {
			await this.#until(action.done, longestMs.wait, turn);
			return;
		}
		await this.#point(turn);
		if (!action.done(this.#hands.state())) {
			this.#must(this.#hands.press(action.target), turn);
			await this.#until(action.done, longestMs.click, turn);
		}
	}

	/** Points at the button for its time, longer while paused. @param {number} turn */
	async #point(turn) {
		for (let left = dwellMs; left > 0 || this.paused; left -= this.paused ? 0 : tickMs * this.speed) {
			if (this.#steps > 0) {
				this.#steps--;
				return;
			}
			await this.#tick(turn);
		}
	}

	/** @param {(state: State) => boolean} holds @param {number} longest @param {number} turn */
	async #until(holds, longest, turn) {
		for (let waited = 0; !holds(this.#hands.state()); waited += tickMs) {
			if (!this.#hands.state().live) {
				throw new Stopped('It stopped playing: the lab is away.');
			}
			if (waited >= longest) {
				throw new Stopped('It stopped playing: what it waited for did not come.');
			}
			await this.#tick(turn);
		}
	}

	/** @param {number} turn */
	async #tick(turn) {
		await this.#hands.sleep(tickMs);
		if (turn !== this.turn) {
			throw new Stopped('');
		}
	}

	/** @param {string} why @param {number} turn */
	#must(why, turn) {
		if (turn !== this.turn) {
			throw new Stopped('');
		}
		if (why !== '') {
			throw new Stopped(`It stopped playing: ${why}.`);
		}
	}
}
