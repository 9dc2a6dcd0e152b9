// Situations that people meet, as headstart.learn.simulate names them: the page is built with their figures, and works out
// what follows by the formulas; text that changes is played through.

import { data, h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { changingAlpha, cost, decode, fixedK, simpleK } from "hs/algorithm/adaptive";
import { bestK, breakEvenAlpha, speedup } from "hs/algorithm/speed";
import { lineChart } from "hs/figures/charts";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { tell } from "hs/lessons/parts";

const KS = Array.from({ length: 12 }, (_, i) => i + 1);
const TOKENS = 200;
const TEXTS = 40;

/** The situations that the page was built with. */
export const situations = () => data("scenarios") ?? [];

/** Speed over the baseline on text that changes between two acceptances, on the mean of some texts. */
export function changingGain([easy, hard], choose, c, v) {
  let total = 0;
  for (let seed = 0; seed < TEXTS; seed++) {
    const alphas = changingAlpha({ easy, hard, seed, length: TOKENS });
    total += cost(decode({ alphas, choose, seed: seed + 500 }), c, v);
  }
  return (TEXTS * TOKENS) / total;
}

/** What is to be said about a situation with a fixed alpha and K. */
export function verdict(alpha, k, c, v) {
  const now = speedup(alpha, k, c, v);
  const best = bestK(alpha, c, v, 12);
  const even = breakEvenAlpha(k, c, v);
  const need = Number.isNaN(even) ? `With K = ${k} no acceptance would pay.` : `With K = ${k} it pays above α = ${fixed(even)}.`;
  const advice = best.k === 0 ? "Best: do not speculate." : `Best: K = ${best.k} with ${fixed(best.speedup)}.`;
  return `${fixed(now)} times the baseline: ${now > 1 ? "faster" : "slower"}. ${need} ${advice}`;
}

/** The figure. */
export function situationCards() {
  const all = situations();
  const chosen = signal(Math.min(1, all.length - 1));
  const [alpha, k, c] = [signal(0.8), signal(5), signal(0.1)];
  const chart = lineChart({ x: { label: "K, guesses a round", min: 1, max: 12, ticks: KS }, y: { label: "speed over the baseline", min: 0, max: 4 }, series: [], rule: { y: 1, label: "as fast as plain" } });
  const words = h("p.figure-said");
  const story = h("p");
  const cards = all.map(({ name }, i) => h("button.quiet.situation", { type: "button", on: { click: () => take(i) } }, name));
  const sliders = [
    slider({ label: "Acceptance, α", value: alpha, min: 0, max: 0.99, step: 0.01, format: (a) => fixed(a) }),
    slider({ label: "Guesses a round, K", value: k, min: 1, max: 12, step: 1 }),
    slider({ label: "A guess over a plain step, c", value: c, min: 0, max: 1, step: 0.01, format: (a) => fixed(a) }),
  ];
  const points = () => {
    const { alpha: given, v } = all[chosen.value];
    return KS.map((length) => [length, Array.isArray(given) ? changingGain(given, fixedK(length), c.value, v) : speedup(alpha.value, length, c.value, v)]);
  };
  const frame = figure({
    label: "Ten situations: what speculation gives at each draft length",
    title: true,
    body: [h("div.situations", { role: "group", "aria-label": "Situations" }, cards), story, chart.element, words],
    controls: sliders,
    caption: "Stories and figures are those of headstart simulate --scenarios; the speeds are worked out here by the same formulas. Move a slider to ask for something else.",
    table: () => ({ columns: ["K", "speed"], rows: points().map(([length, gain]) => [length, fixed(gain)]) }),
  });
  function take(i) {
    chosen.value = i;
    const each = all[i];
    if (!Array.isArray(each.alpha)) alpha.value = each.alpha;
    if (typeof each.k === "number") k.value = each.k;
    c.value = each.c;
  }
  watch([chosen, alpha, k, c], () => {
    const each = all[chosen.value];
    if (!each) return;
    const changes = Array.isArray(each.alpha);
    cards.forEach((card, i) => card.setAttribute("aria-pressed", String(i === chosen.value)));
    sliders[0].hidden = changes;
    sliders[1].hidden = changes;
    story.textContent = each.story;
    const curve = points();
    const [, bestGain] = curve.reduce((a, b) => (b[1] > a[1] ? b : a));
    chart.set({ series: [{ name: changes ? "fixed K, text that changes" : "speed", points: curve, mark: true }], ring: changes ? undefined : [k.value, curve[k.value - 1][1]] });
    tell(words, changes
      ? `Acceptance changes between ${each.alpha.join(" and ")}. The best fixed K gives ${fixed(bestGain)}; a K that follows gives ${fixed(changingGain(each.alpha, simpleK(), c.value, each.v))}. Chapter 11 is about it.`
      : verdict(alpha.value, k.value, c.value, each.v));
    frame.update();
  });
  take(Math.min(1, all.length - 1));
  return frame.element;
}
