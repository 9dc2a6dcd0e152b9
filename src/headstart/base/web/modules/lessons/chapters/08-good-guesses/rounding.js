// A cheaper draft: its numbers rounded to fewer bits.

import { bestK } from "hs/algorithm/theory";
import { append, h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { roundedAlpha } from "hs/lessons/chapters/08-good-guesses/pairs";
import { tell } from "hs/lessons/parts";

export const BITS = [2, 3, 4, 5, 6, 8, 16];

/** The price of a guess at so many bits, if reading its weights is all that a draft step does. */
export const priceAt = (bits) => (0.1 * bits) / 16;

/** @param {{value: number}} level the dial's signal */
export function rounding(level) {
  const bits = signal(4);
  const series = () => [
    { name: "this draft", points: BITS.map((b) => [b, roundedAlpha(level.value, b)]) },
    { name: "the target itself, rounded", dash: "6 3", points: BITS.map((b) => [b, roundedAlpha(1, b)]) },
  ];
  const chart = lineChart({
    x: { label: "bits", min: 2, max: 16, ticks: [2, 4, 8, 16] },
    y: { label: "α", min: 0.5, max: 1, ticks: [0.5, 0.75, 1] },
    series: series(),
    ring: [bits.value, roundedAlpha(level.value, bits.value)],
  });
  const words = h("p.rounding-words");
  const shown = figure({
    label: "Acceptance of a draft whose logits are rounded to few bits",
    title: true,
    body: append(h("div"), chart.element, words),
    controls: [
      slider({ label: "Bits of the draft", value: bits, min: 2, max: 16, step: 1 }),
      slider({ label: "Agreement", value: level, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }),
    ],
    caption: "Exact, over the same 1,000 pairs, with rounded logits standing for rounded weights. The price assumes that a draft step takes as long as reading its weights: c = 0.1 at 16 bits.",
    table: () => ({
      columns: ["bits", "c", "α", "best speedup", "α of the target itself, rounded"],
      rows: BITS.map((b) => {
        const alpha = roundedAlpha(level.value, b);
        return [b, fixed(priceAt(b), 4), fixed(alpha, 4), fixed(bestK(alpha, priceAt(b)).speedup), fixed(roundedAlpha(1, b), 4)];
      }),
      caption: `agreement ${fixed(level.value)}`,
    }),
  });
  watch([level, bits], (now, b) => {
    const alpha = roundedAlpha(now, b);
    const { k, speedup } = bestK(alpha, priceAt(b));
    chart.set({ series: series(), ring: [b, alpha] });
    tell(words, `${b} bits: α = ${fixed(alpha, 3)}, c = ${fixed(priceAt(b), 3)}; the best K up to 16 is ${k}, ${fixed(speedup)}× as fast.`);
    shown.update();
  });
  return shown.element;
}
