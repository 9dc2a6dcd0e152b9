// Distributions as bars: p, q and what is left of p, side by side over every word. q is hatched, the residual is outlined.

import { h } from "hs/base/dom";
import { probability } from "hs/base/format";

const NAMES = { p: "target p", q: "draft q", r: "residual" };
const KEY_STEP = 0.01;
const PAGE_STEP = 0.1;

/**
 * @param {object} options
 * @param {string[]} options.words
 * @param {number[]} options.p @param {number[]} [options.q] @param {number[]} [options.r]
 * @param {number} [options.height] of the tallest bar, in px
 * @param {number} [options.top] the probability that is as high as the picture; follows the bars where it is not given
 * @param {boolean} [options.values] whether the numbers stand over the bars
 * @param {(distribution: "p"|"q"|"r", index: number, value: number) => void} [options.onDrag] makes p and q sliders; it is told
 *   what the reader wants, and calls `set` with what becomes of it
 * @returns {{element: HTMLElement, set: (distributions: {p?: number[], q?: number[], r?: number[], mark?: number}) => void}}
 *   `mark` is the index of a word that is marked, -1 for none
 */
export function distributionBars({ words, p, q, r, height = 160, top, values = false, onDrag }) {
  const now = { p, q, r, mark: -1 };
  const distributions = ["p", "q", "r"];
  const scale = () => top ?? (onDrag ? 1 : Math.max(0.1, ...distributions.flatMap((distribution) => now[distribution] ?? [])));
  const columns = words.map((word, i) => {
    const bars = distributions.map((distribution) => barOf(distribution, i, word));
    return { bars, element: h("div.distribution-word", {}, h("div.distribution-bars", {}, bars.map((bar) => bar.element)), h("span.distribution-name", word)) };
  });
  const legend = h("ul.distribution-legend", { "aria-hidden": "true" });
  const plot = h("div.distribution-plot", { style: { "--height": `${height}px` } }, columns.map((column) => column.element));
  const element = h("div.distributions", { "aria-hidden": onDrag ? undefined : "true", class: values ? "with-values" : "" }, legend, plot);

  function barOf(distribution, i, word) {
    const value = h("span.distribution-value");
    const bar = h(`div.distribution-bar.${distribution}`, {}, value);
    const canMove = onDrag && distribution !== "r";
    if (canMove) {
      for (const [name, each] of Object.entries({ role: "slider", tabindex: "0", "aria-label": `${NAMES[distribution]} of ${word}`,
        "aria-valuemin": "0", "aria-valuemax": "1", "aria-orientation": "vertical" })) bar.setAttribute(name, each);
      dragged(bar, (next) => onDrag(distribution, i, next), () => now[distribution]?.[i] ?? 0, () => scale() / height);
    }
    const cell = h("div.distribution-cell", { class: canMove ? "movable" : "" }, bar);
    return { distribution, element: cell, bar, value };
  }

  function draw() {
    const high = scale();
    columns.forEach(({ bars, element: column }, i) => {
      column.classList.toggle("marked", i === now.mark);
      for (const { distribution, bar, value, element: cell } of bars) {
        const has = now[distribution];
        cell.hidden = !has;
        if (!has) continue;
        const share = Math.max(0, Math.min(1, has[i] / high));
        bar.style.height = `${share * height}px`;
        value.textContent = values ? probability(has[i]) : "";
        if (bar.hasAttribute("role")) {
          bar.setAttribute("aria-valuenow", has[i].toFixed(3));
          bar.setAttribute("aria-valuetext", probability(has[i]));
        }
      }
    });
    legend.replaceChildren(...distributions.filter((distribution) => now[distribution]).map(keyOf));
  }

  // The numbers of the marked word are in the legend: over narrow bars they would not fit.
  function keyOf(distribution) {
    const told = now.mark >= 0 && !values && [" of ", h("b", words[now.mark]), ": ", h("b", probability(now[distribution][now.mark]))];
    return h("li", {}, h(`span.distribution-key.${distribution}`), h("span", {}, NAMES[distribution], told));
  }

  const set = (changes) => {
    Object.assign(now, changes);
    draw();
  };
  draw();
  return { element, set };
}

function dragged(bar, change, value, perPixel) {
  const clamped = (next) => change(Math.max(0, Math.min(1, next)));
  const moves = { ArrowUp: KEY_STEP, ArrowRight: KEY_STEP, ArrowDown: -KEY_STEP, ArrowLeft: -KEY_STEP, PageUp: PAGE_STEP, PageDown: -PAGE_STEP };
  bar.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Home") clamped(0);
    else if (event.key === "End") clamped(1);
    else if (event.key in moves) clamped(Number((value() + moves[event.key]).toFixed(6)));
    else return;
    event.preventDefault();
  });
  let start = null;
  const cellOf = () => bar.parentElement;
  queueMicrotask(() => {
    cellOf().addEventListener("pointerdown", (event) => {
      event.preventDefault();
      bar.focus();
      cellOf().setPointerCapture(event.pointerId);
      start = { y: event.clientY, value: value() };
    });
    cellOf().addEventListener("pointermove", (event) => {
      if (start) clamped(Number((start.value + (start.y - event.clientY) * perPixel()).toFixed(3)));
    });
    for (const end of ["pointerup", "pointercancel"]) cellOf().addEventListener(end, () => (start = null));
  });
}
