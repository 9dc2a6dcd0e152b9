// The dial: how alike two models are, and what that makes of alpha.

import { overlap } from "hs/algorithm/distributions";
import { DIAL, WORDS } from "hs/algorithm/toy";
import { append, h, signal, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { button, slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { distributionBars } from "hs/figures/distributions";
import { COUNT, drawnAlpha, pairAt } from "hs/lessons/chapters/08-good-guesses/pairs";
import { tell } from "hs/lessons/parts";

const GRID = Array.from({ length: 21 }, (_, i) => i / 20);

/** @param {{value: number}} level the dial's signal */
export function dial(level) {
  const trial = signal(0);
  const bars = distributionBars({ words: WORDS, ...pairAt(level.value, trial.value), height: 140 });
  const measured = { name: "kept of 1,000 drawn guesses, as published", points: DIAL, dots: true };
  const exact = { name: "expected, mean of 1,000 overlaps", points: GRID.map((x) => [x, drawnAlpha(x)]) };
  const chart = lineChart({
    x: { label: "agreement", min: 0, max: 1, ticks: [0, 0.2, 0.4, 0.6, 0.8, 1] },
    y: { label: "α", min: 0.4, max: 1, ticks: [0.4, 0.6, 0.8, 1] },
    series: [exact, measured],
    ring: [level.value, drawnAlpha(level.value)],
  });
  const words = h("p.dial-words");
  const shown = figure({
    label: "Two distributions that agree to a degree, and the share of guesses that is kept",
    title: true,
    body: append(h("div"), bars.element, words, chart.element),
    controls: [
      slider({ label: "Agreement", value: level, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }),
      button("Another pair", () => (trial.value = (trial.value + 1) % COUNT), { quiet: true }),
    ],
    caption:
      "The draft’s logits are a mixture: so much of the target’s, the rest noise. The line is exact: the mean overlap of 1,000 pairs. The dots are a published experiment on the same pairs, one guess and one uniform draw for each; they lie up to 0.017 above the line by luck.",
    table: () => ({
      columns: ["agreement", "measured with 1,000 uniform draws", "expected"],
      rows: DIAL.map(([x, rate]) => [fixed(x), percent(rate, 1), percent(drawnAlpha(x), 1)]),
    }),
  });
  watch([level, trial], (now, number) => {
    const { p, q } = pairAt(now, number);
    bars.set({ p, q });
    chart.set({ ring: [now, drawnAlpha(now)] });
    tell(words, `Pair ${number + 1}: the distributions share ${percent(overlap(p, q))}. Over all pairs α = ${fixed(drawnAlpha(now), 3)}.`);
    shown.update();
  });
  return shown.element;
}
