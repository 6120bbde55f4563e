// @ts-check
/**
 * The lease: a bar that drains with real time and snaps back at each renewal. The service's view is the strong one, the
 * holder's own, more cautious one is thin. When it has run out it is simply empty.
 */

import { h, Piece, put, say, seconds, still } from './dom.js';
import { paint } from './ticket.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').Worker} Worker */

/** How long the bar takes to snap back, in milliseconds. */
const snap = 180;

/** One bar: how much is left of a lease in someone's view. */
export class LeaseBar {
	#left = h('span', { class: 'lease-left' });
	#shown = 0;
	#snapFrom = 0;
	#snapAt = -Infinity;

	/** @param {'server'|'client'} view @param {string} label */
	constructor(view, label) {
		this.el = h('div', {
			class: 'lease-bar', role: 'meter', 'data-view': view, 'aria-label': label, 'aria-valuemin': 0,
			'aria-valuemax': 1, 'aria-valuenow': 0, 'data-empty': true,
		}, this.#left);
	}

	/**
	 * @param {number} leftMs @param {number} ttlMs
	 * @param {{token:number|null, label:string, words:string}} what
	 */
	show(leftMs, ttlMs, { token, label, words }) {
		const left = Math.min(1, Math.max(0, leftMs / ttlMs));
		const at = performance.now();
		if (left > this.#shown + 0.04 && this.#snapAt + snap < at) {
			this.#snapFrom = this.#shown;
			this.#snapAt = at;
		}
		const done = still() ? 1 : Math.min(1, (at - this.#snapAt) / snap);
		this.#shown = done < 1 ? this.#snapFrom + (left - this.#snapFrom) * (1 - (1 - done) ** 3) : left;
		this.#left.style.setProperty('--left', this.#shown.toFixed(4));
		paint(this.el, token);
		put(this.el, 'data-empty', left === 0);
		put(this.el, 'aria-label', label);
		put(this.el, 'aria-valuemax', ttlMs / 1000);
		put(this.el, 'aria-valuenow', seconds(Math.min(leftMs, ttlMs)));
		put(this.el, 'aria-valuetext', words);
	}
}

/** How many ms a worker thinks it has left; a stopped one's thoughts stand still. @param {Worker} worker @param {number} now */
export function ownView(worker, now) {
	if (worker.token === null || worker.leftAt === null) {
		return 0;
	}
	return Math.max(0, worker.leftAt - (worker.stopped ? worker.frozenAt ?? now : now));
}

/** The worker whose own view belongs beside the service's: the holder, or who still thinks so. @param {State} state */
function believer(state) {
	const { A, B } = state.workers;
	const holder = state.service.holder?.worker;
	if (holder === 'A' || holder === 'B') {
		return state.workers[holder];
	}
	return [A, B].find((worker) => worker.token !== null) ?? null;
}

/** Whose the second bar is. @param {Worker|null} worker */
function clientName(worker) {
	if (!worker) {
		return 'the holder counts';
	}
	if (worker.status === 'dead') {
		return `${worker.name} is gone`;
	}
	return worker.stopped ? `${worker.name} (stopped) thinks` : `${worker.name} itself counts`;
}

/** `<hf-lease>`: the lock's lease in both views. */
export class Lease extends Piece {
	#server = new LeaseBar('server', "lease in the service's view");
	#client = new LeaseBar('client', "lease in the holder's view");
	#serverText = h('span', { class: 'lease-figure figures' });
	#clientText = h('span', { class: 'lease-figure figures' });
	#clientName = h('span', { class: 'lease-name' });

	/** @override */
	build() {
		this.classList.add('lease');
		this.append(
			h('span', { class: 'lease-name' }, 'the service counts'), this.#server.el, this.#serverText,
			this.#clientName, this.#client.el, this.#clientText,
			h('p', { class: 'caption' }, h('b', {}, 'lease'), ': the promise to give the lock to nobody else until then'));
	}

	/** @override @param {number} now */
	tick(now) {
		const { state } = this;
		if (!state) {
			return;
		}
		const { service, ttlMs } = state;
		const server = service.holder && service.leftAt !== null ? Math.max(0, service.leftAt - now) : 0;
		const worker = believer(state);
		const client = worker ? ownView(worker, now) : 0;
		const serverWords = server > 0 ? `${seconds(server)} s` : service.holder ? '0.0 s' : 'nobody';
		const clientWords = worker && worker.token !== null ? `${seconds(client)} s` : 'nobody';
		this.#server.show(server, ttlMs, {
			token: service.holder?.token ?? null, label: "lease in the service's view", words: serverWords,
		});
		this.#client.show(client, ttlMs, {
			token: worker?.token ?? null, label: "lease in the holder's own view", words: clientWords,
		});
		say(this.#serverText, serverWords);
		say(this.#clientText, clientWords);
		say(this.#clientName, clientName(worker));
		put(this, 'data-left-server', Math.round(server));
		put(this, 'data-left-client', Math.round(client));
		put(this, 'data-empty', server === 0);
	}
}

customElements.define('hf-lease', Lease);
