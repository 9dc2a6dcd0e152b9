// The break-even acceptance by draft length, and what forwards of several rows cost on two machines.

import { breakEvenAlpha, verifyCost } from "hs/algorithm/theory";
import { append, h, watch } from "hs/base/dom";
import { lineChart } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { MACHINES, MOST, PROVENANCE, controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

export const PRICES = [0.05, 0.1, 0.2, 0.5];
const LENGTHS = Array.from({ length: MOST }, (_, i) => i + 1);
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

function breakEvenSeries(state) {
  return PRICES.map((c, i) => ({
    name: `c = ${c}`,
    dash: DASHES[i],
    points: LENGTHS.map((k) => [k, breakEvenAlpha(k, c, state.v())]).filter(([, alpha]) => Number.isFinite(alpha)),
  }));
}

/** Where drafting begins to pay. */
export function breakEven(state) {
  const chart = lineChart({
    x: { label: "K, guesses a round", min: 1, max: MOST, ticks: [1, 4, 8, 12, 16] },
    y: { label: "α", min: 0, max: 1, ticks: [0, 0.25, 0.5, 0.75, 1] },
    series: breakEvenSeries(state),
    ring: [state.k.value, state.alpha.value],
  });
  const words = h("p.break-words");
  const shown = figure({
    label: "The acceptance at which a draft begins to pay, by draft length and price",
    title: true,
    body: append(h("div"), chart.element, words),
    controls: controls(state, "alpha", "k", "c"),
    caption: "Each line is one price. Above it drafting gains, below it plain decoding is faster. The ring is where you are.",
    table: () => ({
      columns: ["K", ...PRICES.map((c) => `c = ${c}`)],
      rows: LENGTHS.map((k) => [k, ...PRICES.map((c) => rounded(breakEvenAlpha(k, c, state.v()), 3))]),
    }),
  });
  watch(state.all, (alpha, k, c) => {
    const least = breakEvenAlpha(k, c, state.v());
    chart.set({ series: breakEvenSeries(state), ring: [k, alpha] });
    tell(
      words,
      Number.isFinite(least)
        ? `K = ${k} at c = ${rounded(c)} pays from α = ${rounded(least, 3)} on; with α = ${rounded(alpha)} you ${alpha > least ? "gain" : "lose"}.`
        : `K = ${k} at c = ${rounded(c)} never pays, not even with a perfect draft.`,
    );
    shown.update();
  });
  return shown.element;
}

const ROWS = [1, 2, 4, 8, 16, 32];

/** v(n) as it was measured. */
export function forwards() {
  const names = Object.keys(MACHINES).filter((name) => typeof MACHINES[name].v !== "function"); // calculated ones are none
  return figure({
    label: "What a forward of n rows costs, over a forward of one row",
    title: true,
    body: lineChart({
      x: { label: "n, rows of the forward", min: 1, max: 32, ticks: [1, 8, 16, 24, 32] },
      y: { label: "v(n)", min: 0, max: 3.5, ticks: [0, 1, 2, 3] },
      series: names.map((name, i) => ({
        name: MACHINES[name].words,
        dash: DASHES[i],
        points: ROWS.map((n) => [n, verifyCost(MACHINES[name].v, n)]),
      })),
    }).element,
    caption: `Measured: ${PROVENANCE}. The 1.0B model is the bundled one made wider and deeper. Its forward is spent on reading weights, so 15 guesses are checked for less than a quarter of a plain step. The small one has little to read, so each row counts. K guesses need K + 1 rows.`,
    table: () => ({
      columns: ["n", ...names.map((name) => MACHINES[name].words)],
      rows: ROWS.map((n) => [n, ...names.map((name) => rounded(verifyCost(MACHINES[name].v, n), 3))]),
    }),
  }).element;
}
