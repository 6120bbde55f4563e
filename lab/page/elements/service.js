// @ts-check
/** The lock service: a roll of numbered tickets, who holds the lock by its books, and who waits. */

import { h, Piece, put, s, say, still } from './dom.js';
import { Clock } from './clock.js';
import { litBy } from './selection.js';
import { ticket } from './ticket.js';

/** @typedef {import('../types.js').State} State */

/** The roll on its spindle, seen from the front. */
function drawRoll() {
	const turns = [7, 12, 30, 36].map((y) => s('path', { d: `M20 ${y}H132`, class: 'roll-turn' }));
	return s('svg', { class: 'roll-drum', viewBox: '0 0 152 44', 'aria-hidden': 'true', focusable: 'false' },
		s('path', { d: 'M1 21H151', class: 'roll-spindle' }),
		s('rect', { x: 10, y: 7, width: 10, height: 29, rx: 2, class: 'roll-cap' }),
		s('rect', { x: 132, y: 7, width: 10, height: 29, rx: 2, class: 'roll-cap' }),
		s('rect', { x: 18.5, y: 1, width: 115, height: 41, rx: 4, class: 'roll-paper' }), ...turns);
}

/** `<hf-service>`. */
export class Service extends Piece {
	#clock = new Clock("the service's clock");
	#next = ticket(null, 'roll-next');
	#holder = h('p', { class: 'service-holder' });
	#queue = h('p', { class: 'service-queue' });
	#where = h('span', { class: 'note figures' });

	/** @override */
	build() {
		this.classList.add('service');
		this.append(
			h('div', { class: 'roll' }, drawRoll(), h('div', { class: 'roll-mouth' }, this.#next)),
			h('header', { class: 'piece-head' }, h('h2', {}, 'lock service'), this.#where, this.#clock.el),
			h('div', { class: 'service-books' }, this.#holder, this.#queue,
				h('p', { class: 'caption' }, 'each grant tears off the next number')));
	}

	/** @override @param {State} state @param {State|null} before */
	draw(state, before) {
		const { service } = state;
		const started = state.round > 0;
		const next = started ? service.lastToken + 1 : null;
		put(this.#next, 'data-token', next ?? '');
		put(this.#next, 'aria-label', next === null ? null : `next ticket ${next}`);
		if (before && before.round > 0 && before.service.lastToken < service.lastToken && !still()) {
			this.#next.animate([{ transform: 'translateY(-100%)' }, { transform: 'none' }],
				{ duration: 240, easing: 'cubic-bezier(.3,.7,.2,1)', delay: 60, fill: 'backwards' });
		}
		if (before?.service.holder !== service.holder || before?.round !== state.round) {
			this.#holder.replaceChildren(...(service.holder
				? [`gave it to ${service.holder.worker}: `, ticket(service.holder.token, 'ticket-small')]
				: [started ? `“${state.lock}” is free` : 'not started yet']));
		}
		say(this.#queue, service.queue.length ? `waiting: ${service.queue.join(', ')}` : started ? 'nobody waits' : '');
		say(this.#where, service.fresh ? state.serviceAddress : started ? 'no answer from the service' : '');
		put(this, 'data-holder', service.holder?.token ?? '');
		put(this, 'data-queue', service.queue.length);
		put(this, 'data-fresh', service.fresh);
	}

	/** @override @param {number} now */
	tick(now) {
		this.#clock.show(now);
	}

	/** @override @param {number|null} seq */
	light(seq) {
		put(this, 'data-lit', litBy(this.state, seq).includes('service'));
	}
}

customElements.define('hf-service', Service);
