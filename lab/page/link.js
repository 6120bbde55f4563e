// @ts-check
/**
 * A link carries the scene and its settings in the part after '#', which no server sees:
 * `#scene=paused-holder&ttl=4&compare=on&a=…&b=…&speed=2&theme=dark&step=3`. What is left out has its default.
 */

/** @typedef {'auto'|'light'|'dark'} Theme */
/** @typedef {object} Link
 * @property {string} scene
 * @property {number} ttlMs 2000–10000
 * @property {boolean} compare
 * @property {string} a the job of worker A; empty: the lab's own
 * @property {string} b
 * @property {number} speed one of `speeds`
 * @property {Theme} theme
 * @property {number} step 0, or the step of the guide to go to at once
 */

/** How fast "play it for me" can go. */
export const speeds = [0.5, 1, 2, 4];

/** The shortest and the longest lease, in ms, as the lab takes them. */
export const ttlLimits = { min: 2000, max: 10000 };

const maxValue = 80;

/** What a link that says nothing means. @param {string} scene @returns {Link} */
export function defaults(scene) {
	return { scene, ttlMs: 4000, compare: false, a: '', b: '', speed: 1, theme: 'auto', step: 0 };
}

/** Why a job cannot be that, or nothing. @param {string} value @returns {string} */
export function badValue(value) {
	const length = [...value].length;
	if (value.trim() === '' || length > maxValue) {
		return `a job has 1 to ${maxValue} characters, not ${length}`;
	}
	return /[\p{C}\p{Zl}\p{Zp}\uFFFD]/u.test(value) ? 'a job has no control or invisible characters' : '';
}

/**
 * Reads a link. What it asks for and cannot have is named in `problems` and has its default.
 * @param {string} hash with or without '#' @param {string[]} scenes names of the scenes there are, the first is the default
 * @returns {{link: Link, problems: string[]}}
 */
export function parse(hash, scenes) {
	const link = defaults(scenes[0]);
	/** @type {string[]} */
	const problems = [];
	/** @type {Record<string, (text: string) => string>} sets what it reads, or says why not */
	const read = {
		scene: (text) => (scenes.includes(text) ? set({ scene: text }) : `there are: ${scenes.join(', ')}`),
		ttl: (text) => {
			const ms = /^\d{1,5}(\.\d{1,3})?$/.test(text) ? Math.round(Number(text) * 1000) : NaN;
			return ms >= ttlLimits.min && ms <= ttlLimits.max ? set({ ttlMs: ms })
				: `want seconds, ${ttlLimits.min / 1000} to ${ttlLimits.max / 1000}`;
		},
		compare: (text) => (text === 'on' || text === 'off' ? set({ compare: text === 'on' }) : 'want on or off'),
		a: (text) => badValue(text) || set({ a: text }),
		b: (text) => badValue(text) || set({ b: text }),
		speed: (text) => (speeds.includes(Number(text)) && text.trim() === text && text !== ''
			? set({ speed: Number(text) }) : `want one of ${speeds.join(', ')}`),
		theme: (text) => (text === 'auto' || text === 'light' || text === 'dark'
			? set({ theme: text }) : 'want auto, light or dark'),
		step: (text) => (/^[1-9]$/.test(text) ? set({ step: Number(text) }) : 'want the number of a step'),
	};
	/** @param {Partial<Link>} change */
	const set = (change) => {
		Object.assign(link, change);
		return '';
	};
	for (const [key, text] of new URLSearchParams(hash.replace(/^#/, ''))) {
		const why = Object.hasOwn(read, key) ? read[key](text) : '';
		if (why) {
			problems.push(`the link’s ${key}=${text.slice(0, 40)} is not possible: ${why}`);
		}
	}
	return { link, problems };
}

/** Writes a link, without what has its default. @param {Link} link @returns {string} beginning with '#' */
export function format(link) {
	const plain = defaults(link.scene);
	const out = new URLSearchParams({ scene: link.scene });
	out.set('ttl', String(link.ttlMs / 1000));
	out.set('compare', link.compare ? 'on' : 'off');
	if (link.a) {
		out.set('a', link.a);
	}
	if (link.b) {
		out.set('b', link.b);
	}
	if (link.speed !== plain.speed) {
		out.set('speed', String(link.speed));
	}
	if (link.theme !== plain.theme) {
		out.set('theme', link.theme);
	}
	if (link.step) {
		out.set('step', String(link.step));
	}
	return `#${out}`;
}
