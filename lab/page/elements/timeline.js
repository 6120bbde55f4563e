// @ts-check
/**
 * The timeline: four lanes, time to the right, the last minute in view. It is one tab stop; the arrow keys walk along
 * the events, and the line below says the one that is marked, in words.
 */

import { h, Piece, put, s, say } from './dom.js';
import { bandShape, dropShape, lanes, layers, markShape, overlapShape, serviceShape, stopShape, tickShape } from './timeline_shapes.js';
import { tellSeq } from './timeline_words.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('./timeline_shapes.js').Shape} Shape */

/** The most and the least time in view, in ms, and the least room for a second, in pixels. */
const [widest, narrowest, leastPerSecond] = [60_000, 20_000, 15];

/** How much of the view lies after now. */
const ahead = 0.09;

/** `<hf-timeline>`. */
export class Timeline extends Piece {
	/** @type {Map<string, {shape:Shape, source:unknown}>} */
	#shapes = new Map();
	#layers = Object.fromEntries(layers.map((name) => [name, s('g', { class: `layer-${name}` })]));
	#axis = s('g', { class: 'layer-axis', 'aria-hidden': 'true' });
	#nowLine = s('path', { class: 'now-line', d: `M0 ${lanes.axis + 6}V${lanes.height - 16}` });
	#svg = s('svg', { class: 'timeline-svg', height: lanes.height });
	#spacer = h('div', { class: 'timeline-spacer', 'aria-hidden': 'true' });
	#scroller = h('div', { class: 'timeline-scroll' });
	#words = h('p', { class: 'timeline-words', id: 'timeline-words' });
	#back = h('button', { type: 'button', class: 'key timeline-back' }, 'to now');
	#spans = h('ul', { class: 'unseen', 'aria-label': 'who thought to hold, and when' });
	/** The view's width in units, and how many pixels a unit has. */
	#width = 0;
	#unit = 1;
	#perMs = 0;
	#follow = true;
	/** An event was walked to that was out of view; leaving the timeline comes back to now. */
	#revealed = false;
	#expected = 0;
	/** @type {number|null} the event that the tab key comes back to */
	#stop = null;

	/** @override */
	build() {
		const rules = (/** @type {const} */ (['A', 'B', 'service', 'gate'])).map((lane) => s('path', {
			class: 'lane-line', 'data-lane': lane, d: `M0 ${lanes.middle[lane]}H10000`,
		}));
		this.#svg.append(...rules, this.#axis, this.#nowLine, ...layers.map((name) => this.#layers[name]));
		this.#scroller.append(this.#svg, this.#spacer);
		const labels = h('div', { class: 'timeline-labels', 'aria-hidden': 'true' }, ...['A', 'B', 'service', 'gate'].map(
			(lane) => h('span', { 'data-lane': lane }, lane)));
		for (const label of labels.children) {
			const lane = /** @type {HTMLElement} */ (label);
			lane.style.setProperty('--lane', String(lanes.middle[/** @type {import('../types.js').Lane} */ (lane.dataset.lane)]));
		}
		this.append(h('h2', { class: 'unseen' }, 'timeline'), h('div', { class: 'timeline-frame' }, labels, this.#scroller, this.#back), this.#words, this.#spans);
		this.#listen();
		new ResizeObserver(() => {
			this.#measure();
			this.frame(this.now());
		}).observe(this.#scroller);
	}

	/** Everything is drawn in units that grow with the page's type, as on a wall screen. */
	#measure() {
		this.#unit = Math.max(1, parseFloat(getComputedStyle(document.documentElement).fontSize) / 16);
		this.#width = this.#scroller.clientWidth / this.#unit;
		put(this.#svg, 'height', Math.round(lanes.height * this.#unit));
		put(this.#svg, 'viewBox', `0 0 ${this.#width.toFixed(2)} ${lanes.height}`);
		this.style.setProperty('--unit', `${this.#unit}px`);
	}

	#listen() {
		const svg = this.#svg;
		svg.addEventListener('pointerover', (event) => this.#point(event.target));
		svg.addEventListener('pointerleave', () => this.#point(null));
		svg.addEventListener('focusin', (event) => this.#point(event.target));
		svg.addEventListener('focusout', () => {
			this.ctx?.select(null);
			this.#follow ||= this.#revealed;
			this.#revealed = false;
		});
		svg.addEventListener('keydown', (event) => this.#key(event));
		this.#scroller.addEventListener('scroll', () => {
			if (Math.abs(this.#scroller.scrollLeft - this.#expected) > 3) {
				this.#follow = this.#scroller.scrollLeft >= this.#scroller.scrollWidth - this.#scroller.clientWidth - 8;
			}
		}, { passive: true });
		this.#back.addEventListener('click', () => {
			this.#follow = true;
		});
	}

	/** @param {EventTarget|null} target */
	#point(target) {
		const at = target instanceof Element ? target.closest('[data-seq]') : null;
		const g = at ?? document.activeElement;
		this.ctx?.select(g instanceof SVGElement && g.dataset.seq && this.contains(g) ? Number(g.dataset.seq) : null);
	}

	/** The events that the arrow keys walk along, in time. @returns {Shape[]} */
	#walk() {
		return [...this.#shapes.values()].map(({ shape }) => shape)
			.filter((shape) => shape.seq !== null && !shape.el.classList.contains('tick'))
			.sort((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
	}

	/** @param {KeyboardEvent} event */
	#key(event) {
		const walk = this.#walk();
		const at = walk.findIndex((shape) => shape.el === document.activeElement);
		if (at < 0) {
			return;
		}
		const lane = walk[at].lane;
		/** @type {Record<string, number>} */
		const to = {
			ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: walk.length - 1,
			ArrowDown: walk.findIndex((shape, i) => i > at && shape.lane === lane),
			ArrowUp: walk.findLastIndex((shape, i) => i < at && shape.lane === lane),
		};
		const next = walk[to[event.key] ?? -1];
		if (event.key in to) {
			event.preventDefault();
		}
		if (next) {
			this.#stop = next.seq;
			this.#rove(walk);
			this.#reveal(next);
			next.el.focus({ preventScroll: true });
		}
	}

	/** One event of all is the tab stop: the last one walked to, or the newest. @param {Shape[]} walk */
	#rove(walk) {
		const stop = walk.find((shape) => shape.seq === this.#stop) ?? walk.at(-1);
		for (const shape of walk) {
			put(shape.el, 'tabindex', shape === stop ? 0 : -1);
		}
		put(this.#svg, 'role', walk.length ? 'listbox' : 'img');
		put(this.#svg, 'aria-label', walk.length ? 'timeline: events; arrow keys walk along them' : 'timeline: nothing happened yet');
		put(this.#svg, 'aria-orientation', walk.length ? 'horizontal' : null);
	}

	/** Pans so that a shape is in view. @param {Shape} shape */
	#reveal(shape) {
		const x = shape.from * this.#perMs;
		const left = this.#scroller.scrollLeft / this.#unit;
		if (x < left + 30 || x > left + this.#width - 60) {
			this.#follow = false;
			this.#revealed = true;
			this.#scroller.scrollLeft = Math.max(0, x - this.#width / 2) * this.#unit;
		}
		this.frame(this.now());
	}

	/** @override @param {State} state @param {State|null} before */
	draw(state, before) {
		if (!before) {
			this.#shapes.forEach(({ shape }) => shape.el.remove());
			this.#shapes.clear();
			this.#follow = true;
			this.#stop = null;
		}
		if (before?.timeline === state.timeline) {
			return;
		}
		const seen = new Set();
		const { timeline } = state;
		this.#keep(seen, 'bands', timeline.bands, (one) => `band ${one.seq}`, (one) => bandShape(one, () => this.#stopIn(one)));
		this.#keep(seen, 'bands', timeline.serviceBands, (one) => `service ${one.seq}`, serviceShape);
		this.#keep(seen, 'stops', timeline.stops, (one) => `stop ${one.seq}`, stopShape);
		this.#keep(seen, 'ticks', timeline.ticks, (one) => `tick ${one.lane} ${one.seq}`, tickShape);
		this.#keep(seen, 'drops', timeline.drops, (one) => `drop ${one.seq}`, dropShape);
		this.#keep(seen, 'marks', timeline.marks, (one) => `mark ${one.kind} ${one.lane} ${one.seq}`, markShape);
		this.#keep(seen, 'overlaps', timeline.overlaps, (one) => `overlap ${one.from} ${one.tokens.join(' ')}`, overlapShape);
		for (const [key, { shape }] of this.#shapes) {
			if (!seen.has(key)) {
				shape.el.remove();
				this.#shapes.delete(key);
			}
		}
		put(this, 'data-overlaps', timeline.overlaps.length);
		this.#rove(this.#walk());
		this.#tellSpans(state);
	}

	/**
	 * @template T
	 * @param {Set<string>} seen @param {string} layer @param {T[]} list
	 * @param {(one:T) => string} keyOf @param {(one:T) => Shape} make
	 */
	#keep(seen, layer, list, keyOf, make) {
		for (const one of list) {
			const key = keyOf(one);
			seen.add(key);
			const known = this.#shapes.get(key);
			if (known && sameThing(known.source, one)) {
				continue;
			}
			const shape = make(one);
			const focused = known?.shape.el === document.activeElement;
			this.#name(shape);
			if (known) {
				known.shape.el.replaceWith(shape.el);
			} else {
				this.#layers[layer].append(shape.el);
			}
			this.#shapes.set(key, { shape, source: one });
			if (focused) {
				put(shape.el, 'tabindex', 0);
				shape.el.focus({ preventScroll: true });
			}
		}
	}

	/** @param {Shape} shape */
	#name(shape) {
		if (shape.seq === null || !this.state) {
			put(shape.el, 'aria-hidden', 'true');
			return;
		}
		put(shape.el, 'data-seq', shape.seq);
		if (shape.el.classList.contains('tick')) {
			put(shape.el, 'aria-hidden', 'true');
			return;
		}
		put(shape.el, 'role', 'option');
		put(shape.el, 'aria-selected', 'false');
		put(shape.el, 'aria-label', [shape.words ?? '', tellSeq(this.state, shape.seq)].filter(Boolean).join(', '));
	}

	/** When a band's worker was first stopped in it. @param {import('../types.js').Band} band */
	#stopIn(band) {
		const stop = this.state?.timeline.stops.find((one) => one.worker === band.worker && one.from >= band.from);
		return stop && (band.to === null || stop.from < band.to) ? stop.from : null;
	}

	/** @param {State} state */
	#tellSpans({ timeline }) {
		const at = (/** @type {number|null} */ ms) => (ms === null ? 'now' : `${(ms / 1000).toFixed(1)} s`);
		this.#spans.replaceChildren(
			...timeline.bands.slice(-20).map((one) => h('li', {}, `${one.worker} thought that it held ${one.token} from ${at(one.from)} to ${at(one.to)}`)),
			...timeline.overlaps.slice(-5).map((one) => h('li', {}, `two holders, ${one.tokens.join(' and ')}, from ${at(one.from)} to ${at(one.to)}`)));
	}

	/** @override @param {number} now */
	tick(now) {
		if (!this.state || this.#width <= 0) {
			return;
		}
		const view = Math.min(widest, Math.max(narrowest, now * (1 + ahead)), this.#width / leastPerSecond * 1000);
		this.#perMs = this.#width / view;
		const total = Math.max(this.#width, Math.ceil((now + view * ahead) * this.#perMs));
		this.#spacer.style.setProperty('--total', `${Math.floor(total * this.#unit)}px`);
		const scroller = this.#scroller;
		if (this.#follow) {
			this.#expected = (total - this.#width) * this.#unit;
			if (Math.abs(scroller.scrollLeft - this.#expected) > 0.5) {
				scroller.scrollLeft = this.#expected;
			}
		}
		put(this.#back, 'data-shown', !this.#follow);
		const offset = scroller.scrollLeft / this.#unit / this.#perMs;
		const x = (/** @type {number} */ at) => (at - offset) * this.#perMs;
		for (const { shape } of this.#shapes.values()) {
			const seen = (shape.to ?? now) >= offset - 8000 && shape.from <= offset + view + 2000;
			put(shape.el, 'display', seen ? null : 'none');
			if (seen) {
				shape.place(x, now, this.#width);
			}
		}
		put(this.#nowLine, 'transform', `translate(${x(now).toFixed(1)} 0)`);
		this.#drawAxis(offset, view, x);
	}

	/** @param {number} offset @param {number} view @param {(at:number) => number} x */
	#drawAxis(offset, view, x) {
		const step = view > 45_000 ? 10_000 : view > 12_000 ? 5_000 : 2_000;
		let i = 0;
		for (let at = Math.ceil(offset / step) * step; at <= offset + view; at += step, i++) {
			let g = this.#axis.children[i];
			if (!g) {
				g = s('g', {}, s('path', { class: 'axis-line', d: `M0 ${lanes.axis + 5}V${lanes.height - 14}` }),
					s('text', { class: 'axis-label', y: lanes.axis, 'text-anchor': 'middle' }));
				this.#axis.append(g);
			}
			put(g, 'transform', `translate(${x(at).toFixed(1)} 0)`);
			const edge = x(at) < 20 || x(at) > this.#width - 20;
			say(/** @type {Element} */ (g.lastChild), edge ? '' : `${at / 1000} s`);
		}
		while (this.#axis.children.length > i) {
			this.#axis.lastChild?.remove();
		}
	}

	/** @override @param {number|null} seq */
	light(seq) {
		for (const { shape } of this.#shapes.values()) {
			const lit = seq !== null && shape.seq === seq;
			put(shape.el, 'data-lit', lit);
			if (shape.el.hasAttribute('aria-selected')) {
				put(shape.el, 'aria-selected', String(lit));
			}
		}
		const words = seq !== null && this.state ? tellSeq(this.state, seq) : '';
		say(this.#words, words || 'point at anything on the timeline or in the ledger to read it');
		put(this.#words, 'data-idle', words === '');
	}
}

/** Whether two plain objects have the same fields. @param {unknown} a @param {unknown} b */
function sameThing(a, b) {
	return a === b || JSON.stringify(a) === JSON.stringify(b);
}

customElements.define('hf-timeline', Timeline);
