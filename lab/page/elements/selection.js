// @ts-check
/** What an event that is marked everywhere lights up in the scene. */

/** @typedef {import('../types.js').State} State */

const ofGate = new Set(['wrote', 'refused', 'compare', 'corrupted']);

/**
 * The pieces that an event concerns: A, B, service, gate.
 * @param {State|null} state @param {number|null} seq @returns {string[]}
 */
export function litBy(state, seq) {
	if (!state || seq === null) {
		return [];
	}
	const event = state.events.find((one) => one.seq === seq);
	if (!event) {
		const tick = state.timeline.ticks.find((one) => one.seq === seq);
		return tick ? [tick.lane] : [];
	}
	const lit = [event.who ?? ''];
	if (event.kind === 'acquired') {
		lit.push('service');
	}
	if (ofGate.has(event.kind)) {
		lit.push('gate');
	}
	return lit;
}
