// @ts-check
/**
 * A worker: a real process with a job. It shows what the worker itself thinks, so that while it is stopped everything
 * on it stands still, its clock and its view of its lease too.
 */

import { h, Piece, put, say, seconds } from './dom.js';
import { Clock } from './clock.js';
import { LeaseBar, ownView } from './lease.js';
import { litBy } from './selection.js';
import { fly, ticket } from './ticket.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').Worker} Worker */
/** @typedef {import('../types.js').Do} Do */

/** @type {Do[]} */
const buttons = ['acquire', 'write', 'pause', 'wake', 'release', 'kill'];

/** What a worker's state is called. @param {Worker} worker */
export function stateWords(worker) {
	const { status, stopped, token, lostToken } = worker;
	if (status === 'dead') {
		return worker.lostText === 'killed' ? 'killed' : 'its process ended';
	}
	if (stopped) {
		return status === 'holds' ? `stopped: thinks it holds ${token}` : status === 'waiting' ? 'stopped while waiting' : 'stopped';
	}
	switch (status) {
	case 'holds':
		return `holds ${token}`;
	case 'waiting':
		return 'waits for the lock';
	case 'lost':
		return `knows that it lost ${lostToken ?? 'its lease'}`;
	default:
		return 'holds nothing';
	}
}

/** What a worker's own clock shows: a process that stands still or is gone has no later time. @param {State} state @param {Worker} worker @param {number} now */
function ownTime(state, worker, now) {
	if (worker.status === 'dead') {
		const end = state.events.findLast((one) => one.who === worker.name && (one.kind === 'killed' || one.kind === 'ended'));
		return end?.atMs ?? now;
	}
	return worker.stopped ? worker.frozenAt ?? now : now;
}

/** `<hf-worker worker="A">`. */
export class WorkerCard extends Piece {
	#name = /** @type {'A'|'B'} */ ('A');
	/** @type {Map<string, {button:HTMLButtonElement, why:HTMLElement}>} */
	#buttons = new Map();
	#says = h('div', { class: 'worker-says' });
	#pid = h('span', { class: 'note figures' });
	#ticket = ticket(null, 'ticket-held');
	#hand = h('div', { class: 'worker-hand' });
	#viewText = h('span', { class: 'lease-figure figures' });
	#why = h('p', { class: 'worker-why', 'aria-hidden': 'true' });
	#input = h('input', { type: 'text', maxlength: 160, autocomplete: 'off', spellcheck: 'false' });
	/** @type {Clock|undefined} */
	#clock;
	/** @type {LeaseBar|undefined} */
	#bar;

	/** @override */
	build() {
		const name = this.#name = this.getAttribute('worker') === 'B' ? 'B' : 'A';
		this.classList.add('worker');
		this.#clock = new Clock(`${name}'s own clock`);
		this.#bar = new LeaseBar('client', `${name}'s view of its lease`);
		this.#input.id = `value-${name}`;
		this.#input.addEventListener('change', () => this.#changed());
		this.#hand.append(h('div', { class: 'hand-slot' }, this.#ticket), h('span', { class: 'caption' }, 'fencing token'));
		this.append(
			h('header', { class: 'piece-head' }, h('span', { class: 'badge', 'aria-hidden': 'true' }, name),
				h('div', { class: 'worker-who' }, h('h2', {}, `worker ${name}`), this.#pid), this.#clock.el),
			this.#says, this.#hand,
			h('div', { class: 'worker-view' }, this.#bar.el, this.#viewText, h('span', { class: 'caption' }, `lease, as ${name} sees it`)),
			h('div', { class: 'worker-job' }, h('label', { for: `value-${name}` }, 'its job: write'), this.#input),
			h('div', { class: 'worker-buttons', role: 'group', 'aria-label': `what worker ${name} does` },
				...buttons.map((one) => this.#button(one))),
			this.#why);
	}

	/** @param {Do} what */
	#button(what) {
		const why = h('span', { class: 'unseen', id: `why-${what}-${this.#name}` });
		const button = h('button', {
			type: 'button', class: 'key', 'data-do': what, 'data-worker': this.#name, 'aria-describedby': why.id,
		}, what);
		this.#buttons.set(what, { button, why });
		button.addEventListener('click', () => this.#press(button));
		for (const on of ['pointerenter', 'focus']) {
			button.addEventListener(on, () => say(this.#why, this.#reason(button)));
		}
		for (const off of ['pointerleave', 'blur']) {
			button.addEventListener(off, () => say(this.#why, ''));
		}
		return h('span', { class: 'key-place' }, button, why);
	}

	/** @param {HTMLButtonElement} button @returns {string} why it cannot be pressed, or nothing */
	#reason(button) {
		const can = this.state?.workers[this.#name].can[/** @type {Do} */ (button.dataset.do)];
		return can === undefined || can === true ? '' : can;
	}

	/** @param {HTMLButtonElement} button */
	#press(button) {
		const reason = this.#reason(button);
		if (reason) {
			say(this.#why, reason);
			return;
		}
		this.ctx?.act({ do: button.dataset.do ?? '', worker: this.#name });
	}

	#changed() {
		const value = this.#input.value.trim();
		const known = this.state?.workers[this.#name].value ?? '';
		if (value === '') {
			this.#input.value = known;
		} else if (value !== known) {
			this.ctx?.act({ do: 'value', worker: this.#name, value });
		}
	}

	/** @override @param {State} state @param {State|null} before */
	draw(state, before) {
		const worker = state.workers[this.#name];
		const was = before?.workers[this.#name];
		put(this, 'data-status', worker.status);
		put(this, 'data-stopped', worker.stopped);
		put(this, 'data-poised', worker.poised);
		put(this, 'data-token', worker.token ?? '');
		put(this, 'data-overlap', worker.token !== null && state.timeline.overlaps.some((one) => one.to === null));
		say(this.#says, state.round > 0 ? stateWords(worker) : 'not started yet');
		say(this.#pid, !state.signals ? 'imitated' : worker.pid ? `pid ${worker.pid}` : '');
		this.#drawTicket(worker, was);
		if (document.activeElement !== this.#input || !before) {
			if (this.#input.value !== worker.value) {
				this.#input.value = worker.value;
			}
		}
		for (const { button, why } of this.#buttons.values()) {
			this.#drawButton(worker, button, why);
		}
	}

	/** @param {Worker} worker @param {Worker|undefined} was */
	#drawTicket(worker, was) {
		const kept = worker.token ?? (worker.status === 'lost' ? worker.lostToken : null);
		put(this.#ticket, 'data-token', kept ?? '');
		put(this.#hand, 'data-void', worker.status === 'lost');
		if (was && was.token === null && worker.token !== null) {
			this.#ticket.classList.add('ticket-awaited');
			const roll = document.querySelector('.roll-next');
			void fly(worker.token, roll, this.#ticket).then(() => this.#ticket.classList.remove('ticket-awaited'));
		}
	}

	/** @param {Worker} worker @param {HTMLButtonElement} button @param {HTMLElement} why */
	#drawButton(worker, button, why) {
		if (button.dataset.do === 'kill' || button.dataset.do === 'start') {
			const what = worker.status === 'dead' ? 'start' : 'kill';
			put(button, 'data-do', what);
			say(button, what);
		}
		const reason = this.#reason(button);
		put(button, 'aria-disabled', reason ? 'true' : null);
		put(button, 'title', reason || null);
		say(why, reason);
	}

	/** @override @param {number} now */
	tick(now) {
		const { state } = this;
		if (!state) {
			return;
		}
		const worker = state.workers[this.#name];
		const left = ownView(worker, now);
		this.#clock?.show(ownTime(state, worker, now), worker.stopped || worker.status === 'dead');
		const words = worker.token === null ? 'none' : `${seconds(left)} s`;
		this.#bar?.show(left, state.ttlMs, { token: worker.token, label: `${this.#name}'s view of its lease`, words });
		say(this.#viewText, words);
	}

	/** @override @param {number|null} seq */
	light(seq) {
		put(this, 'data-lit', litBy(this.state, seq).includes(this.#name));
	}
}

customElements.define('hf-worker', WorkerCard);
