// @ts-check
/** What happened, in words: the timeline's names and the line below it. */

import { instant, seconds } from './dom.js';

/** @typedef {import('../types.js').LabEvent} LabEvent */
/** @typedef {import('../types.js').State} State */

/** @param {number|undefined} ms */
const left = (ms) => `${seconds(ms ?? 0)} s`;

/** @type {Record<string, (event:LabEvent, who:string) => string>} */
const words = {
	round: (event) => `a new round: the last ticket was ${event.lastToken ?? 0}`,
	started: (event, who) => `${who} started as process ${event.pid ?? ''}`,
	value: (event, who) => `${who} was given a job: write “${event.value ?? ''}”`,
	compare: (event) => (event.on ? 'the gate was told to compare tokens' : 'the gate was told not to compare tokens'),
	queued: (_, who) => `${who} asked for the lock and waits`,
	acquired: (event, who) => `${who} holds the lock with ticket ${event.token}, after ${(event.tookMs ?? 0).toFixed(1)} ms`,
	pulse: (event, who) => `${who} renewed its lease: ${left(event.leftMs)} by its own count`,
	heard: (event) => `the service heard from ${event.worker ?? 'the holder'}: ${left(event.ttlLeftMs)} by its count`,
	looked: (event, who) => `${who} looked at its lease: ${left(event.leftMs)} left`,
	paused: (event, who) => (event.poised
		? `${who} was stopped after its look and before its write` : `${who} was stopped`),
	woken: (event, who) => `${who} goes on, after standing still for ${left(event.pausedMs)}`,
	wrote: (event, who) => `${who} wrote “${event.value ?? ''}” with ticket ${event.token}: line ${event.line ?? ''}`,
	refused: (event) => `the gate refused ticket ${event.token}: it is lower than ${event.mark}; nothing was written`,
	released: (event, who) => `${who} gave the lock back, with ticket ${event.token}`,
	'gave-up': (_, who) => `${who} waits no longer`,
	lost: (event, who) => `${who} knows that it lost ${event.token ?? 'its lease'}`,
	killed: (_, who) => `${who} was killed`,
	ended: (_, who) => `${who}'s process ended by itself`,
	error: (event) => event.text ?? 'an error',
	corrupted: () => 'the ledger is corrupted: two runs interleave',
	'svc-queued': (event) => `the service put ${event.worker} into the queue`,
	'svc-granted': (event) => `the service gave ${event.worker} the lock and ticket ${event.token}`,
	'svc-freed': (event) => (event.cause === 'released'
		? `the service took ticket ${event.token} back from ${event.worker}`
		: `the service stopped counting on ${event.worker} with ticket ${event.token}: ${event.cause ?? 'ended'}`),
	'svc-left': (event) => `${event.worker} left the queue`,
};

/** An event as a sentence without its time. @param {LabEvent} event */
export function eventWords(event) {
	const tell = Object.hasOwn(words, event.kind) ? words[event.kind] : undefined;
	return tell ? tell(event, event.who ?? '') : event.kind;
}

/** An event as a sentence with its time. @param {State} state @param {number} seq @returns {string} */
export function tellSeq(state, seq) {
	const event = state.events.find((one) => one.seq === seq);
	if (event) {
		return `${instant(event.atMs)} s: ${eventWords(event)}`;
	}
	const tick = state.timeline.ticks.find((one) => one.seq === seq);
	return tick ? `${instant(tick.at)} s: ${tick.lane === 'service'
		? `the service heard from the holder of ${tick.token}: ${left(tick.leftMs)} by its count`
		: `${tick.lane} renewed its lease: ${left(tick.leftMs)} by its own count`}` : '';
}
