// What four figures of chapter 9b share: two lines of speedup over K, sliders, and a sentence under them.

import { append, h, watch } from "hs/base/dom";
import { lineChart } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { rounded, starred } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

/**
 * @param {object} options
 * @param {string} options.label @param {number} options.most the longest draft @param {number} [options.top] of the axis
 * @param {string[]} options.names of the two ways that are compared
 * @param {() => ((k: number) => number)[]} options.gains the speedup of each by K, as the signals are now
 * @param {object[]} options.signals @param {Node[]} options.controls @param {string} options.caption
 * @param {(best: {k: number, speedup: number}[]) => any} options.says the sentence, given the best K of each
 */
export function gains({ label, most, top = 4, names, gains: now, signals, controls, caption, says }) {
  const lengths = Array.from({ length: most + 1 }, (_, k) => k);
  const series = () => now().map((gain, i) => ({ name: names[i], dash: i ? "" : "6 3", points: lengths.map((k) => [k, gain(k)]) }));
  const chart = lineChart({
    x: { label: "K, guesses a round", min: 0, max: most, ticks: lengths.filter((k) => most < 9 || k % 2 === 0) },
    y: { label: "speedup", min: 0, max: top, ticks: lengths.filter((y) => y <= top) },
    series: series(), rule: { y: 1 },
  });
  const words = h("p.break-words");
  const shown = figure({
    label, title: true, body: append(h("div"), chart.element, words), controls, caption,
    table: () => ({ columns: ["K", ...names], rows: lengths.map((k) => [k, ...now().map((gain) => starred(gain(k)))]), caption: "* slower than plain decoding" }),
  });
  const best = (gain) => lengths.reduce((found, k) => (gain(k) > found.speedup + 1e-12 ? { k, speedup: gain(k) } : found), { k: 0, speedup: 1 });
  watch(signals, () => {
    chart.set({ series: series() });
    tell(words, says(now().map(best)));
    shown.update();
  });
  return shown.element;
}

/** A best K in words. */
export const bestOf = ({ k, speedup }) => (k ? `K = ${k} is best, with ${rounded(speedup)}×` : "no K gains anything");
