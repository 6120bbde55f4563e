// @ts-check
/**
 * The page's one truth: a pure function of the journal's events. Everything that is drawn is drawn from the State that
 * `reduce` returns; it changes nothing in place, so that an element may compare parts by identity to see what changed.
 *
 * Times are milliseconds of the world's clock, which starts at zero with each round.
 *
 * Besides the journal's events it takes two that the page itself makes and that have no seq: `service-read` (what the
 * lock service's public API answered, service.js) and `live` (whether actions can be taken now, feed.js).
 */

/** @typedef {import('./types.js').Do} Do */
/** @typedef {import('./types.js').Name} Name */
/** @typedef {import('./types.js').Lane} Lane */
/** @typedef {import('./types.js').Verdict} Verdict */
/** @typedef {import('./types.js').LabEvent} LabEvent */
/** @typedef {import('./types.js').EarlierLine} EarlierLine */
/** @typedef {import('./types.js').Worker} Worker */
/** @typedef {import('./types.js').Service} Service */
/** @typedef {import('./types.js').Gate} Gate */
/** @typedef {import('./types.js').Row} Row */
/** @typedef {import('./types.js').Ledger} Ledger */
/** @typedef {import('./types.js').Band} Band */
/** @typedef {import('./types.js').ServiceBand} ServiceBand */
/** @typedef {import('./types.js').Stop} Stop */
/** @typedef {import('./types.js').Tick} Tick */
/** @typedef {import('./types.js').Drop} Drop */
/** @typedef {import('./types.js').Mark} Mark */
/** @typedef {import('./types.js').Overlap} Overlap */
/** @typedef {import('./types.js').Timeline} Timeline */
/** @typedef {import('./types.js').State} State */

/** How many of each kind of thing are kept: hours of free play must not slow the page down. */
const keep = { events: 1000, ticks: 400, bands: 200, marks: 400, rows: 500 };

/** @type {Do[]} */
export const dos = ['acquire', 'write', 'pause', 'wake', 'release', 'kill', 'start'];

/** @type {Name[]} */
export const names = ['A', 'B'];

/** @param {unknown} who @returns {who is Name} */
export function isName(who) {
	return who === 'A' || who === 'B';
}

/** @param {Name} name @param {string} value @returns {Worker} */
function newWorker(name, value) {
	return {
		name, pid: 0, value, status: 'idle', stopped: false, poised: false, token: null, leftAt: null, frozenAt: null,
		lookedAt: null, lookedLeft: null, lookedSeq: null, lostToken: null, lostText: '',
		can: { acquire: '', write: '', pause: '', wake: '', release: '', kill: '', start: '' },
	};
}

/** What is known before anything is heard. @returns {State} */
export function initial() {
	return withCan({
		round: 0, ttlMs: 4000, signals: true, lock: 'invoices', serviceAddress: '', live: false,
		why: 'the world is being set up', seq: 0, atMs: 0,
		workers: { A: newWorker('A', ''), B: newWorker('B', '') },
		service: { holder: null, queue: [], leftAt: null, heardAt: null, lastToken: 0, fresh: false, asOf: 0 },
		gate: { compare: false, mark: 0, last: null },
		ledger: { earlier: [], lines: 0, rows: [], corrupted: [] },
		timeline: { bands: [], serviceBands: [], stops: [], ticks: [], drops: [], marks: [], overlaps: [] },
		events: [],
	});
}

/**
 * The state after one more event. An event that was already taken (by its seq) changes nothing, so a reconnected stream
 * may repeat itself; one of an unknown kind is kept in the list and otherwise ignored.
 * @param {State} state @param {LabEvent} event @returns {State}
 */
export function reduce(state, event) {
	if (event.kind === 'live') {
		return withCan({ ...state, live: event.on === true, why: event.on ? '' : event.text ?? '' });
	}
	if (event.kind === 'service-read') {
		return serviceRead(state, event);
	}
	const seq = event.seq ?? 0;
	if (event.kind === 'round') {
		return seq <= state.seq ? state : withCan(newRound(state, event));
	}
	if (state.round === 0 || seq <= state.seq) {
		return state;
	}
	let next = { ...state, seq, atMs: Math.max(state.atMs, event.atMs) };
	if (event.kind !== 'pulse' && event.kind !== 'heard') {
		next.events = tail([...state.events, event], keep.events);
	}
	const step = Object.hasOwn(steps, event.kind) ? steps[event.kind] : undefined;
	if (step) {
		next = step(next, event);
	}
	return withCan(next);
}

/** @template T @param {T[]} list @param {number} most @returns {T[]} */
function tail(list, most) {
	return list.length > most ? list.slice(list.length - most) : list;
}

/** @param {State} state @param {LabEvent} event @returns {State} */
function newRound(state, event) {
	const fresh = initial();
	const lastToken = event.lastToken ?? 0;
	return {
		...fresh,
		round: event.round ?? 1, ttlMs: event.ttlMs ?? fresh.ttlMs, signals: event.signals !== false,
		lock: event.lock ?? fresh.lock, serviceAddress: event.service ?? '', live: state.live, why: state.why,
		seq: event.seq ?? 0, atMs: event.atMs,
		workers: { A: newWorker('A', event.values?.A ?? ''), B: newWorker('B', event.values?.B ?? '') },
		service: { ...fresh.service, lastToken, asOf: event.atMs },
		gate: { compare: event.compare === true, mark: event.mark ?? 0, last: null },
		ledger: { ...fresh.ledger, earlier: event.earlier ?? [], lines: Number(event.lines ?? 0) },
		events: [event],
	};
}

/** @param {State} state @param {Name} name @param {Partial<Worker>} change @returns {State} */
function withWorker(state, name, change) {
	return { ...state, workers: { ...state.workers, [name]: { ...state.workers[name], ...change } } };
}

/** @param {State} state @param {Partial<Timeline>} change @returns {State} */
function withTimeline(state, change) {
	return { ...state, timeline: { ...state.timeline, ...change } };
}

/** @param {State} state @param {Lane} lane @param {LabEvent} event @param {string} kind @param {string} text */
function addMark(state, lane, event, kind, text) {
	const mark = { lane, at: event.atMs, seq: event.seq ?? 0, kind, text };
	return withTimeline(state, { marks: tail([...state.timeline.marks, mark], keep.marks) });
}

/** @param {State} state @param {LabEvent} event @param {number|undefined} mark @returns {State} */
function raiseMark(state, event, mark) {
	if (mark === undefined || mark <= state.gate.mark) {
		return state;
	}
	return addMark({ ...state, gate: { ...state.gate, mark } }, 'gate', event, 'mark', String(mark));
}

/**
 * Ends the open entries of a list of spans that `own` picks.
 * @template {{to:number|null}} T
 * @param {T[]} spans @param {number} at @param {(span:T)=>boolean} own @param {Partial<T>} [change] @returns {T[]}
 */
function close(spans, at, own, change) {
	return spans.some((span) => span.to === null && own(span))
		? spans.map((span) => (span.to === null && own(span) ? { ...span, to: at, ...change } : span))
		: spans;
}

/** @param {State} state @param {Band[]} bands @returns {State} */
function withBands(state, bands) {
	return withTimeline(state, { bands: tail(bands, keep.bands), overlaps: overlapsOf(tail(bands, keep.bands)) });
}

/** The times in which two different workers both think that they hold. @param {Band[]} bands @returns {Overlap[]} */
export function overlapsOf(bands) {
	/** @type {Overlap[]} */
	const found = [];
	bands.forEach((one, i) => {
		for (const other of bands.slice(i + 1)) {
			const from = Math.max(one.from, other.from);
			const to = Math.min(one.to ?? Infinity, other.to ?? Infinity);
			if (one.worker !== other.worker && from < to) {
				found.push({ from, to: to === Infinity ? null : to, tokens: [one.token, other.token].sort((a, b) => a - b) });
			}
		}
	});
	return found.sort((a, b) => a.from - b.from);
}

/** The worker holds no longer, by its own lights. @param {State} state @param {Name} name @param {LabEvent} event */
function letGo(state, name, event) {
	return withBands(state, close(state.timeline.bands, event.atMs, (band) => band.worker === name));
}

/** The worker's process is gone. @param {State} state @param {Name} name @param {LabEvent} event @param {string} text */
function gone(state, name, event, text) {
	let next = letGo(state, name, event);
	next = withTimeline(next, { stops: close(next.timeline.stops, event.atMs, (stop) => stop.worker === name) });
	return withWorker(next, name, {
		status: 'dead', stopped: false, poised: false, token: null, leftAt: null, frozenAt: null, lostText: text,
	});
}

/** @param {(state:State, name:Name, event:LabEvent)=>State} step @returns {(state:State, event:LabEvent)=>State} */
function ofWorker(step) {
	return (state, event) => (isName(event.who) ? step(state, event.who, event) : state);
}

/** What each kind of event changes. @type {Record<string, (state:State, event:LabEvent)=>State>} */
const steps = {
	started: ofWorker((state, name, event) => {
		const began = withWorker(state, name, { ...newWorker(name, state.workers[name].value), pid: event.pid ?? 0 });
		return state.workers[name].status === 'dead' ? addMark(began, name, event, 'started', 'started') : began;
	}),
	value: ofWorker((state, name, event) => withWorker(state, name, { value: event.value ?? '' })),
	compare: (state, event) => addMark(
		raiseMark({ ...state, gate: { ...state.gate, compare: event.on === true } }, event, event.mark),
		'gate', event, event.on ? 'compare-on' : 'compare-off', event.on ? 'compares' : 'compares no longer'),
	queued: ofWorker((state, name, event) => addMark(
		withWorker(state, name, { status: 'waiting', lostText: '', lostToken: null }), name, event, 'queued', 'waits')),
	acquired: ofWorker((state, name, event) => {
		const token = event.token ?? 0;
		const band = { worker: name, token, from: event.atMs, to: null, seq: event.seq ?? 0 };
		const held = withWorker(state, name, {
			status: 'holds', token, leftAt: event.atMs + (event.leftMs ?? 0), lostText: '', lostToken: null,
			lookedAt: null, lookedLeft: null, lookedSeq: null,
		});
		return raiseMark(withBands(held, [...held.timeline.bands, band]), event, event.mark);
	}),
	pulse: ofWorker((state, name, event) => (event.token
		? tick(withWorker(state, name, { leftAt: event.atMs + (event.leftMs ?? 0) }), name, event, event.leftMs ?? 0)
		: state)),
	looked: ofWorker((state, name, event) => addMark(
		withWorker(state, name, { lookedAt: event.atMs, lookedLeft: event.leftMs ?? null, lookedSeq: event.seq ?? null }),
		name, event, 'looked', `looks: ${seconds(event.leftMs ?? 0)} left`)),
	paused: ofWorker(paused),
	woken: ofWorker((state, name, event) => withTimeline(
		withWorker(state, name, { stopped: false, poised: false, frozenAt: null }),
		{ stops: close(state.timeline.stops, event.atMs, (stop) => stop.worker === name) })),
	wrote: ofWorker((state, name, event) => write(state, name, event, 'accepted')),
	refused: ofWorker((state, name, event) => write(state, name, event, 'refused')),
	released: ofWorker((state, name, event) => letGo(
		withWorker(state, name, { status: 'idle', token: null, leftAt: null }), name, event)),
	'gave-up': ofWorker((state, name, event) => addMark(
		withWorker(state, name, { status: 'idle' }), name, event, 'gave-up', 'waits no longer')),
	lost: ofWorker((state, name, event) => addMark(letGo(
		withWorker(state, name, {
			status: 'lost', token: null, leftAt: null, lostToken: event.token ?? null, lostText: event.text ?? '',
		}), name, event), name, event, 'lost', `knows that it lost ${event.token ?? 'its lease'}`)),
	killed: ofWorker((state, name, event) => addMark(gone(state, name, event, 'killed'), name, event, 'killed', 'killed')),
	ended: ofWorker((state, name, event) => addMark(
		gone(state, name, event, event.text ?? 'ended by itself'), name, event, 'ended', 'ended by itself')),
	corrupted,
	'svc-queued': (state, event) => withService(state, event, {
		queue: [...state.service.queue.filter((name) => name !== event.worker), event.worker ?? ''],
	}),
	'svc-left': (state, event) => withService(state, event, {
		queue: state.service.queue.filter((name) => name !== event.worker),
	}),
	'svc-granted': granted,
	'svc-freed': (state, event) => withTimeline(
		withService(state, event, state.service.holder?.token === event.token
			? { holder: null, leftAt: null, heardAt: null } : {}),
		{
			serviceBands: close(state.timeline.serviceBands, event.atMs, (band) => band.token === event.token,
				{ cause: event.cause ?? '' }),
		}),
	heard: (state, event) => tick(withService(state, event, state.service.holder?.worker === event.worker
		? { leftAt: event.atMs + (event.ttlLeftMs ?? 0), heardAt: event.atMs } : {}),
	'service', event, event.ttlLeftMs ?? 0),
};

/** @param {State} state @param {Lane} lane @param {LabEvent} event @param {number} leftMs @returns {State} */
function tick(state, lane, event, leftMs) {
	const one = { lane, at: event.atMs, seq: event.seq ?? 0, leftMs, token: event.token ?? 0 };
	return withTimeline(state, { ticks: tail([...state.timeline.ticks, one], keep.ticks) });
}

/** @param {State} state @param {Name} name @param {LabEvent} event @returns {State} */
function paused(state, name, event) {
	const poised = event.poised === true;
	const looked = state.workers[name].lookedSeq;
	const stop = { worker: name, from: event.atMs, to: null, poised, seq: event.seq ?? 0 };
	const marks = poised ? state.timeline.marks.map((mark) => (
		mark.seq === looked && mark.kind === 'looked' ? { ...mark, kind: 'last-look' } : mark)) : state.timeline.marks;
	return withTimeline(withWorker(state, name, { stopped: true, poised, frozenAt: event.atMs }), {
		stops: tail([...state.timeline.stops, stop], keep.bands), marks,
	});
}

/** @param {State} state @param {Name} name @param {LabEvent} event @param {Verdict} verdict @returns {State} */
function write(state, name, event, verdict) {
	const seq = event.seq ?? 0;
	const token = event.token ?? 0;
	const mark = event.mark ?? state.gate.mark;
	/** @type {Row} */
	const row = {
		seq, atMs: event.atMs, line: verdict === 'accepted' ? event.line ?? null : null, worker: name, token,
		value: event.value ?? '', verdict, bad: false, text: event.text ?? '', mark,
		compare: event.compare ?? verdict === 'refused',
	};
	const raised = raiseMark(state, event, event.mark);
	const { ledger, timeline } = raised;
	return withTimeline({
		...raised,
		gate: { ...raised.gate, last: { seq, who: name, token, verdict, mark } },
		ledger: {
			...ledger, rows: tail([...ledger.rows, row], keep.rows), lines: Math.max(ledger.lines, row.line ?? 0),
		},
	}, { drops: tail([...timeline.drops, { seq, at: event.atMs, worker: name, token, verdict }], keep.rows) });
}

/** @param {State} state @param {LabEvent} event @returns {State} */
function corrupted(state, event) {
	const broken = new Set(Array.isArray(event.lines) ? event.lines : []);
	const rows = state.ledger.rows.map((row) => (row.line !== null && broken.has(row.line) ? { ...row, bad: true } : row));
	const ledger = { ...state.ledger, rows, corrupted: [...state.ledger.corrupted, ...(event.texts ?? [])].slice(-20) };
	return addMark({ ...state, ledger }, 'gate', event, 'corrupted', 'the ledger is corrupted');
}

/** @param {State} state @param {LabEvent} event @param {Partial<Service>} change @returns {State} */
function withService(state, event, change) {
	// What the public API answered later than this event happened is the newer truth.
	return event.atMs < state.service.asOf && state.service.fresh
		? state : { ...state, service: { ...state.service, ...change, asOf: event.atMs } };
}

/** @param {State} state @param {LabEvent} event @returns {State} */
function granted(state, event) {
	const token = event.token ?? 0;
	const worker = event.worker ?? '';
	const band = { worker, token, from: event.atMs, to: null, seq: event.seq ?? 0, cause: '' };
	const next = withService(state, event, {
		holder: { worker, token }, queue: state.service.queue.filter((name) => name !== worker),
		leftAt: state.service.holder?.token === token ? state.service.leftAt : event.atMs + state.ttlMs, heardAt: event.atMs,
	});
	const service = { ...next.service, lastToken: Math.max(next.service.lastToken, token) };
	return withTimeline({ ...next, service }, {
		serviceBands: tail([...state.timeline.serviceBands, band], keep.bands),
	});
}

/** What the public API answered. `atMs` is the moment before it was asked. @param {State} state @param {LabEvent} event */
function serviceRead(state, event) {
	if (event.round !== state.round) {
		return state;
	}
	if (event.ok === false) {
		return state.service.fresh ? { ...state, service: { ...state.service, fresh: false } } : state;
	}
	if (event.atMs < state.service.asOf) {
		return state.service.fresh ? state : { ...state, service: { ...state.service, fresh: true } };
	}
	const holder = event.holder ?? null;
	const same = holder?.token === state.service.holder?.token && holder?.worker === state.service.holder?.worker;
	const queue = event.queue ?? [];
	const service = {
		...state.service, fresh: true, asOf: event.atMs,
		holder: same ? state.service.holder : holder,
		queue: queue.join() === state.service.queue.join() ? state.service.queue : queue,
		leftAt: holder ? event.atMs + (event.ttlLeftMs ?? 0) : null,
		lastToken: Math.max(state.service.lastToken, holder?.token ?? 0),
	};
	return { ...state, service };
}

/** @param {number} ms @returns {string} */
export function seconds(ms) {
	return `${(ms / 1000).toFixed(1)} s`;
}

/** @param {State} state @returns {State} */
function withCan(state) {
	const { A, B } = state.workers;
	const a = sameOr(A, canAll(state, 'A'));
	const b = sameOr(B, canAll(state, 'B'));
	return a === A && b === B ? state : { ...state, workers: { A: a, B: b } };
}

/** @param {State} state @param {Name} name @returns {Record<Do, true|string>} */
function canAll(state, name) {
	return /** @type {Record<Do, true|string>} */ (Object.fromEntries(dos.map((one) => [one, can(state, name, one)])));
}

/** @param {Worker} worker @param {Record<Do, true|string>} now @returns {Worker} */
function sameOr(worker, now) {
	return dos.every((one) => worker.can[one] === now[one]) ? worker : { ...worker, can: now };
}

/**
 * Whether a worker's button does something now: true, or why not, in words for the visitor. The lab decides again.
 * @param {State} state @param {Name} name @param {Do} what @returns {true|string}
 */
export function can(state, name, what) {
	const { status, stopped, token } = state.workers[name];
	if (!state.live) {
		return state.why || 'the lab cannot be reached';
	}
	if (what === 'start') {
		return status === 'dead' || `${name} is running`;
	}
	if (status === 'dead') {
		return `${name} is dead: start it first`;
	}
	if (what === 'kill') {
		return true;
	}
	if (what === 'wake') {
		return stopped || `${name} is not stopped`;
	}
	if (stopped) {
		return what === 'pause' ? `${name} is stopped already` : `${name} is stopped: wake it first`;
	}
	switch (what) {
	case 'pause':
		return true;
	case 'acquire':
		return status === 'holds' ? `${name} holds ${token} already` : status !== 'waiting' || `${name} is waiting already`;
	case 'release':
		return status === 'holds' || status === 'waiting' || `${name} holds nothing`;
	default:
		return status === 'holds' || (status === 'lost' ? `${name} knows that it lost its lease: acquire again`
			: `${name} holds no ticket: acquire first`);
	}
}
