// @ts-check
/**
 * Two holders, one ledger: a worker is stopped between its look at its lease and its write, the lease runs out, another
 * worker gets the lock, and the first one wakes up.
 */

/** @typedef {import('../types.js').State} State */
/** @typedef {import('../types.js').LabEvent} LabEvent */
/** @typedef {import('./index.js').Step} Step */
/** @typedef {import('./index.js').Action} Action */
/** @typedef {import('./index.js').Scene} Scene */

/** @typedef {object} Facts what has happened in this round, as far as it matters for the story
 * @property {LabEvent|null} a A's grant, as long as A has it or thinks so, or did when it was woken
 * @property {LabEvent|null} aWrote A's honest write
 * @property {LabEvent|null} look A's last look at its lease before it was stopped
 * @property {LabEvent|null} stop A was stopped, before its write
 * @property {LabEvent|null} expired the service gave A's lock away
 * @property {LabEvent|null} b B's grant, while A was stopped
 * @property {LabEvent|null} bWrote
 * @property {LabEvent|null} woken
 * @property {LabEvent|null} late A's write after that: accepted or refused
 * @property {LabEvent|null} lost A knew that it had lost its lease
 */

/** @type {Facts} */
const nothing = {
	a: null, aWrote: null, look: null, stop: null, expired: null, b: null, bWrote: null, woken: null, late: null, lost: null,
};

/** @type {Record<string, (facts: Facts, event: LabEvent) => Facts>} */
const tellA = {
	acquired: (_, e) => ({ ...nothing, a: e }),
	released: (f) => (f.late ? f : nothing),
	killed: (f) => (f.late ? f : nothing),
	ended: (f) => (f.late ? f : nothing),
	looked: (f, e) => (f.stop ? f : { ...f, look: e }),
	paused: (f, e) => (f.a && e.poised && !f.stop ? { ...f, stop: e } : f),
	woken: (f, e) => {
		if (f.stop && (f.expired || f.b)) {
			return f.woken ? f : { ...f, woken: e };
		}
		return { ...f, stop: null, look: null };
	},
	wrote: (f, e) => (f.woken ? { ...f, late: f.late ?? e } : { ...f, aWrote: e }),
	refused: (f, e) => (f.woken ? { ...f, late: f.late ?? e } : f),
	lost: (f, e) => (f.woken ? { ...f, lost: f.lost ?? e } : nothing),
};

/** @param {Facts} facts @returns {Facts} B's part, as long as it has written nothing, counts no more */
const withoutB = (facts) => (facts.bWrote ? facts : { ...facts, b: null });

/** @type {Record<string, (facts: Facts, event: LabEvent) => Facts>} */
const tellB = {
	acquired: (f, e) => (f.stop && !f.woken && !f.bWrote ? { ...f, b: e } : f),
	wrote: (f, e) => (f.b && f.b.token === e.token && !f.woken ? { ...f, bWrote: f.bWrote ?? e } : f),
	released: withoutB, killed: withoutB, ended: withoutB, lost: withoutB,
};

/** @param {Facts} facts @param {LabEvent} event @returns {Facts} */
function tell(facts, event) {
	if (event.kind === 'svc-freed') {
		return facts.stop && !facts.woken && event.token === facts.a?.token ? { ...facts, expired: event } : facts;
	}
	const how = event.who === 'A' ? tellA : event.who === 'B' ? tellB : {};
	return Object.hasOwn(how, event.kind) ? how[event.kind](facts, event) : facts;
}

/** @type {WeakMap<LabEvent[], Facts>} */
const known = new WeakMap();

/** The facts of a state. @param {State} state @returns {Facts} */
export function factsOf(state) {
	const before = known.get(state.events);
	if (before) {
		return before;
	}
	const facts = state.events.reduce(tell, nothing);
	known.set(state.events, facts);
	return facts;
}

/** @param {State} state @returns {number} how often A's lease was renewed under its present ticket */
function renewals(state) {
	return renewalSeqs(state).length;
}

/** @param {State} state @returns {number[]} the seqs of the renewals under A's present ticket */
function renewalSeqs(state) {
	const { a } = factsOf(state);
	return a ? state.timeline.ticks.filter((tick) => tick.lane === 'A' && tick.token === a.token).map((tick) => tick.seq) : [];
}

/** @param {LabEvent|null} to @param {LabEvent|null} from @returns {string} the time between two events */
function between(from, to) {
	return span((to?.atMs ?? 0) - (from?.atMs ?? 0));
}

/** @param {number} ms @returns {string} in milliseconds, or from one second on in seconds */
function span(ms) {
	return ms < 1000 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

/** @param {(facts: Facts) => unknown} is @returns {(state: State) => boolean} */
const fact = (is) => (state) => Boolean(is(factsOf(state)));

/** The things to do. Each step names those it needs. @type {Record<string, Action>} */
const act = {
	acquireA: {
		label: 'A acquires',
		text: 'Press “acquire” on worker A.',
		watch: 'The roll at the service: a ticket is torn off and goes into A’s hand. The bar fills, and begins to drain.',
		sights: ['service', 'lease'],
		target: { do: 'acquire', worker: 'A' }, done: fact((f) => f.a),
	},
	renewA: {
		label: 'A renews',
		text: 'Do nothing until A has renewed its lease.',
		watch: 'The bar: it drains with the time, and snaps back each time the service hears from A.',
		sights: [], // A’s card, where the visitor is, has that bar too
		done: (state) => renewals(state) > 0, aside: true,
	},
	writeA: {
		label: 'A writes',
		text: 'Press “write” on A.',
		watch: 'The ticket goes with the write: through the gate, and onto a line of the ledger.',
		sights: ['ledger', 'gate'],
		target: { do: 'write', worker: 'A' }, done: fact((f) => f.aWrote),
	},
	pauseA: {
		label: 'A is stopped',
		text: 'Press “pause” on A. A begins another write: it looks at its lease, finds time left, and is stopped before it writes.',
		watch: 'A’s own clock. It stands still, and so does A’s view of its lease; the service’s clock runs on.',
		sights: ['lease'],
		target: { do: 'pause', worker: 'A' }, done: fact((f) => f.stop),
	},
	waitForExpiry: {
		label: 'the lease runs out',
		text: 'Wait until the service’s bar is empty.',
		watch: 'The two bars. The service hears nothing from A, so its bar runs out. A’s own bar does not move.',
		sights: ['lease'],
		done: fact((f) => f.expired),
	},
	acquireB: {
		label: 'B acquires',
		text: 'Press “acquire” on worker B.',
		watch: 'The number on B’s ticket, and on the timeline the band below A’s: two at once.',
		sights: ['timeline'],
		target: { do: 'acquire', worker: 'B' }, done: fact((f) => f.b),
	},
	writeB: {
		label: 'B writes',
		text: 'Press “write” on B.',
		watch: 'The gate’s mark, the highest number it has seen, and B’s line in the ledger.',
		sights: ['timeline', 'ledger'],
		target: { do: 'write', worker: 'B' }, done: fact((f) => f.bWrote),
	},
};

/** @type {Step} */
const happy = {
	id: 'happy-path', title: 'One holder',
	actions: [act.acquireA, act.renewA, act.writeA],
	done: (state) => Boolean(factsOf(state).aWrote) && renewals(state) > 0,
	off: (state) => comparesAlready(state)
		|| (state.workers.A.stopped ? 'A is stopped, and this step is about a holder that runs.' : ''),
	proved: (state) => {
		const { a, aWrote } = factsOf(state);
		const seqs = renewalSeqs(state);
		const n = Math.max(1, seqs.filter((seq) => seq < (aWrote?.seq ?? 0)).length);
		const often = n === 1 ? 'once' : n === 2 ? 'twice' : `${n} times`;
		return `A got ticket ${a?.token} in ${span(a?.tookMs ?? 0)}, renewed its lease ${often}, and its write is line `
			+ `${aWrote?.line}: as long as the holder keeps renewing, a lease is a lock.`;
	},
};

/** @type {Step} */
const pause = {
	id: 'pause', title: 'The holder stands still',
	actions: [act.pauseA, act.waitForExpiry],
	done: fact((f) => f.expired),
	off: (state) => comparesAlready(state) || aHoldsNothing(state),
	proved: (state) => {
		const { a, look, stop, expired } = factsOf(state);
		return `A looked with ${span(look?.leftMs ?? 0)} of its lease left, and was stopped ${between(look, stop)} later; `
			+ `after ${between(stop, expired)} more of silence the service freed the lock, and A still thinks that it holds ${a?.token}.`;
	},
};

/** @type {Step} */
const next = {
	id: 'next-holder', title: 'The next holder',
	actions: [act.acquireB, act.writeB],
	done: fact((f) => f.bWrote),
	off: (state) => comparesAlready(state) || aNotStopped(state),
	proved: (state) => {
		const { a, b, bWrote } = factsOf(state);
		const higher = Number(b?.token) - Number(a?.token) === 1 ? `${a?.token} + 1` : `more than ${a?.token}`;
		return `B’s ticket is ${b?.token} = ${higher}, and its write is line ${bWrote?.line}; `
			+ 'two workers now think that they hold the lock, and the service did nothing wrong.';
	},
};

/** @type {Step} */
const zombie = {
	id: 'zombie', title: 'The sleeper wakes',
	actions: [{
		label: 'A wakes',
		text: 'Press “wake” on A. Its next instruction is the write.',
		watch: 'The ledger, and the colours on its edge.',
		sights: ['ledger', 'timeline'],
		target: { do: 'wake', worker: 'A' }, done: fact((f) => f.late),
	}],
	done: (state) => factsOf(state).late?.kind === 'wrote' && state.ledger.corrupted.length > 0,
	off: (state) => comparesAlready(state) || (factsOf(state).late ? '' : aNotStopped(state) || bHasNotWritten(state)),
	proved: (state) => {
		const { late, woken, b, lost } = factsOf(state);
		const knew = late && lost && lost.atMs - late.atMs >= 0.1 ? `; it found out ${between(late, lost)} later` : '';
		return `${between(woken, late)} after it woke, A wrote with ${late?.token} behind B’s ${b?.token}${knew}: the ledger is corrupted, `
			+ 'though nothing malfunctioned.';
	},
};

/** @type {Step} */
const fenced = {
	id: 'fenced', title: 'One comparison', fresh: true,
	actions: [
		{
			label: 'reset', text: 'Press “Reset”.', watch: 'Everything is as it was in the beginning: a new service, new workers, a new ledger.',
			sights: ['ledger'],
			target: 'reset', done: (state) => state.ledger.corrupted.length === 0,
		},
		{
			label: 'the gate compares',
			text: 'Switch “compare tokens” on, at the gate.',
			watch: 'The gate’s arm. From now on it asks each ticket one thing: are you lower than the highest that I have seen?',
			sights: ['gate'],
			target: 'compare', done: (state) => state.gate.compare || Boolean(factsOf(state).late),
		},
		act.acquireA, act.writeA, act.pauseA, act.waitForExpiry, act.acquireB, act.writeB,
		{
			label: 'A wakes',
			text: 'Press “wake” on A. Its next instruction is the same write as before.',
			watch: 'The gate’s arm, and what is written on it.',
			sights: ['gate', 'ledger'],
			target: { do: 'wake', worker: 'A' }, done: fact((f) => f.late),
		},
	],
	done: (state) => factsOf(state).late?.kind === 'refused',
	off: (state) => (factsOf(state).a && !state.gate.compare && !factsOf(state).late && state.ledger.corrupted.length === 0
		? 'The gate does not compare tokens: switch it on before A wakes.' : ''),
	proved: (state) => {
		const { late, b, woken } = factsOf(state);
		return `${late?.token} < ${late?.mark}: the gate refused A’s write ${between(woken, late)} after it woke, because it had seen `
			+ `${b?.token}, and the ledger is whole. The comparison is the only thing that was different.`;
	},
};

/** @param {State} state @returns {string} */
function comparesAlready(state) {
	return state.gate.compare ? 'The gate compares tokens now; this step shows what happens when it does not.' : '';
}

/** @param {State} state @returns {string} */
function aHoldsNothing(state) {
	return factsOf(state).a ? '' : 'A holds no ticket, and this step begins with A as the holder.';
}

/** @param {State} state @returns {string} */
function aNotStopped(state) {
	return factsOf(state).expired ? '' : 'A is not standing still before its write, with its lease run out, as it should be here.';
}

/** @param {State} state @returns {string} */
function bHasNotWritten(state) {
	return factsOf(state).bWrote ? '' : 'B has not written yet, and this step begins after that.';
}

/** @type {Scene} */
export const pausedHolder = {
	name: 'paused-holder',
	title: 'Two holders, one ledger',
	lead: 'A real lock service, two real workers, one ledger. You will break it yourself, and nothing will malfunction.',
	settings: { ttlMs: 4000, compare: false },
	steps: [happy, pause, next, zombie, fenced],
	closing: {
		title: 'At no point could A have known',
		text: (state) => {
			const { look, stop } = factsOf(state);
			return [
				`A did look: ${between(look, stop)} before it was stopped, it had ${span(look?.leftMs ?? 0)} left, as marked on its lane. `
				+ 'However often a program looks, it can be stopped right after the last look.',
				'So let the gate judge, which has seen every ticket: send the token along with each write, and refuse one that is lower '
				+ 'than the highest seen. In your own database that is one column and one comparison, in the transaction that writes.',
			];
		},
		moment: (state) => factsOf(state).look?.seq ?? null,
	},
};
