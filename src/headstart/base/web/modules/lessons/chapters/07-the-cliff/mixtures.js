// Why a mixture of experts wants shorter drafts: what rows read together, and what is left of the speedup.

import { bestK, distinct, reading, speedup } from "hs/algorithm/theory";
import { append, h, signal, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { choice, slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { MOST, controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded, starred } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

/** Shapes of published models, and the share of the chosen experts in the weights that a token meets, counted in numbers. */
export const SHAPES = {
  qwen3: { words: "8 of 128 (Qwen3-30B-A3B)", experts: 128, chosen: 8, share: 0.6 },
  qwen36: { words: "8 of 256 (Qwen3.6-35B-A3B)", experts: 256, chosen: 8, share: 0.34 },
  gpt: { words: "4 of 32 (gpt-oss-20b)", experts: 32, chosen: 4, share: 0.66 },
};
const LENGTHS = Array.from({ length: MOST + 1 }, (_, k) => k);

/** @returns {HTMLElement} the figure */
export function mixtures(state) {
  const [shape, rho] = [signal("qwen3"), signal(0.45)];
  const routing = () => ({ ...SHAPES[shape.value], rho: rho.value });
  const v = (rows) => reading(routing(), rows, SHAPES[shape.value].share);
  const gain = (k, cost) => speedup(state.alpha.value, k, state.c.value, cost);
  const series = () => [
    { name: "a dense model", points: LENGTHS.map((k) => [k, gain(k, null)]) },
    { name: "the mixture", dash: "6 3", points: LENGTHS.map((k) => [k, gain(k, v)]) },
  ];
  const chart = lineChart({
    x: { label: "K, guesses a round", min: 0, max: MOST, ticks: [0, 4, 8, 12, 16] },
    y: { label: "speedup", min: 0, max: 5, ticks: [0, 1, 2, 3, 4, 5] },
    series: series(),
  });
  const words = h("p.break-words");
  const shown = figure({
    label: "The speedup of a dense model and of a mixture of experts by draft length",
    title: true,
    body: append(h("div"), chart.element, words),
    controls: [
      choice({ label: "Experts", value: shape, options: Object.entries(SHAPES).map(([name, { words: told }]) => [name, told]) }),
      slider({ label: "ρ, how alike neighbours choose", value: rho, min: 0, max: 0.95, step: 0.05, format: (x) => fixed(x) }),
      ...controls(state, "alpha", "c"),
    ],
    caption: "Calculated, not measured: as if reading weights were all that takes time. The dense model reads the same for any number of rows. Rows of the mixture choose experts of their own, and each new one must be read.",
    table: () => ({
      columns: ["K", "experts met", "v(K + 1)", "speedup", "of a dense model"],
      rows: LENGTHS.map((k) => [k, fixed(distinct(routing(), k + 1), 1), rounded(v(k + 1)), starred(gain(k, v)), starred(gain(k, null))]),
      caption: `${SHAPES[shape.value].words}, ρ = ${rounded(rho.value)}, α = ${rounded(state.alpha.value)}, c = ${rounded(state.c.value)}; * slower than the baseline`,
    }),
  });
  watch([shape, rho, state.alpha, state.c], (_, __, alpha, c) => {
    const [dense, mixed] = [bestK(alpha, c, null, MOST), bestK(alpha, c, v, MOST)];
    chart.set({ series: series() });
    tell(
      words,
      `Four rows meet ${fixed(distinct(routing(), 4), 1)} experts of a layer where one meets ${routing().chosen}, and a forward reads ${percent(v(4) - 1)} more. `,
      mixed.k === 0
        ? `No K gains anything; a dense model’s best is K = ${dense.k} with ${rounded(dense.speedup)}×.`
        : `The best K is ${mixed.k} with ${rounded(mixed.speedup)}×; a dense model’s is ${dense.k} with ${rounded(dense.speedup)}×.`,
    );
    shown.update();
  });
  return shown.element;
}
