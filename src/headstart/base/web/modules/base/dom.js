// Elements, values that can be watched, and the page's data: all that the pages need in place of a framework.

/**
 * An HTML element.
 * @param {string} tag its name, with classes and an id as in CSS: "p", "span.tok.accepted", "div#text".
 * @param {object} [attributes] names and values; false, null and undefined leave one out, true sets it empty.
 *   `on` holds handlers by event ({click: f}), `style` an object of CSS properties, `data` an object of data attributes.
 * @param {...any} children nodes, texts, numbers, or lists of these; null, undefined and false are left out.
 */
export function h(tag, attributes, ...children) {
  return build((name) => document.createElement(name), tag, attributes, children);
}

/** An SVG element; the same arguments as `h`. */
export function svg(tag, attributes, ...children) {
  return build((name) => document.createElementNS("http://www.w3.org/2000/svg", name), tag, attributes, children);
}

/** A MathML element; the same arguments as `h`. */
export function math(tag, attributes, ...children) {
  return build((name) => document.createElementNS("http://www.w3.org/1998/Math/MathML", name), tag, attributes, children);
}

function build(create, tag, attributes, children) {
  const [, name, rest] = /^([\w-]+)(.*)$/.exec(tag);
  const element = create(name);
  for (const part of rest.match(/[.#][\w-]+/g) ?? []) {
    if (part[0] === "#") element.id = part.slice(1);
    else element.classList.add(part.slice(1));
  }
  if (isChild(attributes)) children = [attributes, ...children];
  else if (attributes) for (const [key, value] of Object.entries(attributes)) set(element, key, value);
  append(element, children);
  return element;
}

const isChild = (value) => typeof value !== "object" || value instanceof Node || Array.isArray(value);

function set(element, key, value) {
  if (key === "on") for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
  else if (key === "style" && typeof value === "object") {
    for (const [property, each] of Object.entries(value)) element.style.setProperty(property, each);
  } else if (key === "data") Object.assign(element.dataset, value);
  else if (key === "class") element.classList.add(...String(value).split(" ").filter(Boolean));
  else if (key === "value" && "value" in element) element.value = value;
  else if (value === true) element.setAttribute(key, "");
  else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
}

/** Put children into an element; what `h` leaves out is left out. Returns the element. */
export function append(element, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

/** Put children in place of what an element holds. Returns the element. */
export function fill(element, ...children) {
  element.replaceChildren();
  return append(element, ...children);
}

const SHORT = /((?<!\p{L})[αρcKTnpq] [=+−<>] (?:[−[]?[\d.]*\d%?|[αpq]|$)|1 \/ \(1 − α\)(?: = $)?)/u;

/** The same children of a sentence, or of elements that hold some; no line ends within "K = 5", "K + 1" and the like. */
export const unbroken = (...children) => children.flat(Infinity).map((child) => {
  if (child instanceof Element && !child.matches("pre, code, svg, math, .unbroken")) {
    for (const part of [...child.childNodes]) {
      if (part.nodeType !== Node.TEXT_NODE) unbroken(part);
      else if (SHORT.test(part.data)) part.replaceWith(...unbroken(part.data));
    }
  }
  return typeof child === "string" ? child.split(SHORT).map((part, i) => (i % 2 ? h("span.unbroken", part) : part)) : child;
}).flat();

/** A value that can be watched: read and write `.value`. */
export function signal(value) {
  const watchers = new Set();
  return {
    get value() {
      return value;
    },
    set value(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const watcher of [...watchers]) watcher();
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
  };
}

/** Run `action` with the values of signals now, and after every change of one. Returns a function that ends it. */
export function watch(signals, action) {
  const run = () => action(...signals.map((each) => each.value));
  const ends = signals.map((each) => each.watch(run));
  run();
  return () => ends.forEach((end) => end());
}

/** A signal that follows others: computed(() => a.value * 2, [a]). */
export function computed(compute, signals) {
  const result = signal(compute());
  for (const each of signals) each.watch(() => (result.value = compute()));
  return result;
}

/** The datum of this name that the page was built with; undefined where there is none. */
export function data(name) {
  const holder = document.getElementById(`data-${name}`);
  return holder ? JSON.parse(holder.textContent) : undefined;
}

/** Whether the reader wants no motion. */
export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
