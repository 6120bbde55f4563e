// @ts-check
/**
 * The scenes, the first of which is shown when a link names none. A scene is data and a small script: another one with
 * the same cast is a file like paused-holder.js and an entry here.
 */

import { pausedHolder } from './paused-holder.js';

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').Do} Do */
/** @typedef {import('../types.js').Name} Name */

/** @typedef {{do: Do, worker: Name}|'compare'|'reset'} Target the button that an action presses */
/** @typedef {'service'|'lease'|'gate'|'ledger'|'timeline'} Sight a piece of the page to look at */
/** @typedef {object} Action one thing to do, or, without a target, to wait for
 * @property {string} label in a word or two
 * @property {string} text what to do
 * @property {string} watch what to look at meanwhile
 * @property {Sight[]} sights where that is, the most important one first: on a small screen the guide brings it into view
 * @property {Target} [target]
 * @property {(state: State) => boolean} done
 * @property {boolean} [aside] not needed by the steps that follow
 */
/** @typedef {object} Step
 * @property {string} id
 * @property {string} title
 * @property {Action[]} actions
 * @property {(state: State) => boolean} done
 * @property {(state: State) => string} off why this step cannot be finished from here, or ''
 * @property {(state: State) => string} proved one sentence, with the numbers of this run
 * @property {boolean} [fresh] it begins with a reset and needs nothing of the steps before it
 */
/** @typedef {object} Scene
 * @property {string} name as in a link
 * @property {string} title
 * @property {string} lead
 * @property {{ttlMs: number, compare: boolean}} settings how its first step begins
 * @property {Step[]} steps
 * @property {{title: string, text: (state: State) => string[], moment: (state: State) => number|null}} closing moment is
 *   the seq of the event that it points at
 */

/** @type {Scene[]} */
export const scenes = [pausedHolder];

/** The scene of that name, or the first. @param {string} name @returns {Scene} */
export function sceneOf(name) {
	return scenes.find((scene) => scene.name === name) ?? scenes[0];
}
