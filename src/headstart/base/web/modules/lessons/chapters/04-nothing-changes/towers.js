// Two towers for each word, one of the target's distribution and one of the draft's, which can be dragged. What both share is
// kept; what q has beyond is refused; what p has beyond is the residual.

import { announce } from "hs/base/announce";
import { append, fill, h, signal } from "hs/base/dom";
import { FRACTIONS, fractions } from "hs/algorithm/arithmetic";
import { leftOver, overlap, shared } from "hs/algorithm/distributions";
import { PARTS, partsOf, short, spoken, withValue } from "hs/lessons/chapters/04-nothing-changes/two-distributions";

const ROLES = [["p", "target"], ["q", "draft"]];

/**
 * The towers.
 *
 * @param {object} options
 * @param {string[]} options.words
 * @param {string[]} options.p @param {string[]} options.q the distributions to begin with, as texts
 * @param {(p: Fraction[], q: Fraction[]) => void} [options.onChange]
 * @returns {{element: HTMLElement, distributions: {value: {p: Fraction[], q: Fraction[]}}, set: (p, q) => void}}
 */
export function towers({ words, p, q, onChange = () => {} }) {
  const distributions = signal({ p: fractions(p), q: fractions(q) });
  const bars = ROLES.map(([distribution, role]) => words.map((word, i) => bar(distributions, distribution, role, word, i)));
  const share = h("div.towers-share", { "aria-hidden": "true" });
  const element = h(
    "div.towers",
    {},
    key(),
    h("div.towers-row", {}, words.map((word, i) => h("div.tower-pair", {}, h("div.tower-bars", {}, bars.map((each) => each[i].element)), h("span.tower-word", word)))),
    share,
  );
  const draw = () => {
    const { p: now, q: draft } = distributions.value;
    const both = shared(now, draft);
    bars.forEach((each, which) => each.forEach((one, i) => one.draw((which ? draft : now)[i], both[i])));
    fill(share, shareOf(overlap(now, draft)));
    onChange(now, draft);
  };
  distributions.watch(draw);
  draw();
  return { element, distributions, set: (target, drafted) => (distributions.value = { p: fractions(target), q: fractions(drafted) }) };
}

/** One tower: an upright slider. */
function bar(distributions, distribution, role, word, index) {
  const kept = h("div.tower-kept");
  const beyond = h(`div.tower-beyond.of-${distribution}`);
  const label = h("span.tower-value");
  const well = h("div.tower-well", {}, label, beyond, kept);
  const element = h(
    `div.tower.of-${distribution}`,
    { role: "slider", tabindex: "0", "aria-orientation": "vertical", "aria-label": `${distribution}, the ${role}’s chance of ${word}`,
      "aria-valuemin": "0", "aria-valuemax": String(PARTS) },
    well,
    h("span.tower-name", { "aria-hidden": "true" }, distribution),
  );
  const put = (parts) => {
    const now = distributions.value;
    const bounded = Math.max(0, Math.min(PARTS, Math.round(parts)));
    if (partsOf(now[distribution][index]) === bounded) return;
    const next = { ...now, [distribution]: withValue(now[distribution], index, bounded) };
    distributions.value = next;
  };
  const say = () => announce(`Overlap ${spoken(overlap(distributions.value.p, distributions.value.q))}.`);
  const at = (event) => {
    const box = well.getBoundingClientRect();
    return ((box.bottom - event.clientY) / box.height) * PARTS;
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    element.focus({ preventScroll: true });
    element.setPointerCapture(event.pointerId);
    put(at(event));
  });
  element.addEventListener("pointermove", (event) => {
    if (element.hasPointerCapture(event.pointerId)) put(at(event));
  });
  element.addEventListener("pointerup", say);
  const steps = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1, PageUp: 4, PageDown: -4, Home: -Infinity, End: Infinity };
  element.addEventListener("keydown", (event) => {
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    put(partsOf(distributions.value[distribution][index]) + steps[event.key]);
    say();
  });
  const draw = (value, both) => {
    kept.style.height = `${100 * both.toNumber()}%`;
    beyond.style.height = `${100 * value.minus(both).toNumber()}%`;
    label.textContent = short(value);
    element.setAttribute("aria-valuenow", String(partsOf(value)));
    element.setAttribute("aria-valuetext", `${spoken(value)}; shared ${spoken(both)}`);
  };
  return { element, draw };
}

/** The whole of what is drafted, in two parts: kept and refused. */
function shareOf(alpha) {
  const part = (kind, word, value) => {
    const percent = 100 * value.toNumber();
    const text = percent > 38 ? `${word} ${short(value)}` : percent > 14 ? short(value) : "";
    return percent > 0 && h(`div.share-${kind}`, { style: { width: `${percent}%` } }, text);
  };
  return [part("kept", "kept", alpha), part("refused", "refused", FRACTIONS.one.minus(alpha))];
}

function key() {
  return h(
    "ul.legend.towers-key",
    {},
    h("li", {}, h("i.swatch.tower-kept"), "both: kept"),
    h("li", {}, h("i.swatch.tower-beyond.of-q"), "q beyond p: refused"),
    h("li", {}, h("i.swatch.tower-beyond.of-p"), "p beyond q: the residual"),
  );
}

/**
 * What comes out, a column a word: the part that was kept and the part that refusals add, in the outline of p.
 *
 * @returns {{element: HTMLElement, draw: (p, kept, brought) => void}}
 */
export function emission(words) {
  const columns = words.map((word) => {
    const kept = h("div.tower-kept");
    const brought = h("div.tower-beyond.of-p");
    const outline = h("div.tower-outline");
    const label = h("span.tower-value");
    return {
      kept, brought, outline, label,
      element: h("div.tower-pair", {}, h("div.tower-bars", {}, h("div.tower.still", {}, h("div.tower-well", {}, label, brought, kept, outline))), h("span.tower-word", word)),
    };
  });
  const element = h("div.towers.emission", { "aria-hidden": "true" }, h("div.towers-row", {}, columns.map((each) => each.element)));
  const draw = (p, kept, brought) => {
    columns.forEach((column, i) => {
      column.kept.style.height = `${100 * kept[i].toNumber()}%`;
      column.brought.style.height = `${100 * brought[i].toNumber()}%`;
      column.outline.style.height = `${100 * p[i].toNumber()}%`;
      column.label.textContent = short(kept[i].plus(brought[i]));
    });
  };
  return { element, draw };
}

/** The parts that what comes out is made of: kept by word, and added by refusals by word. */
export function partsOfEmission(p, q) {
  return { kept: shared(p, q), brought: leftOver(p, q), alpha: overlap(p, q) };
}

/** Words and fields to type a distribution into; `read` gives the texts. */
export function distributionFields(name, words, values, id) {
  const inputs = words.map((word, i) => h("input.distribution-field", { id: `${id}-${name}-${i}`, value: values[i], inputmode: "decimal", autocomplete: "off", "aria-label": `${name} of ${word}`, size: "5" }));
  return { element: append(h("div.distribution-fields"), h("span.mono", { "aria-hidden": "true" }, `${name} =`), inputs), inputs, read: () => inputs.map((each) => each.value) };
}
