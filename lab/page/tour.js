// @ts-check
/** The guide's mind: which scene, how far the visitor is, and the player. elements/guide.js shows it. */

import { keep, recall } from './kept.js';
import { Player } from './player.js';
import { atStep, before, beginning, follow, placeOf, restored } from './progress.js';

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./progress.js').Progress} Progress */
/** @typedef {import('./scenes/index.js').Scene} Scene */
/** @typedef {import('./scenes/index.js').Target} Target */
/** @typedef {import('./player.js').Hands} Hands */

const stored = 'holdfast-lab-progress';

/** One visitor's way through a scene. */
export class Tour {
	/** @type {Progress} */
	progress = beginning();
	#world = '';
	#hands;

	/**
	 * @param {Scene} scene
	 * @param {Hands & {reset: (settings: {ttlMs?: number, compare?: boolean}) => Promise<string>}} hands
	 */
	constructor(scene, hands) {
		this.scene = scene;
		this.#hands = hands;
		this.player = new Player(hands);
	}

	/** The page has this world now. @param {string} world */
	enter(world) {
		this.#world = world;
		this.player.stop('');
		const { done, free } = this.progress;
		const kept = restored(recall(stored), this.scene, world);
		this.progress = kept.done > 0 || kept.step > 1 || kept.free ? kept : { ...beginning(), done, free };
		this.#keep();
	}

	/** @param {State} earlier @param {State} state */
	follow(earlier, state) {
		if (this.player.arranging) {
			return;
		}
		const now = follow(this.scene, this.progress, earlier, state);
		if (now !== this.progress) {
			this.progress = now;
			this.#keep();
		}
	}

	/** Where in its step the visitor is. */
	place() {
		return placeOf(this.scene, this.progress, this.#hands.state());
	}

	/** The button to press now, for the guide to point at. @returns {Target|'next'|null} */
	cue() {
		if (this.progress.free || this.player.arranging || !this.#hands.state().live) {
			return null;
		}
		const { action, off } = this.place();
		if (off) {
			return null;
		}
		return action?.target ?? (this.progress.finished && this.progress.step < this.scene.steps.length ? 'next' : null);
	}

	/** To the next step, if this one is done. @returns {boolean} */
	next() {
		if (!this.progress.finished || this.progress.step >= this.scene.steps.length) {
			return false;
		}
		this.player.stop('');
		this.#set(atStep(this.progress, this.progress.step + 1));
		return true;
	}

	/** To the beginning of a step: a new round, and all that it needs is done for the visitor. @param {number} step */
	async goto(step) {
		this.#set({ ...atStep(this.progress, step), free: false });
		const { compare } = this.scene.settings;
		const there = await this.player.arrange(before(this.scene, step), () => this.#hands.reset({ compare }));
		if (there) {
			const now = follow(this.scene, this.progress, this.#hands.state(), this.#hands.state());
			this.#set(now.step === step ? now : this.progress);
		}
	}

	/** Plays the present step, or, if it is done, the next one. @param {boolean} oneClick */
	async play(oneClick) {
		if (this.progress.finished) {
			this.next();
		}
		if (this.place().off) {
			await this.goto(this.progress.step);
		}
		await this.player.play(this.scene.steps[this.progress.step - 1].actions, oneClick);
	}

	/** @param {boolean} free */
	setFree(free) {
		this.player.stop('');
		this.#set({ ...this.progress, free });
	}

	/** @param {Progress} progress */
	#set(progress) {
		this.progress = progress;
		this.#keep();
		this.#hands.changed();
	}

	#keep() {
		keep(stored, JSON.stringify({ ...this.progress, scene: this.scene.name, world: this.#world }));
	}
}
