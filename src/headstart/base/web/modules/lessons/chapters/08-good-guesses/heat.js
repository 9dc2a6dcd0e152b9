// Temperature: what it does to drafts that draw, to drafts that copy, and to a draft that stays as it is.

import { bestK } from "hs/algorithm/theory";
import { append, fill, h, signal, unbroken, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { slider } from "hs/figures/controls";
import { figure, tableOf } from "hs/figures/figure";
import { copiedAlpha, drawnAlpha } from "hs/lessons/chapters/08-good-guesses/pairs";

export const TEMPERATURES = [0.1, 0.3, 0.5, 0.7, 1, 1.5, 2];
const C = 0.1;

const KINDS = [
  { name: "drawn, both models at T", short: "drawn at T", dash: "", alpha: (level, t) => drawnAlpha(level, t) },
  { name: "drawn, the draft stays at T = 0.7", short: "drawn at 0.7", dash: "8 3 2 3", alpha: (level, t) => drawnAlpha(level, t, 0.7) },
  { name: "copied: the draft’s likeliest token", short: "copied", dash: "6 3", alpha: (level, t) => copiedAlpha(level, t) },
];

/** @param {{value: number}} level the dial's signal */
export function heat(level) {
  const temperature = signal(0.7);
  const series = () => KINDS.map(({ name, dash, alpha }) => ({ name, dash, points: TEMPERATURES.map((t) => [t, alpha(level.value, t)]) }));
  const chart = lineChart({
    x: { label: "T, temperature", min: 0, max: 2, ticks: [0, 0.5, 1, 1.5, 2] },
    y: { label: "α", min: 0, max: 1, ticks: [0, 0.25, 0.5, 0.75, 1] },
    series: series(),
    rule: { x: temperature.value, label: "T" },
  });
  const words = h("ul.heat-words");
  const shown = figure({
    label: "Acceptance by temperature, for three ways to guess",
    title: true,
    body: append(h("div"), chart.element, words),
    controls: [
      slider({ label: "T, temperature", value: temperature, min: 0.1, max: 2, step: 0.1, format: (x) => fixed(x, 1) }),
      slider({ label: "Agreement", value: level, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }),
    ],
    caption: "Exact, over the same 1,000 pairs. Near T = 0 both distributions are one word each, and drawing and copying are the same. A higher temperature flattens both distributions: flat distributions overlap, so drawn guesses pass; but no single word is likely any more, so a copied one does not.",
    table: () => ({
      columns: ["T", ...KINDS.map(({ name }) => name)],
      rows: TEMPERATURES.map((t) => [fixed(t, 1), ...KINDS.map(({ alpha }) => fixed(alpha(level.value, t), 3))]),
      caption: `agreement ${fixed(level.value)}`,
    }),
  });
  watch([level, temperature], (now, t) => {
    chart.set({ series: series(), rule: { x: t, label: `T = ${fixed(t, 1)}` } });
    fill(
      words,
      KINDS.map(({ name, alpha }) => {
        const a = alpha(now, t);
        return h("li", {}, unbroken(`${name}: α = ${fixed(a)}, at best ${fixed(bestK(a, C).speedup)}× for c = ${C}.`));
      }),
    );
    shown.update();
  });
  return shown.element;
}

/** What T = 1.5 leaves of the speedup at T = 0.7, by how the draft guesses: [short name, alpha cool, alpha hot, share]. */
export function kept(level) {
  return KINDS.map(({ short, alpha }) => {
    const [cool, hot] = [0.7, 1.5].map((t) => alpha(level, t));
    return [short, cool, hot, bestK(hot, C).speedup / bestK(cool, C).speedup];
  });
}

/** The same as a table. */
export function keptTable(level) {
  const holder = h("div.scroll.kept", { tabindex: "0", role: "region", "aria-label": "What T = 1.5 leaves of the speedup at T = 0.7" });
  watch([level], (now) =>
    fill(
      holder,
      tableOf({
        columns: ["guesses", "α at 0.7", "α at 1.5", "kept"],
        rows: kept(now).map(([name, cool, hot, share]) => [name, fixed(cool), fixed(hot), percent(share)]),
        caption: `T = 0.7 and 1.5. Kept: the speedup at 1.5 over that at 0.7, each at its best K, c = ${C}; agreement ${fixed(now)}.`,
      }),
    ),
  );
  return holder;
}
