// @ts-check
/**
 * What the pieces of the stage share to build and to change their parts. Text enters the page as text nodes only; markup
 * is never made of strings.
 */

/** @typedef {import('../types.js').State} State */

/** @typedef {object} Context what the app gives to each piece
 * @property {() => number} now milliseconds of the world's clock
 * @property {(action:{do:string, worker?:string, on?:boolean, value?:string}) => unknown} act
 * @property {(seq:number|null) => void} select marks an event everywhere
 * @property {number|null} [selected]
 */

/** A piece of the stage: the app gives it a context once, each new state, and each frame of the clock. */
export class Piece extends HTMLElement {
	/** @type {Context|null} */
	#ctx = null;
	/** @type {number|null|undefined} */
	#lit = undefined;
	/** @type {State|null} the state rendered last */
	state = null;

	/** @param {Context|null} ctx */
	set ctx(ctx) {
		this.#ctx = ctx;
	}

	get ctx() {
		return this.#ctx;
	}

	connectedCallback() {
		if (!this.firstChild) {
			this.build();
		}
	}

	/** Makes the piece's parts; called once. */
	build() {}

	/** @param {State} state */
	render(state) {
		const before = this.state;
		this.state = state;
		this.draw(state, before && before.round === state.round ? before : null);
		this.#lit = undefined;
		this.frame(this.now());
	}

	/**
	 * Shows a state. `before` is the last one of the same round, or null when there is nothing to compare with.
	 * @param {State} state @param {State|null} before
	 */
	draw(state, before) {
		void state, before;
	}

	/** @param {number} now */
	frame(now) {
		const selected = this.#ctx?.selected ?? null;
		if (selected !== this.#lit) {
			this.#lit = selected;
			this.light(selected);
		}
		this.tick(now);
	}

	/** Shows what moves with the clock. @param {number} now */
	tick(now) {
		void now;
	}

	/** Marks the event that is marked everywhere. @param {number|null} seq */
	light(seq) {
		void seq;
	}

	now() {
		return this.#ctx?.now() ?? 0;
	}
}

const svgNames = 'http://www.w3.org/2000/svg';

/** @typedef {Record<string, string|number|boolean|null|undefined>} Attributes true: present; false, null: absent */

/**
 * Makes an HTML element.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name @param {Attributes} [attributes] @param {...(Node|string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(name, attributes = {}, ...children) {
	const el = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) {
		put(el, key, value);
	}
	el.append(...children);
	return el;
}

/**
 * Makes an SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} name @param {Attributes} [attributes] @param {...(Node|string)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function s(name, attributes = {}, ...children) {
	const el = document.createElementNS(svgNames, name);
	for (const [key, value] of Object.entries(attributes)) {
		put(el, key, value);
	}
	el.append(...children);
	return /** @type {SVGElementTagNameMap[K]} */ (el);
}

/**
 * Sets, or with null or false removes, an attribute, if that changes anything.
 * @param {Element} el @param {string} name @param {string|number|boolean|null|undefined} value
 */
export function put(el, name, value) {
	if (value === null || value === undefined || value === false) {
		if (el.hasAttribute(name)) {
			el.removeAttribute(name);
		}
		return;
	}
	const text = value === true ? '' : String(value);
	if (el.getAttribute(name) !== text) {
		el.setAttribute(name, text);
	}
}

/** Sets an element's text, if that changes anything. @param {Element} el @param {string} text */
export function say(el, text) {
	if (el.textContent !== text) {
		el.textContent = text;
	}
}

/** Milliseconds as seconds with one digit, as bars and clocks show them. @param {number} ms */
export function seconds(ms) {
	return (Math.max(0, ms) / 1000).toFixed(1);
}

/** Milliseconds as seconds with three digits, as ledger and timeline tell them. @param {number} ms */
export function instant(ms) {
	return (Math.max(0, ms) / 1000).toFixed(3);
}

const stillness = matchMedia('(prefers-reduced-motion: reduce)');

/** Whether the visitor asked for no travel. */
export function still() {
	return stillness.matches;
}
