// @ts-check
/** What this tab keeps over a reload. Where the browser keeps nothing, a reload begins anew. */

/** @param {string} name @returns {string} '' for nothing */
export function recall(name) {
	try {
		return sessionStorage.getItem(name) ?? '';
	} catch {
		return '';
	}
}

/** @param {string} name @param {string} text '' to forget it */
export function keep(name, text) {
	try {
		if (text) {
			sessionStorage.setItem(name, text);
		} else {
			sessionStorage.removeItem(name);
		}
	} catch {
		// Storage is full or not allowed here: the page works without.
	}
}
