// The frame of every figure: a label, a picture, steps by keyboard, a caption, and the table of its numbers.

import { announce } from "hs/base/announce";
import { append, fill, h, signal, unbroken } from "hs/base/dom";

/**
 * A figure.
 * @param {object} options
 * @param {string} options.label what it shows, in words, for those who cannot see it; also its heading if `title` is true.
 * @param {boolean} [options.title] whether the label is above the picture.
 * @param {Node|Node[]} options.body the picture: SVG that is aria-hidden, or elements that explain themselves.
 * @param {Node|Node[]} [options.controls] sliders and buttons under the picture.
 * @param {string|Node|Node[]} [options.caption] a sentence or two under it.
 * @param {() => {columns: string[], rows: any[][], caption?: string}} [options.table] the numbers behind the picture.
 * @param {object} [options.steps] for a figure that is walked through: {count, show(i), words(i), place(i), first}; `show` draws
 *   step i, `words` says it, `place` is where it is (default "3 of 12"), `first` is the step that is shown at first (default 0): the one that tells most. The arrow keys, Home, End and the space bar step while the figure has the focus.
 * @returns {{element: HTMLElement, update: () => void, step: {value: number}|null, go: (i: number) => void}}
 *   `update` must be called when the numbers change; `go` moves to a step, and says it unless it is to be quiet; `step` can be watched.
 */
export function figure({ label, title = false, body, controls, caption, table, steps }) {
  const element = h("div.figure", { role: "group", "aria-label": label, tabindex: steps ? "0" : undefined });
  if (title) element.append(h("p.figure-title", { "aria-hidden": "true" }, label));
  element.append(append(h("div.figure-body"), body));
  const numbers = table ? numbersOf(table) : null;
  const stepper = steps ? stepperOf(steps, element, () => numbers?.refresh()) : null;
  if (stepper) element.append(stepper.element);
  if (controls) element.append(append(h("div.figure-controls"), controls));
  if (caption) element.append(append(h("p.figure-caption"), unbroken(caption)));
  if (numbers) element.append(numbers.element);
  return {
    element,
    update: () => numbers?.refresh(),
    step: stepper?.at ?? null,
    go: stepper ? stepper.go : () => {},
  };
}

function numbersOf(table) {
  const holder = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "The numbers of this figure" });
  const element = h("details.numbers", {}, h("summary", "The numbers"), holder);
  const refresh = () => {
    if (element.open) fill(holder, tableOf(table()));
  };
  element.addEventListener("toggle", refresh);
  return { element, refresh };
}

/** A table element from columns and rows; numbers stand on the right. */
export function tableOf({ columns, rows, caption }) {
  const numeric = columns.map((_, i) => rows.length > 0 && rows.every((row) => /^[−+<>]?[\d.,\u202f]*\d%?x?×?$|^–$/.test(String(row[i]))));
  const cell = (tag, value, i, more = {}) => append(h(numeric[i] ? `${tag}.number` : tag, more), value);
  return h(
    "table",
    {},
    caption && h("caption", caption),
    h("thead", {}, h("tr", {}, columns.map((name, i) => cell("th", name, i, { scope: "col" })))),
    h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, i) => cell("td", value, i))))),
  );
}

function stepperOf(steps, owner, after) {
  const at = signal(steps.first ?? 0);
  const count = () => (typeof steps.count === "function" ? steps.count() : steps.count);
  const place = h("output.stepper-place");
  const button = (words, sign, by) =>
    h("button.quiet", { type: "button", "aria-label": words, on: { click: () => go(at.value + by) } }, sign);
  const [back, on] = [button("Step back", "←", -1), button("Step on", "→", 1)];
  const show = () => {
    steps.show(at.value);
    place.textContent = steps.place ? steps.place(at.value) : `${at.value + 1} of ${count()}`;
    back.disabled = at.value === 0;
    on.disabled = at.value >= count() - 1;
    after();
  };
  const go = (to, { quiet = false } = {}) => {
    const next = Math.max(0, Math.min(count() - 1, to));
    const moved = next !== at.value;
    at.value = next;
    show();
    if (moved && steps.words && !quiet) announce(steps.words(next));
  };
  const keys = { ArrowRight: 1, " ": 1, ArrowLeft: -1, Home: -Infinity, End: Infinity };
  owner.addEventListener("keydown", (event) => {
    if (event.target !== owner || !(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    go(at.value + keys[event.key]);
  });
  const element = h("div.stepper", {}, back, place, on);
  queueMicrotask(show);
  return { element, at, go };
}
