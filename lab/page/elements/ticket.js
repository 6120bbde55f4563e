// @ts-check
// The ticket: a fencing token as paper. One number has one colour and one
// pattern for ever, wherever it shows up: in a hand, in the ledger, as a band
// on the timeline. Neighbours differ in hue, in lightness and in pattern.

import { put, s, still } from './dom.js';

/**
 * @typedef {object} Colours
 * @property {string} fill the paper
 * @property {string} ink what is printed on it
 * @property {string} edgeLight its outline on the light page
 * @property {string} edgeDark its outline on the dark page
 * @property {string} pattern one of PATTERNS, or plain
 */

/** @typedef {[fill: string, ink: string, edgeLight: string, edgeDark: string]} Paper */

// Dark and light papers take turns; no paper is red.
/** @type {Paper[]} */
const PAPERS = [
	['#2c66ad', '#ffffff', '#1c4679', '#8fbcf0'],
	['#f2b632', '#241a02', '#855800', '#f2b632'],
	['#1d7560', '#ffffff', '#0f4e3f', '#6fcdb3'],
	['#cdb9ee', '#221538', '#68499c', '#cdb9ee'],
	['#76489a', '#ffffff', '#532f70', '#c9a2e8'],
	['#a5dcc0', '#0a2a1c', '#2f7354', '#a5dcc0'],
	['#56606d', '#ffffff', '#363e49', '#b3bfcd'],
	['#9fd2f2', '#08263a', '#2a6c95', '#9fd2f2'],
];

/** @type {Paper} */
const PLAIN = ['#e4e1d8', '#2b2e33', '#74767a', '#9b9c9a'];

const PATTERNS = ['stripes', 'dots', 'rules', 'checks', 'waves'];

/** The last number of the runs before the first act; they are plain paper. */
const LAST_PLAIN = 32;

/**
 * The colours and the pattern of a number.
 * @param {number} n a token's number
 * @returns {Colours}
 */
export function ticketColours(n) {
	const i = Math.max(0, Math.trunc(n) - LAST_PLAIN - 1);
	const plain = !(n > LAST_PLAIN);
	const [fill, ink, edgeLight, edgeDark] = plain ? PLAIN : PAPERS[i % PAPERS.length];
	const pattern = plain ? 'plain' : PATTERNS[i % PATTERNS.length];
	return { fill, ink, edgeLight, edgeDark, pattern };
}

/**
 * Gives an element the colours of a number, or takes them away.
 * @param {HTMLElement | SVGElement} el
 * @param {number | null} n
 */
export function paint(el, n) {
	const key = n === null ? null : String(n);
	if ((el.dataset.painted ?? null) === key) return;
	el.classList.toggle('t', n !== null);
	if (n === null) {
		delete el.dataset.painted;
		delete el.dataset.pattern;
		return;
	}
	const c = ticketColours(n);
	el.dataset.painted = String(n);
	el.dataset.pattern = c.pattern;
	el.style.setProperty('--t-fill', c.fill);
	el.style.setProperty('--t-ink', c.ink);
	el.style.setProperty('--t-edge-light', c.edgeLight);
	el.style.setProperty('--t-edge-dark', c.edgeDark);
}

/** @type {SVGDefsElement | null} */
let defs = null;

/**
 * The id of the SVG pattern of a number; the pattern is made when first asked for.
 * @param {number} n
 */
export function patternOf(n) {
	const id = `hf-paper-${n}`;
	if (!defs) {
		defs = s('defs');
		document.body.append(s('svg', { class: 'hf-defs', width: 0, height: 0, 'aria-hidden': 'true' }, defs));
	}
	if (!defs.querySelector(`#${id}`)) defs.append(drawPattern(id, ticketColours(n)));
	return id;
}

/**
 * @param {string} id
 * @param {Colours} c
 */
function drawPattern(id, c) {
	const pattern = s('pattern', { id, width: 8, height: 8, patternUnits: 'userSpaceOnUse' });
	pattern.append(s('rect', { width: 8, height: 8, fill: c.fill }));
	const line = { fill: 'none', stroke: c.ink, 'stroke-width': 1.3, opacity: 0.62 };
	const marks = {
		stripes: () => [s('path', { ...line, d: 'M-2 2 2 -2M-2 10 10 -2M6 10 10 6' })],
		dots: () => [2, 6].map((at) => s('circle', { cx: at, cy: at, r: 1.25, fill: c.ink, opacity: 0.72 })),
		rules: () => [s('path', { ...line, d: 'M2 0V8M6 0V8' })],
		checks: () => [s('path', { ...line, d: 'M0 0 8 8M8 0 0 8' })],
		waves: () => [s('path', { ...line, d: 'M0 2q2 -2.6 4 0t4 0M0 6q2 -2.6 4 0t4 0' })],
	};
	const draw = marks[/** @type {keyof typeof marks} */ (c.pattern)];
	if (draw) pattern.append(...draw());
	return pattern;
}

const WIDE = 112;
const HIGH = 60;

/** A ticket's outline: straight sides, and above and below the bites of the perforation. */
function outline() {
	const bites = 14;
	const step = WIDE / bites;
	let d = 'M0 0';
	for (let i = 0; i < bites; i++) d += `h${step / 4}a${step / 4} ${step / 4} 0 0 0 ${step / 2} 0h${step / 4}`;
	d += `V${HIGH}`;
	for (let i = 0; i < bites; i++) d += `h${-step / 4}a${step / 4} ${step / 4} 0 0 0 ${-step / 2} 0h${-step / 4}`;
	return `${d}Z`;
}

const OUTLINE = outline();

/** `<hf-ticket data-token="33">`: shows the number that its attribute names. */
export class Ticket extends HTMLElement {
	static observedAttributes = ['data-token'];

	#number = s('text', { x: 69, y: 45, 'text-anchor': 'middle', class: 'ticket-number' });
	#strip = s('rect', { x: 1, y: 3, width: 24, height: HIGH - 6 });

	connectedCallback() {
		if (this.firstChild) return;
		put(this, 'role', 'img');
		this.append(
			s('svg', { viewBox: `-1 -1 ${WIDE + 2} ${HIGH + 2}`, 'aria-hidden': 'true', focusable: 'false' },
				s('path', { d: OUTLINE, class: 'ticket-paper' }),
				this.#strip,
				s('path', { d: `M27 4V${HIGH - 3}`, class: 'ticket-fold' }),
				this.#number),
		);
		this.attributeChangedCallback();
	}

	attributeChangedCallback() {
		const text = this.dataset.token ?? '';
		const n = Number(text);
		const blank = text === '' || !Number.isFinite(n);
		paint(this, blank ? null : n);
		put(this, 'aria-label', blank ? 'no ticket' : `ticket ${text}`);
		this.#number.textContent = blank ? '' : text;
		put(this.#number, 'font-size', text.length > 4 ? 22 : text.length > 2 ? 31 : 43);
		put(this.#strip, 'fill', blank ? 'none' : `url(#${patternOf(n)})`);
	}
}

/**
 * Makes a ticket.
 * @param {number | null} n
 * @param {string} [className]
 */
export function ticket(n, className = '') {
	const el = document.createElement('hf-ticket');
	put(el, 'class', className || null);
	put(el, 'data-token', n ?? '');
	return el;
}

/**
 * Lets a ticket travel from one place on the page to another: torn off, carried,
 * put down. With bounce it comes back, as from an arm that stays down.
 * @param {number} n
 * @param {Element | null} from
 * @param {Element | null} to
 * @param {{bounce?: boolean}} [how]
 * @returns {Promise<void>} when it has arrived
 */
export async function fly(n, from, to, { bounce = false } = {}) {
	if (still() || !from || !to || document.hidden) return;
	const a = from.getBoundingClientRect();
	const b = to.getBoundingClientRect();
	const seen = [a, b].some((r) => r.width > 0 && r.bottom > 0 && r.top < innerHeight);
	if (!seen) return;
	const paper = ticket(n, 'ticket-flying');
	put(paper, 'aria-hidden', 'true');
	document.body.append(paper);
	const own = paper.getBoundingClientRect();
	/** @param {DOMRect} r @param {number} scale @param {number} turn */
	const at = (r, scale, turn) => `translate(${r.x + r.width / 2 - own.width / 2}px, ${
		r.y + r.height / 2 - own.height / 2}px) rotate(${turn}deg) scale(${scale})`;
	const first = from instanceof Ticket ? a.width / own.width : 1;
	const last = to instanceof Ticket ? b.width / own.width : 0.85;
	const home = { transform: at(a, first, 0) };
	const frames = bounce
		? [home, { transform: at(b, last, -4), offset: 0.5 }, home]
		: [home, { transform: at(a, first * 1.05, -5), offset: 0.2 }, { transform: at(b, last, 0) }];
	const trip = paper.animate(frames, { duration: bounce ? 460 : 280, easing: 'cubic-bezier(.3,.7,.2,1)', fill: 'both' });
	try {
		await trip.finished;
	} catch {
		// Cancelled: the page left it behind.
	}
	paper.remove();
}

customElements.define('hf-ticket', Ticket);
