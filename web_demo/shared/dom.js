/**
 * @file Elements without markup: everything that comes from outside becomes text.
 */

/** @typedef {Node | string | number | null | undefined | false} Child */

/**
 * Make an element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [attributes] `onclick` and the like are listeners; `true` is an
 *   attribute without value; null, undefined and false are left out
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  decorate(made, attributes);
  made.append(...kept(children));
  return made;
}

/**
 * Make an SVG element.
 *
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, any>} [attributes]
 * @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  decorate(made, attributes);
  made.append(...kept(children));
  return made;
}

/**
 * The element with an id, which the page has.
 *
 * @template {typeof Element} Class
 * @param {string} id
 * @param {Class} kind
 * @returns {InstanceType<Class>}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`the page has no ${kind.name} #${id}`);
  return /** @type {InstanceType<Class>} */ (found);
}

/**
 * Change the text of an element, unless it is the same.
 *
 * @param {Element} target
 * @param {string} text
 */
export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

/**
 * Show a problem, or nothing.
 *
 * @param {HTMLElement} target
 * @param {import('./problems.js').Problem | null} problem
 * @param {...Child} actions buttons that may help
 */
export function showProblem(target, problem, ...actions) {
  target.hidden = !problem;
  if (!problem) {
    target.replaceChildren();
    return;
  }
  const detail =
    problem.detail &&
    element(
      'details',
      {},
      element('summary', {}, 'What the runtime said'),
      element('code', {}, problem.detail),
    );
  target.replaceChildren(
    element('p', { class: 'problem-what' }, problem.message),
    ...kept([problem.advice && element('p', {}, problem.advice), detail, ...actions]),
  );
}

/**
 * @param {Element} target
 * @param {Record<string, any>} attributes
 */
function decorate(target, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) target.addEventListener(name.slice(2), value);
    else target.setAttribute(name, value === true ? '' : String(value));
  }
}

/**
 * @param {Child[]} children
 * @returns {(Node | string)[]}
 */
function kept(children) {
  return children
    .filter((child) => child !== null && child !== undefined && child !== false && child !== '')
    .map((child) => (child instanceof Node ? child : String(child)));
}
