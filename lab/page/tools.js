// @ts-check
/** The page's own controls in its head: theme, settings, the link, the log. */

import { put, say } from './elements/dom.js';
import { format, ttlLimits } from './link.js';

/** @typedef {import('./link.js').Link} Link */
/** @typedef {object} Page
 * @property {() => Link} link as things are now
 * @property {(theme: Link['theme']) => void} theme
 * @property {(ttlMs: number) => Promise<string>} ttl begins a round with it; '' or why not
 * @property {(text: string) => void} notice
 */

/** @template {HTMLElement} T @param {string} id @param {new () => T} kind @returns {T} */
export function part(id, kind) {
	const found = document.getElementById(id);
	if (!(found instanceof kind)) {
		throw new Error(`the page has no #${id}`);
	}
	return found;
}

/** Shows a theme. @param {Link['theme']} theme */
export function showTheme(theme) {
	put(document.documentElement, 'data-theme', theme === 'auto' ? null : theme);
	part('theme', HTMLSelectElement).value = theme;
}

/** The visitor has written another length of a lease, and not sent it yet. */
let edited = false;

/** Shows the length of a lease in the settings, unless the visitor has written another one there. @param {number} ttlMs */
export function showTTL(ttlMs) {
	const input = part('ttl', HTMLInputElement);
	if (document.activeElement !== input && !edited) {
		input.value = String(ttlMs / 1000);
	}
}

/** Where the log of a world is; '' for none. @param {string} url */
export function showDownload(url) {
	const link = part('download', HTMLAnchorElement);
	put(link, 'href', url || null);
	put(link, 'aria-disabled', url ? null : 'true');
}

/** Makes the controls work. @param {Page} page */
export function listen(page) {
	const theme = part('theme', HTMLSelectElement);
	theme.addEventListener('change', () => page.theme(/** @type {Link['theme']} */ (theme.value)));
	listenSettings(page);
	listenShare(page);
}

/** @param {Page} page */
function listenSettings(page) {
	const form = part('settings-form', HTMLFormElement);
	const input = part('ttl', HTMLInputElement);
	const note = part('ttl-note', HTMLParagraphElement);
	const rule = note.textContent ?? '';
	input.addEventListener('input', () => {
		edited = true;
	});
	part('settings', HTMLDetailsElement).addEventListener('toggle', () => {
		edited = false;
	});
	form.addEventListener('submit', (event) => {
		event.preventDefault();
		const ms = Math.round(Number(input.value.replace(',', '.')) * 1000);
		const fits = input.value !== '' && ms >= ttlLimits.min && ms <= ttlLimits.max;
		put(input, 'aria-invalid', fits ? null : 'true');
		say(note, rule);
		if (!fits) {
			page.notice(`A lease lasts ${ttlLimits.min / 1000} to ${ttlLimits.max / 1000} seconds here.`);
			input.focus();
			return;
		}
		void page.ttl(ms).then((why) => {
			if (why) {
				page.notice(why);
			} else {
				part('settings', HTMLDetailsElement).open = false;
			}
		});
	});
	part('settings', HTMLDetailsElement).addEventListener('keydown', (event) => {
		const settings = part('settings', HTMLDetailsElement);
		if (event.key === 'Escape' && settings.open) {
			settings.open = false;
			settings.querySelector('summary')?.focus();
		}
	});
}

/** @param {Page} page */
function listenShare(page) {
	const field = part('share-link', HTMLInputElement);
	const share = part('share', HTMLButtonElement);
	const words = share.textContent ?? '';
	share.addEventListener('click', async () => {
		const url = new URL(format(page.link()), location.href).href;
		try {
			await navigator.clipboard.writeText(url);
			say(share, 'Copied');
			page.notice('The link is copied. It carries the scene and its settings.');
			setTimeout(() => say(share, words), 2000);
		} catch {
			// The browser allows no clipboard here: show the link to be copied by hand.
			field.value = url;
			put(field, 'hidden', null);
			field.focus();
			field.select();
			page.notice('The link is selected: copy it from here.');
		}
	});
	field.addEventListener('blur', () => put(field, 'hidden', true));
}
