// What the elements of the stage share to build and to change their parts.
// Text enters the page as text nodes only; markup is never made of strings.

/**
 * What the app gives to each element.
 * @typedef {object} Context
 * @property {() => number} now milliseconds of the world's clock
 * @property {(action: {do: string, worker?: string, on?: boolean, value?: string}) => unknown} act
 * @property {(seq: number | null) => void} select marks an event everywhere
 * @property {number | null} [selected]
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Makes an HTML element with attributes and children.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string | number | boolean>} [attrs] true: present; false: absent
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(name, attrs = {}, ...children) {
  const el = document.createElement(name);
  for (const [key, value] of Object.entries(attrs)) put(el, key, value);
  el.append(...children);
  return el;
}

/**
 * Makes an SVG element with attributes and children.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} name
 * @param {Record<string, string | number | boolean>} [attrs]
 * @param {...(Node | string)} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function s(name, attrs = {}, ...children) {
  const el = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attrs)) put(el, key, value);
  el.append(...children);
  return /** @type {SVGElementTagNameMap[K]} */ (el);
}

/**
 * Sets, or with null or false removes, an attribute, if that changes anything.
 * @param {Element} el
 * @param {string} name
 * @param {string | number | boolean | null | undefined} value
 */
export function put(el, name, value) {
  if (value === null || value === undefined || value === false) {
    if (el.hasAttribute(name)) el.removeAttribute(name);
    return;
  }
  const text = value === true ? '' : String(value);
  if (el.getAttribute(name) !== text) el.setAttribute(name, text);
}

/**
 * Sets an element's text, if that changes anything.
 * @param {Element} el
 * @param {string} text
 */
export function say(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

/**
 * Milliseconds as seconds with one digit, as bars and clocks show them.
 * @param {number} ms
 */
export function seconds(ms) {
  return (Math.max(0, ms) / 1000).toFixed(1);
}

/**
 * Milliseconds as seconds with three digits, as the ledger and the events show them.
 * @param {number} ms
 */
export function instant(ms) {
  return (Math.max(0, ms) / 1000).toFixed(3);
}

const stillness = matchMedia('(prefers-reduced-motion: reduce)');

/** Whether the visitor asked for no travel. */
export function still() {
  return stillness.matches;
}

/**
 * Whether the event that is marked everywhere is another one than was shown last.
 * @param {Context | null} ctx
 * @returns {number | null}
 */
export function selectedOf(ctx) {
  return ctx?.selected ?? null;
}
