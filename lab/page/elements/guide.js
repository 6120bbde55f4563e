// @ts-check
/**
 * The guide: what to do now, what to look at meanwhile, and what it proved. It points at the button to press and plays
 * for the visitor, and never takes the focus away. Its markup is in index.html.
 */

import { h, put, say } from './dom.js';
import { show } from './view.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../scenes/index.js').Target} Target */
/** @typedef {import('../tour.js').Tour} Tour */
/** @typedef {object} GuideContext
 * @property {Tour} tour
 * @property {(action: {do: string}) => unknown} act
 * @property {(seq: number|null) => void} select
 * @property {(text: string) => void} notice tells the visitor why something does nothing
 */

/** The button on the page that a target stands for. @param {Target|'next'} target @returns {HTMLElement|null} */
export function buttonOf(target) {
	return document.querySelector(typeof target === 'string'
		? `#${target}` : `button[data-do="${target.do}"][data-worker="${target.worker}"]`);
}

/** `<hf-guide>`. */
export class Guide extends HTMLElement {
	/** @type {GuideContext|null} */
	#ctx = null;
	/** @type {State|null} */
	#state = null;
	/** @type {HTMLElement|null} */
	#cued = null;
	#steps = '';
	#listed = '';
	/** The place in the story at which something was brought into view last. @type {string|null} */
	#sighted = null;
	#closed = false;

	/** @param {GuideContext} ctx */
	set ctx(ctx) {
		const first = this.#ctx === null;
		this.#ctx = ctx;
		if (first) {
			this.#listen();
			new ResizeObserver(() => document.documentElement.style.setProperty('--sheet', `${this.offsetHeight}px`)).observe(this);
		}
	}

	/** @param {number} _now */
	frame(_now) {}

	/** @param {State} state */
	render(state) {
		this.#state = state;
		const tour = this.#ctx?.tour;
		if (!tour) {
			return;
		}
		const { progress, player } = tour;
		put(this, 'data-step', progress.step);
		put(this, 'data-done', progress.done);
		put(this, 'data-finished', progress.finished);
		put(this, 'data-playing', player.playing);
		this.#showStep(tour);
		this.#showActions(tour, state);
		this.#showSteps(tour);
		this.#showPlayer(tour);
		this.#showClosing(tour, state);
		this.#showFree(tour);
		this.#point(tour);
		this.#bringIntoView(tour, state);
	}

	/** @param {string} id @returns {HTMLElement} */
	#part(id) {
		const found = this.querySelector(`#${id}`);
		if (!(found instanceof HTMLElement)) {
			throw new Error(`the guide has no #${id}`);
		}
		return found;
	}

	/** @param {Tour} tour */
	#showStep(tour) {
		const { progress, scene, player } = tour;
		const { step, action, off } = tour.place();
		const last = progress.step === scene.steps.length;
		say(this.#part('guide-count'), `Step ${progress.step} of ${scene.steps.length}`);
		say(this.#part('guide-title'), step.title);
		const shown = action ?? step.actions[step.actions.length - 1];
		const text = player.arranging ? `Setting the stage for step ${progress.step} …` : !progress.finished ? shown.text
			: last ? 'That was the last step. Play on as you like, or go to any step again.' : 'Done. Read what it proved, then go on.';
		say(this.#part('guide-do'), text);
		say(this.#part('guide-watch'), shown.watch);
		put(this.#part('guide-now'), 'data-waiting', action !== null && !action.target);
		put(this.#part('guide-off'), 'hidden', off === '' || player.arranging);
		say(this.#part('guide-off-text'), off);
		say(this.#part('guide-back'), `Go to the start of step ${progress.step}`);
		put(this.#part('guide-result'), 'hidden', !progress.finished);
		say(this.#part('guide-proved'), progress.proved);
		const next = this.#part('next');
		put(next, 'aria-disabled', !progress.finished || last ? 'true' : null);
		put(next, 'title', last ? 'This is the last step' : progress.finished ? null : 'First finish this step, or let it be played');
		const open = this.#part('guide-fold').getAttribute('aria-expanded') === 'true';
		say(this.#part('guide-fold-text'), open ? `Step ${progress.step} of ${scene.steps.length}` : `${progress.step}. ${text}`);
	}

	/** The step's actions as a list of ticks. @param {Tour} tour @param {State} state */
	#showActions(tour, state) {
		const { step, action } = tour.place();
		const list = this.#part('guide-actions');
		if (this.#listed !== step.id) {
			this.#listed = step.id;
			this.scrollTop = this.#part('guide-body').scrollTop = 0;
			list.replaceChildren(...step.actions.map((one) => h('li', {}, h('span', { class: 'tick', 'aria-hidden': 'true' }),
				one.label, h('span', { class: 'unseen' }))));
		}
		// Of a step that begins with a reset nothing is done before it, whatever the round before has in it.
		const old = step.fresh && !step.actions[0].done(state);
		step.actions.forEach((one, i) => {
			const item = list.children[i];
			const done = tour.progress.finished || (!old && one.done(state));
			put(item, 'data-done', done);
			put(item, 'aria-current', one === action ? 'step' : null);
			say(/** @type {Element} */ (item.lastElementChild), done ? ', done' : '');
		});
	}

	/** All steps, as buttons that lead there. @param {Tour} tour */
	#showSteps(tour) {
		const { scene, progress } = tour;
		const list = this.#part('guide-steps');
		if (this.#steps !== scene.name) {
			this.#steps = scene.name;
			list.replaceChildren(...scene.steps.map((step, i) => {
				const button = h('button', { type: 'button', 'data-goto': i + 1 }, h('span', { class: 'unseen' }, `Go to step ${i + 1}: `),
					h('span', { class: 'step-number', 'aria-hidden': 'true' }, String(i + 1)), step.title, h('span', { class: 'unseen' }));
				button.addEventListener('click', () => void tour.goto(i + 1));
				return h('li', {}, button);
			}));
		}
		[...list.children].forEach((item, i) => {
			const done = i < progress.done;
			put(item, 'data-done', done);
			const button = /** @type {Element} */ (item.firstElementChild);
			put(button, 'aria-current', i + 1 === progress.step ? 'step' : null);
			say(/** @type {Element} */ (button.lastElementChild), done ? ', done' : '');
		});
	}

	/** @param {Tour} tour */
	#showPlayer({ player, progress, scene }) {
		const last = progress.finished && progress.step === scene.steps.length;
		const play = this.#part('play');
		say(play, progress.finished && !last ? 'Play the next step' : 'Play it for me');
		put(play, 'aria-disabled', player.playing || last ? 'true' : null);
		const pause = this.#part('play-pause');
		say(pause, player.paused ? 'Go on' : 'Pause');
		put(pause, 'aria-disabled', player.playing && !player.arranging ? null : 'true');
		put(this.#part('play-step'), 'aria-disabled', player.arranging || last ? 'true' : null);
		const speed = /** @type {HTMLSelectElement} */ (this.#part('speed'));
		if (document.activeElement !== speed) {
			speed.value = String(player.speed);
		}
		say(this.#part('play-state'), player.arranging ? 'Setting the stage …' : player.paused ? 'Paused. What runs goes on running.'
			: player.playing ? 'Playing. Press any button on the stage to take over.' : player.text);
	}

	/** @param {Tour} tour @param {State} state */
	#showClosing({ scene, progress }, state) {
		const closing = this.#part('closing');
		const open = progress.finished && progress.step === scene.steps.length;
		put(closing, 'hidden', !open);
		if (open && !this.#closed) {
			const moment = scene.closing.moment(state);
			say(this.#part('closing-title'), scene.closing.title);
			this.#part('closing-text').replaceChildren(...scene.closing.text(state).map((text) => h('p', {}, text)));
			put(this.#part('closing-moment'), 'hidden', moment === null);
			this.#ctx?.select(moment);
		}
		this.#closed = open;
	}

	/** @param {Tour} tour */
	#showFree({ progress, scene }) {
		put(document.body, 'data-free', progress.free);
		const free = this.#part('free');
		put(free, 'aria-pressed', String(progress.free));
		put(this.#part('guide-body'), 'hidden', progress.free);
		put(this.#part('guide-fold'), 'hidden', progress.free);
		say(free, progress.free ? `Back to the guide, step ${progress.step} of ${scene.steps.length}` : 'Free play');
	}

	/** Marks the button to press, and sees to it that it is in view. @param {Tour} tour */
	#point(tour) {
		const cue = tour.cue();
		const button = cue === null ? null : buttonOf(cue);
		if (button !== this.#cued) {
			this.#cued?.removeAttribute('data-cue');
			this.#cued = button;
			if (button && !this.contains(button)) {
				const begun = tour.progress.done + tour.progress.step > 1;
				show([button, (begun && button.closest('[data-hf]')) || button]);
			}
		}
		if (button) {
			put(button, 'data-cue', true);
			put(button, 'data-cue-playing', tour.player.playing && !tour.player.paused);
		}
	}

	/**
	 * Brings into view what there is to see, when no button of the stage is to be pressed there. What a page shows when it
	 * comes, and what is done in free play, stays where it is.
	 * @param {Tour} tour @param {State} state
	 */
	#bringIntoView(tour, state) {
		const { progress, player } = tour;
		const { step, action, off } = tour.place();
		const place = `${step.id} ${progress.finished ? 'done' : action?.label ?? 'all'}`;
		if (place === this.#sighted || state.round === 0 || player.arranging) {
			return;
		}
		const first = this.#sighted === null;
		this.#sighted = place;
		const last = progress.finished ? step.actions[step.actions.length - 1] : action;
		if (first || off !== '' || progress.free || !last || (!progress.finished && last.target)) {
			return;
		}
		const pieces = last.sights.flatMap((sight) => document.querySelector(`hf-${sight}`) ?? []);
		// The guide itself may have grown just now: it is measured before the next frame.
		requestAnimationFrame(() => show(pieces, true));
	}

	#listen() {
		/** @param {string} id @param {(ctx: GuideContext) => void} press */
		const on = (id, press) => {
			const button = this.#part(id);
			button.addEventListener('click', () => {
				if (this.#ctx === null) {
					return;
				}
				if (button.getAttribute('aria-disabled') === 'true') {
					this.#ctx.notice(button.title || 'Not now.');
					return;
				}
				press(this.#ctx);
			});
		};
		on('next', ({ tour }) => tour.next());
		on('play', ({ tour }) => void tour.play(false));
		on('play-pause', ({ tour: { player } }) => (player.paused ? player.resume() : player.pause()));
		on('play-step', ({ tour }) => (tour.player.playing ? tour.player.step() : void tour.play(true)));
		on('reset', ({ act }) => void act({ do: 'reset' }));
		on('free', ({ tour }) => tour.setFree(!tour.progress.free));
		on('guide-back', ({ tour }) => void tour.goto(tour.progress.step));
		on('closing-moment', ({ tour, select }) => {
			select(null);
			select(this.#state ? tour.scene.closing.moment(this.#state) : null);
			document.querySelector('hf-timeline')?.scrollIntoView({ block: 'nearest' });
		});
		on('guide-fold', () => this.#fold());
		const speed = /** @type {HTMLSelectElement} */ (this.#part('speed'));
		speed.addEventListener('change', () => {
			if (this.#ctx) {
				this.#ctx.tour.player.speed = Number(speed.value);
				this.dispatchEvent(new Event('speed'));
			}
		});
	}

	/** The sheet of narrow screens opens or closes. */
	#fold() {
		const fold = this.#part('guide-fold');
		const open = fold.getAttribute('aria-expanded') !== 'true';
		put(fold, 'aria-expanded', String(open));
		put(document.body, 'data-folded', !open);
		if (this.#state) {
			this.render(this.#state);
		}
	}
}

customElements.define('hf-guide', Guide);
