// @ts-check
/**
 * The ledger: ruled paper, one row for each write that came to the gate. The edge of a row has its run's colour and
 * pattern, so that interleaved runs are broken colour before any word says so.
 */

import { h, instant, Piece, put, say, still } from './dom.js';
import { paint, ticket } from './ticket.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').Row} Row */
/** @typedef {import('../types.js').EarlierLine} EarlierLine */

/** @param {Row} row what became of the write */
function verdictWords(row) {
	if (row.verdict === 'refused') {
		return `refused: ${row.token} < ${row.mark}, not written`;
	}
	return row.bad ? 'accepted, out of order' : `accepted: line ${row.line ?? ''}`;
}

/** @param {Row} row the whole row as a sentence */
function rowWords(row) {
	return `${instant(row.atMs)} s, ${row.worker}, ticket ${row.token}, “${row.value}”, ${verdictWords(row)}`;
}

/** `<hf-ledger>`. */
export class Ledger extends Piece {
	/** @type {Map<number, HTMLTableRowElement>} */
	#rows = new Map();
	#body = h('tbody', { role: 'rowgroup' });
	#earlier = h('tbody', { class: 'ledger-earlier', role: 'rowgroup' });
	#scroller = h('div', { class: 'ledger-paper' });
	#verdict = h('p', { id: 'ledger-verdict', class: 'ledger-verdict' });
	#findings = h('p', { class: 'ledger-findings' });
	/** @type {State['ledger']|null} */
	#shown = null;

	/** @override */
	build() {
		this.classList.add('ledger');
		const heads = ['time', 'by', 'ticket', 'value', 'verdict'];
		this.#scroller.append(h('table', { role: 'table', 'aria-label': 'ledger: one row for each write' },
			h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...heads.map(
				(one) => h('th', { role: 'columnheader', scope: 'col', class: `col-${one}` }, one)))),
			this.#earlier, this.#body));
		this.append(
			h('header', { class: 'piece-head' }, h('h2', {}, 'ledger'), this.#verdict), this.#findings, this.#scroller);
		this.#body.addEventListener('pointerover', (event) => this.#point(event.target));
		this.#body.addEventListener('pointerleave', () => this.#point(null));
		this.#body.addEventListener('focusin', (event) => this.#point(event.target));
		this.#body.addEventListener('focusout', () => this.#point(null));
		this.#body.addEventListener('keydown', (event) => this.#key(event));
		this.#rest();
	}

	/** An empty scroller must be reachable by keyboard itself; rows take the tab stop over. */
	#rest() {
		const some = this.#rows.size > 0;
		put(this.#scroller, 'tabindex', some ? null : 0);
		put(this.#scroller, 'role', 'region');
		put(this.#scroller, 'aria-label', 'ledger');
	}

	/** @param {EventTarget|null} target */
	#point(target) {
		const row = target instanceof Element ? target.closest('tr') : null;
		this.ctx?.select(row ? Number(row.dataset.seq) : null);
	}

	/** @param {KeyboardEvent} event */
	#key(event) {
		const rows = [...this.#body.rows];
		const at = rows.findIndex((row) => row === document.activeElement);
		/** @type {Record<string, number>} */
		const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 };
		const row = rows[to[event.key] ?? -1];
		if (at >= 0 && row) {
			event.preventDefault();
			this.#stopAt(row);
			row.focus();
		}
	}

	/** Makes one row the tab stop of all. @param {HTMLTableRowElement} row */
	#stopAt(row) {
		for (const one of this.#body.rows) {
			one.tabIndex = one === row ? 0 : -1;
		}
	}

	/** @override @param {State} state @param {State|null} before */
	draw(state, before) {
		const { ledger } = state;
		if (ledger === this.#shown) {
			return;
		}
		if (!before) {
			this.#rows.clear();
			this.#body.replaceChildren();
		}
		if (before?.ledger.earlier !== ledger.earlier) {
			this.#drawEarlier(ledger.earlier);
		}
		const fresh = ledger.rows.filter((row) => this.#drawRow(row, before !== null));
		this.#forget(ledger.rows);
		const broken = ledger.corrupted.length > 0;
		put(this, 'data-verdict', broken ? 'corrupted' : 'whole');
		say(this.#verdict, state.round === 0 ? 'not started yet' : broken ? 'corrupted: runs interleave' : 'whole: each run stands on the one before');
		say(this.#findings, ledger.corrupted.at(-1) ?? '');
		if (fresh.length > 0) {
			this.#scroller.scrollTop = this.#scroller.scrollHeight;
			const last = this.#body.rows[this.#body.rows.length - 1];
			if (last && !this.#body.contains(document.activeElement)) {
				this.#stopAt(last);
			}
		}
		this.#shown = ledger;
		this.#rest();
	}

	/** Rows that the state no longer keeps. @param {Row[]} rows */
	#forget(rows) {
		const kept = new Set(rows.map((row) => row.seq));
		for (const [seq, el] of this.#rows) {
			if (!kept.has(seq)) {
				el.remove();
				this.#rows.delete(seq);
			}
		}
	}

	/** @param {EarlierLine[]} earlier the last lines of the runs before the first act */
	#drawEarlier(earlier) {
		const last = earlier.at(-1);
		this.#earlier.replaceChildren();
		if (!last) {
			return;
		}
		const words = last.line > 1 ? `lines 1–${last.line}: ${last.line} earlier runs; last: ` : 'an earlier run: ';
		const edge = h('td', { role: 'cell', class: 'col-time' }, '–');
		paint(edge, last.token);
		this.#earlier.append(h('tr', { role: 'row' }, edge, h('td', { role: 'cell', class: 'col-by' }, '–'),
			h('td', { role: 'cell', class: 'col-ticket' }, ticket(last.token, 'ticket-row')),
			h('td', { role: 'cell', colspan: 2 }, words, h('span', { class: 'quiet-value' }, last.value))));
	}

	/** @param {Row} row @param {boolean} lively @returns {boolean} whether the row is new */
	#drawRow(row, lively) {
		const known = this.#rows.get(row.seq);
		const el = known ?? this.#newRow(row);
		put(el, 'data-bad', row.bad);
		put(el, 'aria-label', rowWords(row));
		const verdict = el.lastElementChild?.lastElementChild;
		if (verdict) {
			say(verdict, verdictWords(row));
		}
		if (!known && lively && !still()) {
			el.animate([{ opacity: 0, transform: 'translateY(-0.6rem)' }, { opacity: 1, transform: 'none' }],
				{ duration: 200, delay: row.verdict === 'refused' ? 120 : 200, easing: 'ease-out', fill: 'backwards' });
		}
		return !known;
	}

	/** @param {Row} row */
	#newRow(row) {
		const edge = h('td', { role: 'cell', class: 'col-time figures' }, instant(row.atMs));
		paint(edge, row.token);
		const el = h('tr', {
			role: 'row', 'data-seq': row.seq, 'data-token': row.token, 'data-verdict': row.verdict, 'data-worker': row.worker, tabindex: -1,
		}, edge, h('td', { role: 'cell', class: 'col-by' }, row.worker),
		h('td', { role: 'cell', class: 'col-ticket' }, ticket(row.token, 'ticket-row')),
		h('td', { role: 'cell', class: 'col-value' }, row.verdict === 'refused' ? h('s', {}, row.value) : row.value),
		h('td', { role: 'cell', class: 'col-verdict' }, h('span', { class: 'verdict-sign', 'aria-hidden': 'true' }), h('span')));
		this.#rows.set(row.seq, el);
		this.#body.append(el);
		return el;
	}

	/** @override @param {number|null} seq */
	light(seq) {
		for (const [own, el] of this.#rows) {
			put(el, 'data-lit', own === seq);
		}
	}
}

customElements.define('hf-ledger', Ledger);
