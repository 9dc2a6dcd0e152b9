// The map of the chapter's title: the speedup for every acceptance and draft length, and the line where it is 1.

import { breakEvenAlpha, speedup } from "hs/algorithm/theory";
import { append, fill, h, signal, svg, watch } from "hs/base/dom";
import { percent } from "hs/base/format";
import { strength } from "hs/figures/charts/map";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { sized } from "hs/figures/sized";
import { MOST, controls } from "hs/lessons/chapters/07-the-cliff/state";
import { doctorDrop } from "hs/lessons/chapters/doctor-file";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

const STEP = 0.05;
/** The middles of the cells. */
export const ALPHAS = Array.from({ length: 20 }, (_, i) => Number(((i + 0.5) * STEP).toFixed(3)));
export const LENGTHS = Array.from({ length: MOST }, (_, i) => i + 1);
const [LEFT, TOP, BOTTOM, TALL] = [44, 8, 40, 320];
const TOLD = [0.05, 0.25, 0.5, 0.75, 0.95];

/** Rows: acceptances, the highest first; columns: draft lengths. */
export const speeds = (c, v, alphas = [...ALPHAS].reverse()) => alphas.map((a) => LENGTHS.map((k) => speedup(a, k, c, v)));

/** The points [K, alpha] at which a draft begins to pay, for the lengths at which one can. */
export const border = (c, v) => LENGTHS.map((k) => [k, breakEvenAlpha(k, c, v)]).filter(([, alpha]) => Number.isFinite(alpha));

/** @returns {HTMLElement} the figure */
export function map(state) {
  const own = signal([]);
  const drawing = sized(TOP + TALL + BOTTOM, (width) => drawn(state, width, own.value));
  movable(drawing.element, state);
  const words = h("p.map-words");
  const found = h("div.map-own");
  const go = ({ k, alpha, c }) => state.set({ k: Math.min(MOST, k), alpha, c: Math.min(1, c) });
  const told = ({ name, k, alpha, c, share, speedup: value }) => `${name}: K = ${k}, α = ${rounded(alpha)}, c = ${rounded(c, 3)}. The map says ${rounded(speedup(alpha, k, c, state.v()))}×${share < 0.95 ? ` where it drafts, which is in ${percent(share)} of the rounds` : ""}${value > 0 ? `; headstart doctor says ${rounded(value)}×` : ""}.`;
  const drop = doctorDrop(({ name, v, drafts }) => {
    state.take(v);
    own.value = drafts;
    if (drafts.length) go(drafts.reduce((best, each) => ((each.speedup ?? 0) > (best.speedup ?? 0) ? each : best)));
    fill(found, h("p", `Rows now cost what they cost ${name}.`, drafts.length ? "" : " This file has no draft of a chain to show."),
      drafts.map((each) => h("p", {}, told(each), " ", drafts.length > 1 && button("Go there", () => go(each), { quiet: true, label: `Go to ${each.name}` }))));
  }, "An example of such a file");
  const shown = figure({
    label: "The speedup by draft length and acceptance",
    title: true,
    body: append(h("div"), drawing.element, words),
    controls: [...controls(state, "alpha", "k", "c", "machine"), drop, found],
    caption: "Blue is faster than plain decoding, brown is slower, and the stronger the more. The line between is break-even. Drag the ring, or use the sliders. A file of headstart doctor puts your own drafts on the map, as dots; it is read by this page and goes nowhere.",
    table: () => ({
      columns: ["α", ...LENGTHS.map((k) => `K = ${k}`)],
      rows: speeds(state.c.value, state.v(), TOLD).map((line, i) => [rounded(TOLD[i]), ...line.map((value) => rounded(value))]),
      caption: `c = ${rounded(state.c.value)}`,
    }),
  });
  watch([...state.all, own], (alpha, k, c) => {
    drawing.redraw();
    const fallen = Math.max(0, alpha - 0.15);
    tell(words, `K = ${k}, α = ${rounded(alpha)}: ${rounded(state.speedup())}×. If α falls to ${rounded(fallen)}: ${rounded(speedup(fallen, k, c, state.v()))}×; with K = 1 there: ${rounded(speedup(fallen, 1, c, state.v()))}×.`);
    shown.update();
  });
  return shown.element;
}

/** The ring follows the pointer; the sliders do the same by keyboard. A finger has to take the ring, so that it can still
 *  scroll the page; a tap moves the ring. */
function movable(element, state) {
  element.classList.add("map-area");
  const take = (event) => {
    const box = element.getBoundingClientRect();
    const k = Math.ceil(((event.clientX - box.left - LEFT) / (box.width - LEFT - 8)) * MOST);
    const alpha = 1 - (event.clientY - box.top - TOP) / TALL;
    state.k.value = Math.max(1, Math.min(MOST, k));
    state.alpha.value = Number(Math.max(0, Math.min(1, alpha)).toFixed(2));
  };
  element.addEventListener("pointerdown", (event) => {
    if (event.button || (event.pointerType === "touch" && !event.target.closest(".ring-reach"))) return;
    event.preventDefault();
    element.setPointerCapture(event.pointerId);
    take(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (element.hasPointerCapture(event.pointerId)) take(event);
  });
  element.addEventListener("click", take);
}

function drawn(state, width, own) {
  const [c, v] = [state.c.value, state.v()];
  const wide = (width - LEFT - 8) / MOST;
  const tall = TALL / ALPHAS.length;
  const x = (k) => LEFT + (k - 0.5) * wide;
  const y = (alpha) => TOP + (1 - alpha) * TALL;
  const cells = speeds(c, v).flatMap((line, row) => line.map((value, column) => {
    const place = { x: LEFT + column * wide, y: TOP + row * tall, width: wide, height: tall };
    return svg(`rect.map-cell.${value > 1 ? "faster" : "slower"}`, { ...place, "fill-opacity": strength(value).toFixed(3) });
  }));
  const line = border(c, v);
  const side = (words, alpha, there) => there && svg("text.map-side", { x: x(12), y: y(alpha), "text-anchor": "middle" }, words);
  return [
    ...cells,
    ...[0, 0.25, 0.5, 0.75, 1].map((tick) => svg("text.soft", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, tick)),
    ...[1, 4, 8, 12, 16].map((tick) => svg("text.soft", { x: x(tick), y: TOP + TALL + 18, "text-anchor": "middle" }, tick)),
    svg("text.soft", { x: LEFT, y: TOP + TALL + 36 }, "K, guesses a round; upwards α"),
    line.length > 1 && svg("polyline.map-border", { points: line.map(([k, alpha]) => `${x(k).toFixed(1)},${y(alpha).toFixed(1)}`).join(" ") }),
    side("faster", 0.7, speedup(0.7, 12, c, v) > 1),
    side("slower", 0.05, speedup(0.05, 12, c, v) < 1),
    ...own.map(({ k, alpha }) => svg("circle.map-dot", { cx: x(Math.min(MOST, k)), cy: y(alpha), r: 4 })),
    svg("circle.ring-reach", { cx: x(state.k.value), cy: y(state.alpha.value), r: 22, fill: "transparent" }),
    svg("circle.ring", { cx: x(state.k.value), cy: y(state.alpha.value), r: 7 }),
  ];
}
