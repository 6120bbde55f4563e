// @ts-check
/**
 * The gate before the ledger: a slot for tickets, the highest number it has seen, and an arm. The switch on it decides
 * whether it compares; nothing else on the page does.
 */

import { h, Piece, put, s, say, still } from './dom.js';
import { litBy } from './selection.js';
import { fly } from './ticket.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').Gate} GateState */

const raised = -34;

/** What the gate does with tickets, or did with the last one. @param {GateState} gate */
function gateWords({ compare, mark, last }) {
	if (!compare) {
		return last && last.verdict === 'accepted' && last.token < last.mark
			? `let ${last.token} through without a look at its number` : 'lets every ticket through';
	}
	if (last?.verdict === 'refused') {
		return `refused: ${last.token} < ${last.mark}, so the arm stays down`;
	}
	return `lets ${mark} and higher through`;
}

/** `<hf-gate>`. */
export class Gate extends Piece {
	#mark = h('span', { class: 'gate-mark figures' }, '–');
	#slot = h('span', { class: 'gate-slot', 'aria-hidden': 'true' });
	#words = h('p', { class: 'gate-words' });
	#switch = h('button', { type: 'button', role: 'switch', id: 'compare', 'aria-checked': 'false' });
	#switchState = h('span', { class: 'switch-state', 'aria-hidden': 'true' }, 'off');
	#sign = s('text', { x: 122, y: 99.5, 'text-anchor': 'middle', class: 'arm-sign-text' });
	#plate = s('g', { class: 'arm-sign' }, s('rect', { x: 70, y: 73, width: 104, height: 37, rx: 2 }), this.#sign);
	#arm = s('g', { class: 'arm' });

	/** @override */
	build() {
		this.classList.add('gate');
		this.#arm.append(
			s('rect', { x: 14, y: 84, width: 22, height: 15, rx: 2, class: 'arm-weight' }),
			s('rect', { x: 34, y: 86.5, width: 158, height: 10, rx: 2, class: 'arm-beam' }),
			...[62, 94, 126, 158].map((x) => s('path', { d: `M${x} 96.5l6 -10h12l-6 10z`, class: 'arm-stripe' })),
			this.#plate);
		this.#switch.append(h('span', { class: 'switch-words' }, 'compare tokens'),
			h('span', { class: 'switch-track', 'aria-hidden': 'true' }, h('span', { class: 'switch-knob' })), this.#switchState);
		this.#switch.addEventListener('click', () => this.ctx?.act({ do: 'compare', on: !this.state?.gate.compare }));
		this.append(
			h('header', { class: 'piece-head' }, h('h2', {}, 'gate'), this.#words),
			h('div', { class: 'gate-window' }, this.#slot, this.#mark, h('span', { class: 'caption' }, 'mark: highest seen')),
			s('svg', { class: 'gate-arm', viewBox: '0 0 216 128', 'aria-hidden': 'true', focusable: 'false' },
				s('path', { d: 'M2 125H214', class: 'arm-ground' }),
				s('path', { d: 'M198 125V100M191 100h14', class: 'arm-catch' }),
				s('rect', { x: 34, y: 86, width: 20, height: 39, rx: 2, class: 'arm-post' }),
				this.#arm, s('circle', { cx: 44, cy: 91.5, r: 4.5, class: 'arm-pivot' })),
			this.#switch);
	}

	/** @override @param {State} state @param {State|null} before */
	draw(state, before) {
		const { gate } = state;
		const refused = gate.compare && gate.last?.verdict === 'refused';
		const arm = !gate.compare ? 'open' : refused ? 'down' : 'resting';
		put(this, 'data-compare', gate.compare ? 'on' : 'off');
		put(this, 'data-mark', state.round > 0 ? gate.mark : '');
		put(this, 'data-arm', arm);
		put(this.#switch, 'aria-checked', String(gate.compare));
		say(this.#switchState, gate.compare ? 'on' : 'off');
		say(this.#mark, state.round > 0 ? String(gate.mark) : '–');
		say(this.#words, state.round > 0 ? gateWords(gate) : 'not started yet');
		if (refused && gate.last) {
			say(this.#sign, `${gate.last.token} < ${gate.last.mark}`);
		}
		if (before && gate.last && before.gate.last?.seq !== gate.last.seq) {
			this.#passed(gate.last);
		}
	}

	/** A write came: its ticket travels from the hand to the slot, and comes back if the arm stays down. @param {NonNullable<GateState['last']>} last */
	#passed({ who, token, verdict }) {
		const hand = document.querySelector(`hf-worker[worker="${who === 'B' ? 'B' : 'A'}"] .ticket-held`);
		void fly(token, hand, this.#slot, { bounce: verdict === 'refused' });
		if (still()) {
			return;
		}
		const down = { transform: 'none' };
		if (verdict === 'refused') {
			this.#arm.animate([down, { transform: 'rotate(1.6deg)' }, { transform: 'rotate(-1.2deg)' }, down],
				{ duration: 220, delay: 160, easing: 'ease-out' });
		} else if (this.dataset.arm !== 'open') {
			this.#arm.animate([down, { transform: `rotate(${raised}deg)`, offset: 0.4 }, { transform: `rotate(${raised}deg)`, offset: 0.6 }, down],
				{ duration: 560, delay: 120, easing: 'ease-in-out' });
		}
	}

	/** @override @param {number|null} seq */
	light(seq) {
		put(this, 'data-lit', litBy(this.state, seq).includes('gate'));
	}
}

customElements.define('hf-gate', Gate);
