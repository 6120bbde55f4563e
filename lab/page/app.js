// @ts-check
/** Ties the page together: the world's events become the state, the state is drawn, buttons become actions. */

import { Clock } from './clock.js';
import './elements/gate.js';
import './elements/guide.js';
import './elements/lease.js';
import './elements/ledger.js';
import './elements/service.js';
import './elements/ticket.js';
import './elements/timeline.js';
import './elements/worker.js';
import { put, say } from './elements/dom.js';
import { buttonOf } from './elements/guide.js';
import { api, Feed } from './feed.js';
import { format, parse } from './link.js';
import { can, dos, initial, isName, reduce } from './model.js';
import { sceneOf, scenes } from './scenes/index.js';
import { ServiceClient } from './service.js';
import { listen, part, showDownload, showTheme, showTTL } from './tools.js';
import { Tour } from './tour.js';
import { Crier, imitation, sentence } from './words.js';

/** @typedef {import('./types.js').LabEvent} LabEvent */
/** @typedef {import('./types.js').Do} Do */
/** @typedef {import('./feed.js').Connection} Connection */
/** @typedef {{do: string, worker?: string, on?: boolean, value?: string, ttlMs?: number, compare?: boolean,
 *   values?: {A?: string, B?: string}}} Act */
/** @typedef {HTMLElement & {ctx: unknown, render: (state: import('./types.js').State) => void, frame: (now: number) => void}} Piece */

const noticeMs = 8000;
const hiddenMs = 250;

const sceneNames = scenes.map((one) => one.name);
let { link, problems } = parse(location.hash, sceneNames);
const scene = sceneOf(link.scene);
const clock = new Clock(() => performance.now());
let state = initial();
/** @type {Connection} */
let connection = 'starting';
/** Said once the next world is there. */
let news = '';

const pieces = /** @type {Piece[]} */ ([...document.querySelectorAll('[data-hf]')]);
const crier = new Crier((text) => say(part('said', HTMLParagraphElement), text));

const tour = new Tour(scene, {
	state: () => state,
	press: (target) => {
		const button = buttonOf(target);
		if (!button) {
			return 'the button is not there';
		}
		button.click();
		return '';
	},
	act: (target) => act(target === 'compare' ? { do: 'compare', on: true } : target === 'reset' ? { do: 'reset' } : target),
	reset: (settings) => act({ do: 'reset', ...settings }),
	sleep: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
	changed: () => {
		announce();
		draw();
	},
});

const ctx = {
	now: () => clock.now(),
	act,
	/** @type {number|null} */
	selected: null,
	/** @param {number|null} seq */
	select(seq) {
		if (ctx.selected !== seq) {
			ctx.selected = seq;
			draw();
		}
	},
	tour,
	notice,
};

const feed = new Feed({
	event: take,
	clock: (atMs) => clock.hear(atMs),
	connection: connected,
	world: entered,
	settings: () => (state.round === 0
		? { ttlMs: link.ttlMs, compare: link.compare, ...(link.a || link.b ? { values: given(link.a, link.b) } : {}) }
		: { ttlMs: state.ttlMs, compare: state.gate.compare, values: given(state.workers.A.value, state.workers.B.value) }),
});

const service = new ServiceClient({
	now: () => clock.now(),
	round: () => ({ round: state.round, lock: state.lock }),
	read: (event) => become(reduce(state, event)),
});

/** @param {string} a @param {string} b */
function given(a, b) {
	return { ...(a ? { A: a } : {}), ...(b ? { B: b } : {}) };
}

/**
 * Does something in the world, if it can be done now; if not, the visitor is told why.
 * @param {Act} action @returns {Promise<string>} '' or why not
 */
async function act(action) {
	const why = impossible(action);
	const { turn } = tour.player;
	if (why) {
		return refuse(why, turn);
	}
	const answer = action.do === 'reset' ? await reset(action) : await feed.act({ ...action });
	return answer.ok ? '' : refuse(answer.text, turn);
}

/** @type {Promise<unknown>} */
let resetting = Promise.resolve();
/** The reset to which no other one has been asked for since, until it is done. @type {ReturnType<Feed['act']>|null} */
let lastReset = null;

/**
 * One reset after the other: the lab refuses a second one meanwhile. Who presses the button again before it is done
 * means the same one.
 * @param {Act} action
 */
function reset(action) {
	if (lastReset && Object.keys(action).length === 1) {
		return lastReset;
	}
	const mine = resetting.then(async () => {
		// The service goes away with the round: no line to it is left to break.
		service.detach();
		const answer = await feed.act({ ...action });
		if (!answer.ok) {
			retry();
		}
		return answer;
	}).finally(() => {
		if (lastReset === mine) {
			lastReset = null;
		}
	});
	resetting = lastReset = mine;
	return mine;
}

/** @param {Act} action @returns {string} */
function impossible(action) {
	if (!state.live) {
		return state.why || 'the lab cannot be reached';
	}
	if (isName(action.worker) && dos.includes(/** @type {Do} */ (action.do))) {
		const may = can(state, action.worker, /** @type {Do} */ (action.do));
		return may === true ? '' : may;
	}
	return '';
}

/** @param {string} why @param {number} turn of the player, when it was asked for */
function refuse(why, turn) {
	notice(`Not now: ${why}.`);
	if (turn === tour.player.turn) {
		tour.player.stop(`It stopped playing: ${why}.`);
	}
	return why;
}

let noticed = 0;

/** Tells the visitor something that will soon be of no interest. @param {string} text */
function notice(text) {
	const place = part('notice', HTMLParagraphElement);
	say(place, text);
	put(place, 'hidden', null);
	crier.tell(text);
	clearTimeout(noticed);
	noticed = setTimeout(() => put(place, 'hidden', true), noticeMs);
}

/** @param {import('./types.js').State} next */
function become(next) {
	if (next === state) {
		return;
	}
	const earlier = state;
	state = next;
	if (earlier.signals !== next.signals) {
		lead();
	}
	tour.follow(earlier, next);
	announce();
	draw();
}

/** What the page is about, and that something is imitated where it is. */
function lead() {
	say(part('scene-lead', HTMLParagraphElement), state.signals ? scene.lead : imitation);
}

let announced = '';

/** Reads out what the guide says, when it says something else. */
function announce() {
	const { progress, player, scene: { steps } } = tour;
	const { step, action } = tour.place();
	const now = `${progress.step} ${progress.finished || action?.label}`;
	if (now === announced || state.round === 0 || player.arranging || progress.free) {
		return;
	}
	const [before] = announced.split(' ');
	const number = before === String(progress.step) ? '' : `Step ${progress.step} of ${steps.length}: ${step.title}. `;
	announced = now;
	crier.tell(number + (progress.finished ? `Step ${progress.step} is done. ${progress.proved}` : player.playing ? '' : action?.text ?? ''));
}

/** @param {LabEvent} event */
function take(event) {
	// What a page finds when it comes is not news, nor that a round's workers start.
	const news = performance.now() - enteredAt > 1500
		&& !(event.kind === 'started' && isName(event.who) && state.workers[event.who].status !== 'dead');
	if (event.kind === 'round') {
		clock.restart(event.atMs);
		ctx.selected = null;
		retry();
	} else {
		clock.hear(event.atMs);
	}
	if (news) {
		crier.tell(sentence(event));
	}
	become(reduce(state, event));
	if (event.kind === 'error') {
		notice(event.text ?? 'something went wrong in the lab');
	}
}

let enteredAt = 0;

/** The page has another world. @param {string} world */
function entered(world) {
	enteredAt = performance.now();
	const fresh = initial();
	// Until its first event, what is known of the old one is nothing but the settings of the new one.
	state = { ...fresh, ttlMs: state.ttlMs };
	ctx.selected = null;
	tour.enter(world);
	if (news) {
		notice(news);
		news = '';
	}
	draw();
}

/** Watches the service anew: it is another one with each round and each connection. */
function retry() {
	if (connection === 'live' || connection === 'polling') {
		service.attach(feed.world, feed.streaming);
	}
}

/** @param {Connection} how @param {string} text */
function connected(how, text) {
	const before = connection;
	connection = how;
	put(document.body, 'data-connection', how);
	const live = how === 'live' || how === 'polling';
	showDownload(live ? `${api}/worlds/${feed.world}/log` : '');
	if (live) {
		retry();
	} else {
		service.detach();
		clock.stop();
	}
	const why = { starting: 'the world is being set up', lost: 'the lab does not answer', ended: 'this world has ended', live: '', polling: '' }[how];
	become(reduce(state, { kind: 'live', atMs: 0, on: live, text: why }));
	showBanner(how, text);
	if (how === 'starting' && before === 'lost' && state.round !== 0) {
		news = 'The lab is back, but it does not know this page’s world any more: its workers died with the server. This is a new world with the same settings.';
	} else if (live && before === 'lost' && state.round !== 0) {
		notice('The lab answers again, and this world went on.');
	} else if (text) {
		crier.tell(text);
	}
}

/** @param {Connection} how @param {string} text */
function showBanner(how, text) {
	put(part('banner', HTMLDivElement), 'hidden', text === '');
	say(part('banner-text', HTMLParagraphElement), text);
	const button = part('banner-button', HTMLButtonElement);
	put(button, 'hidden', how !== 'ended');
	say(button, state.round === 0 ? 'Try again' : 'Begin again');
}

let drawing = false;

/** Draws soon; several changes at once are drawn once. */
function draw() {
	if (drawing) {
		return;
	}
	drawing = true;
	const now = () => {
		drawing = false;
		for (const piece of pieces) {
			piece.render(state);
		}
		showTTL(state.ttlMs);
		remember();
	};
	if (document.hidden) {
		setTimeout(now, hiddenMs);
	} else {
		requestAnimationFrame(now);
	}
}

/** The link as things are now. @returns {import('./link.js').Link} */
function currentLink() {
	return state.round === 0 ? { ...link, step: 0 } : {
		scene: scene.name, ttlMs: state.ttlMs, compare: state.gate.compare, a: state.workers.A.value, b: state.workers.B.value,
		speed: tour.player.speed, theme: link.theme, step: 0,
	};
}

let remembered = '';

/** Keeps the address up to date, so that a copy of it is a link. */
function remember() {
	const hash = format(currentLink());
	if (state.round !== 0 && hash !== remembered) {
		remembered = hash;
		history.replaceState(null, '', hash);
	}
}

/** The visitor put another link into this tab. */
function relinked() {
	if (location.hash === remembered) {
		return;
	}
	const told = parse(location.hash, sceneNames);
	link = told.link;
	complain(told.problems);
	if (sceneOf(link.scene) !== scene) {
		location.reload();
		return;
	}
	showTheme(link.theme);
	tour.player.speed = link.speed;
	const { ttlMs, compare } = link;
	void act({ do: 'reset', ttlMs, compare, values: given(link.a, link.b) }).then(() => (link.step ? tour.goto(link.step) : undefined));
}

/** @param {string[]} found */
function complain(found) {
	if (found.length > 0) {
		notice(found.join('; '));
	}
}

/** A click of the visitor's own on the stage ends "play it for me". @param {MouseEvent} event */
function takenOver(event) {
	const { target } = event;
	if (event.isTrusted && target instanceof Element && target.closest('[data-do], #compare, #reset')) {
		tour.player.stop('You took over. “Play it for me” goes on from here.');
	}
}

/** Bars and timeline follow the clock. */
function animate() {
	const still = matchMedia('(prefers-reduced-motion: reduce)');
	let last = 0;
	/** @param {number} at */
	const frame = (at) => {
		if (!still.matches || at - last >= 250) {
			last = at;
			const now = clock.now();
			for (const piece of pieces) {
				piece.frame(now);
			}
		}
		requestAnimationFrame(frame);
	};
	requestAnimationFrame(frame);
}

async function start() {
	document.title = `${scene.title} – the Holdfast lab`;
	say(part('scene-title', HTMLHeadingElement), scene.title);
	lead();
	showTheme(link.theme);
	showTTL(link.ttlMs);
	tour.player.speed = link.speed;
	for (const piece of pieces) {
		piece.ctx = ctx;
	}
	listen({
		link: currentLink,
		theme: (theme) => {
			link = { ...link, theme };
			showTheme(theme);
			draw();
		},
		ttl: (ttlMs) => act({ do: 'reset', ttlMs }),
		notice,
	});
	part('banner-button', HTMLButtonElement).addEventListener('click', () => void feed.begin());
	document.querySelector('hf-guide')?.addEventListener('speed', draw);
	document.addEventListener('click', takenOver, { capture: true });
	addEventListener('hashchange', relinked);
	addEventListener('pageshow', (event) => event.persisted && feed.wake());
	complain(problems);
	draw();
	animate();
	const { step } = link;
	await feed.start();
	if (step > 0) {
		await untilLive();
		await tour.goto(Math.min(step, scene.steps.length));
	}
}

/** @returns {Promise<void>} */
async function untilLive() {
	while (!state.live || state.round === 0) {
		await new Promise((resolve) => setTimeout(resolve, 50));
	}
}

void start();
