// Two tables as grids to play with: draft length against acceptance, and price against acceptance.

import { alphaCTable, alphaKTable, bestK } from "hs/algorithm/theory";
import { h, watch } from "hs/base/dom";
import { listed } from "hs/base/format";
import { heatGrid } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded, starred } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

export const SWEEP = { alphas: [0.5, 0.7, 0.85, 0.95], ks: Array.from({ length: 12 }, (_, i) => i + 1) };
export const COST = { alphas: [0.3, 0.5, 0.7, 0.8, 0.9, 0.95], cs: [0.01, 0.05, 0.1, 0.2, 0.5] };

const place = (list, value) => list.findIndex((each) => Math.abs(each - value) < 1e-9);
const ringAt = (row, column) => (row < 0 || column < 0 ? null : [row, column]);

/** A grid whose values are computed again whenever the state changes. */
function liveGrid({ label, corner, rows, columns, values, ring, onPick }) {
  let now = values();
  const grid = heatGrid({ corner, rows, columns, value: (r, c) => now[r][c], format: starred, label, ring: ring(), onPick });
  const update = () => {
    now = values();
    grid.set({ value: (r, c) => now[r][c], ring: ring() });
  };
  return { element: grid.element, update, now: () => now };
}

/** Rows: draft lengths; columns: acceptances. */
export function sweepGrid(state) {
  const { alphas, ks } = SWEEP;
  const grid = liveGrid({
    label: "Speedup by K and α",
    corner: "K \\ α",
    rows: ks,
    columns: alphas.map((a) => rounded(a)),
    // [K][alpha]: a phone is higher than wide
    values: () => ks.map((k) => alphas.map((a) => alphaKTable([a], [k], state.c.value, state.v())[0][0])),
    ring: () => ringAt(place(ks, state.k.value), place(alphas, state.alpha.value)),
    onPick: (r, c) => state.set({ k: ks[r], alpha: alphas[c] }),
  });
  const words = h("p.break-words");
  const shown = figure({
    label: "Speedup for twelve draft lengths and four acceptances",
    title: true,
    body: [grid.element, words],
    controls: controls(state, "c"),
    caption: "Go down a column: it rises, is flat for a while, and falls. * slower than plain decoding.",
    table: () => ({
      columns: ["K", ...alphas.map((a) => `α = ${rounded(a)}`)],
      rows: [
        ...ks.map((k, r) => [k, ...grid.now()[r].map(starred)]),
        ["best", ...alphas.map((a) => `${bestK(a, state.c.value, state.v(), ks.length).k}`)],
      ],
      caption: `c = ${rounded(state.c.value)}`,
    }),
  });
  watch(state.all, () => {
    grid.update();
    const best = alphas.map((a) => bestK(a, state.c.value, state.v()).k);
    tell(words, `At c = ${rounded(state.c.value)} the best K of the four columns are ${listed(best)}${best.some((k) => k > ks.length) ? "; one above 12 is beyond this table" : ""}.`);
    shown.update();
  });
  return shown.element;
}

/** Rows: acceptances; columns: prices of a guess. */
export function costGrid(state) {
  const { alphas, cs } = COST;
  const grid = liveGrid({
    label: "Speedup by α and c",
    corner: "α \\ c",
    rows: alphas.map((a) => rounded(a)),
    columns: cs,
    values: () => alphaCTable(alphas, cs, state.k.value, state.v()),
    ring: () => ringAt(place(alphas, state.alpha.value), place(cs, state.c.value)),
    onPick: (r, c) => state.set({ alpha: alphas[r], c: cs[c] }),
  });
  const words = h("p.break-words");
  const shown = figure({
    label: "Speedup for six acceptances and five prices of a guess",
    title: true,
    body: [grid.element, words],
    controls: controls(state, "k"),
    caption: "Slide K down to 1: fewer cells have a star. * slower than plain decoding.",
    table: () => ({
      columns: ["α", ...cs.map((c) => `c = ${c}`)],
      rows: alphas.map((a, r) => [rounded(a), ...grid.now()[r].map(starred)]),
      caption: `K = ${state.k.value}`,
    }),
  });
  watch(state.all, () => {
    grid.update();
    const least = alphas.find((_, i) => grid.now()[i].at(-1) > 1);
    tell(words, `At K = ${state.k.value} a draft at half the target’s price ${least ? `gains from α = ${rounded(least)} on` : "gains nothing at any of these acceptances"}, and ${grid.now().flat().filter((x) => x < 1).length} of the ${alphas.length * cs.length} cells are slower than plain decoding.`);
    shown.update();
  });
  return shown.element;
}
