// @ts-check
/**
 * How far a visitor is. It follows from what happened, not from which buttons of the guide were pressed, so whoever plays
 * by hand or by keyboard is followed as well.
 */

/** @typedef {import('./types.js').State} State */
/** @typedef {import('./scenes/index.js').Scene} Scene */
/** @typedef {import('./scenes/index.js').Step} Step */
/** @typedef {import('./scenes/index.js').Action} Action */

/** @typedef {object} Progress
 * @property {number} step the present one, from 1
 * @property {boolean} finished it has been done since it began
 * @property {string} proved what it proved, with the numbers of that moment
 * @property {number} done the highest step that was ever done
 * @property {boolean} free the guide keeps silent
 */

/** Where a visitor begins. @returns {Progress} */
export function beginning() {
	return { step: 1, finished: false, proved: '', done: 0, free: false };
}

/** At the beginning of a step. @param {Progress} progress @param {number} step @returns {Progress} */
export function atStep(progress, step) {
	return { ...progress, step, finished: false, proved: '' };
}

/**
 * What was kept of a visitor before the page was reloaded; what makes no sense is the beginning.
 * @param {string} text @param {Scene} scene @param {string} world @returns {Progress}
 */
export function restored(text, scene, world) {
	try {
		const kept = JSON.parse(text);
		const fits = (/** @type {unknown} */ n, /** @type {number} */ least) => (
			Number.isInteger(n) && Number(n) >= least && Number(n) <= scene.steps.length);
		if (kept.scene === scene.name && kept.world === world && fits(kept.step, 1) && fits(kept.done, 0)) {
			return {
				step: kept.step, done: kept.done, finished: kept.finished === true, free: kept.free === true,
				proved: String(kept.proved ?? ''),
			};
		}
	} catch {
		// Somebody else's, or an older page's.
	}
	return beginning();
}

/**
 * The progress after the state changed.
 * @param {Scene} scene @param {Progress} progress @param {State} before @param {State} after @returns {Progress}
 */
export function follow(scene, progress, before, after) {
	let now = progress;
	if (before.round !== 0 && before.round !== after.round) {
		now = onReset(scene, now);
	}
	for (;;) {
		const step = scene.steps[now.step - 1];
		if (step.done(after)) {
			now = { ...now, finished: true, done: Math.max(now.done, now.step), proved: step.proved(after) };
		}
		// Who goes on by hand need not press "next".
		const next = scene.steps[now.step];
		if (!now.finished || !next || count(next, after) <= count(next, before)) {
			return same(progress, now) ? progress : now;
		}
		now = atStep(now, now.step + 1);
	}
}

/** @param {Step} step @param {State} state @returns {number} how much of a step is done */
function count(step, state) {
	return step.actions.filter((action) => action.done(state)).length;
}

/**
 * A reset is part of a step that begins with one, and else begins the scene again.
 * @param {Scene} scene @param {Progress} progress
 */
function onReset(scene, progress) {
	const next = scene.steps[progress.step];
	if (progress.finished && next?.fresh) {
		return atStep(progress, progress.step + 1);
	}
	return atStep(progress, scene.steps[progress.step - 1].fresh ? progress.step : 1);
}

/** @param {Progress} a @param {Progress} b */
function same(a, b) {
	return a.step === b.step && a.finished === b.finished && a.done === b.done && a.proved === b.proved && a.free === b.free;
}

/** @typedef {object} Place where in its step the visitor is
 * @property {Step} step
 * @property {Action|null} action the next thing to do or to wait for; null when all is done, though the last action may not
 *   have brought about yet what finishes the step
 * @property {string} off why the step cannot be finished from here, or ''
 */

/** @param {Scene} scene @param {Progress} progress @param {State} state @returns {Place} */
export function placeOf(scene, progress, state) {
	const step = scene.steps[progress.step - 1];
	const action = progress.finished ? null : step.actions.find((one) => !one.done(state)) ?? null;
	return { step, action, off: progress.finished || !state.live ? '' : step.off(state) || impossible(action, state) };
}

/** @param {Action|null} action @param {State} state @returns {string} */
function impossible(action, state) {
	if (!action?.target || typeof action.target === 'string') {
		return '';
	}
	const can = state.workers[action.target.worker].can[action.target.do];
	return can === true ? '' : `${can}.`;
}

/**
 * What was to be done before a step, so that it can begin.
 * @param {Scene} scene @param {number} step @returns {Action[]}
 */
export function before(scene, step) {
	if (scene.steps[step - 1].fresh) {
		return [];
	}
	return scene.steps.slice(0, step - 1).flatMap((one) => one.actions).filter((action) => !action.aside);
}
