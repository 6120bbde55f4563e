// @ts-check
/**
 * The shapes of what the page knows. Nothing but types: model.js makes such states, the elements draw them.
 * Times are milliseconds of the world's clock, which starts at zero with each round; "Left" is a time still to go.
 */

/** @typedef {'acquire'|'write'|'pause'|'wake'|'release'|'kill'|'start'} Do */
/** @typedef {'A'|'B'} Name */
/** @typedef {'A'|'B'|'service'|'gate'} Lane */
/** @typedef {'accepted'|'refused'} Verdict */

/** @typedef {object} LabEvent one entry of the journal, as the lab tells it; which fields it has depends on its kind
 * @property {number} [seq] absent in the page's own events
 * @property {number} atMs
 * @property {string} kind
 * @property {string} [who]
 * @property {string} [worker]
 * @property {number} [round]
 * @property {number} [ttlMs]
 * @property {boolean} [compare]
 * @property {boolean} [signals]
 * @property {{A:string,B:string}} [values]
 * @property {number} [mark]
 * @property {number} [lastToken]
 * @property {EarlierLine[]} [earlier]
 * @property {number[]} [lines] or the number of lines, in `round`
 * @property {string} [lock]
 * @property {string} [service]
 * @property {number} [pid]
 * @property {string} [value]
 * @property {boolean} [on]
 * @property {number} [token]
 * @property {number} [tookMs]
 * @property {number} [leftMs]
 * @property {number} [ttlLeftMs]
 * @property {boolean} [poised]
 * @property {number} [pausedMs]
 * @property {number} [line]
 * @property {number} [basis]
 * @property {string} [text]
 * @property {string[]} [texts]
 * @property {string} [cause]
 * @property {{worker:string,token:number}|null} [holder] of `service-read`
 * @property {string[]} [queue] of `service-read`
 * @property {boolean} [ok] of `service-read`
 */
/** @typedef {{line:number, worker:string, token:number, value:string}} EarlierLine */

/** @typedef {object} Worker
 * @property {Name} name
 * @property {number} pid
 * @property {string} value the job: what it will write
 * @property {'idle'|'waiting'|'holds'|'lost'|'dead'} status by its own lights; unchanged while it is stopped
 * @property {boolean} stopped it stands still (SIGSTOP)
 * @property {boolean} poised it stands still between its look at the lease and its write
 * @property {number|null} token the ticket that it thinks it holds
 * @property {number|null} leftAt when its own view of its lease ends
 * @property {number|null} frozenAt when it was stopped; its own clock stands at this moment
 * @property {number|null} lookedAt when it last looked at its lease before a write
 * @property {number|null} lookedLeft how many ms that look showed
 * @property {number|null} lookedSeq
 * @property {number|null} lostToken the ticket of the lease that it knows it lost
 * @property {string} lostText its watchdog's words, or why the process ended
 * @property {Record<Do, true|string>} can true, or why not
 */

/** @typedef {object} Service
 * @property {{worker:string, token:number}|null} holder
 * @property {string[]} queue workers that wait, first come first
 * @property {number|null} leftAt when the holder's lease ends in the service's view, if nothing is heard of it before
 * @property {number|null} heardAt when it last heard of the holder
 * @property {number} lastToken the last ticket torn from the roll
 * @property {boolean} fresh whether the public API answered the last time it was asked
 * @property {number} asOf time of what is known of holder and queue
 */

/** @typedef {object} Gate
 * @property {boolean} compare
 * @property {number} mark highest token seen
 * @property {{seq:number, who:string, token:number, verdict:Verdict, mark:number}|null} last the last write that came to it
 */

/** @typedef {object} Row
 * @property {number} seq
 * @property {number} atMs
 * @property {number|null} line null: refused, so it is not in the ledger
 * @property {string} worker
 * @property {number} token
 * @property {string} value
 * @property {Verdict} verdict
 * @property {boolean} bad this line broke the ledger
 * @property {string} text the gate's words on a refused write
 * @property {number} mark the gate's mark at that moment
 * @property {boolean} compare whether the gate compared
 */
/** @typedef {{earlier:EarlierLine[], lines:number, rows:Row[], corrupted:string[]}} Ledger */

/** @typedef {{worker:string, token:number, from:number, to:number|null, seq:number}} Band */
/** @typedef {Band & {cause:string}} ServiceBand */
/** @typedef {{worker:string, from:number, to:number|null, poised:boolean, seq:number}} Stop */
/** @typedef {{lane:Lane, at:number, seq:number, leftMs:number, token:number}} Tick */
/** @typedef {{seq:number, at:number, worker:string, token:number, verdict:Verdict}} Drop */
/** @typedef {{lane:Lane, at:number, seq:number, kind:string, text:string}} Mark kind: looked, last-look (the look just
 *   before it was stopped), queued, gave-up, lost, killed, started, ended, compare-on, compare-off, mark (the gate's mark
 *   rose, text is the number), corrupted */
/** @typedef {{from:number, to:number|null, tokens:number[]}} Overlap */
/** @typedef {object} Timeline
 * @property {Band[]} bands "thinks it holds", by worker
 * @property {ServiceBand[]} serviceBands who holds in the service's view
 * @property {Stop[]} stops
 * @property {Tick[]} ticks renewals: on a worker's lane as it counts them, on the service's as it heard them
 * @property {Drop[]} drops writes
 * @property {Mark[]} marks
 * @property {Overlap[]} overlaps times in which both think that they hold
 */

/** @typedef {object} State
 * @property {number} round 0: no round has been heard of yet
 * @property {number} ttlMs
 * @property {boolean} signals real processes and signals, or workers inside the lab's process
 * @property {string} lock
 * @property {string} serviceAddress
 * @property {boolean} live actions can be taken
 * @property {string} why why not
 * @property {number} seq of the last event
 * @property {number} atMs of the last event
 * @property {{A:Worker, B:Worker}} workers
 * @property {Service} service
 * @property {Gate} gate
 * @property {Ledger} ledger
 * @property {Timeline} timeline
 * @property {LabEvent[]} events this round's, without pulses
 */

export {};
