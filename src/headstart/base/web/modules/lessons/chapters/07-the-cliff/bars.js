// The bar chart: tokens and speedup for every draft length.

import { fill, h, watch } from "hs/base/dom";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { MOST, controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded, starred } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

const LENGTHS = Array.from({ length: MOST }, (_, i) => i + 1);

const PRESETS = [
  { name: "The sweet spot", values: { alpha: 0.8, k: 5, c: 0.1, machine: "free" }, words: "a draft that is right four times in five, at a tenth of the price." },
  { name: "An expensive draft", values: { alpha: 0.7, k: 5, c: 0.5, machine: "free" }, words: "each guess costs half a token, and five of them cost more than they give. Only K = 1, 2 and 3 gain a little." },
  { name: "A bad match", values: { alpha: 0.3, k: 5, c: 0.1, machine: "free" }, words: "most guesses fail, so the round gives little more than the target’s own token." },
  { name: "A fast target", values: { alpha: 0.7, k: 5, c: 0.3, machine: "small" }, words: "the same draft beside a target that was made three times as fast: a guess costs three times as much of a token, and rows are no longer free." },
];

export function bars(state) {
  const chart = h("div.gains", { "aria-hidden": "true" });
  const words = h("p.gains-words");
  const why = h("p.gains-why");

  function column(k, top, best) {
    const [tokens, gain] = [state.tokens(k), state.speedup(k)];
    const marks = `${k === state.k.value ? ".chosen" : ""}${k === best ? ".best" : ""}${gain < 0.9995 ? ".loss" : ""}`;
    return h(
      `div.gain${marks}`,
      {},
      h("span.gain-tokens", { style: { height: `${(100 * tokens) / top}%` } }),
      h("span.gain-speed", { style: { height: `${(100 * gain) / top}%` } }),
      h("span.gain-name", k === best ? `★${k}` : `${k}`),
    );
  }

  const shown = figure({
    label: "Tokens a round and speedup by draft length",
    title: true,
    body: [
      h("ul.legend", {}, h("li.key-tokens", "tokens a round, E"), h("li.key-gain", "speedup"), h("li.key-one", "plain decoding, 1×"), h("li", "★ the best K")),
      chart,
      words,
      h("div.gain-presets", {}, PRESETS.map((preset) => button(preset.name, () => take(preset), { quiet: true }))),
      why,
    ],
    controls: controls(state, "alpha", "k", "c", "machine"),
    caption: "The gap between a dashed bar and the filled one is what drafting and checking cost. Left of the star you give tokens away; right of it you pay for guesses that are thrown away.",
    table: () => ({
      columns: ["K", "tokens", "cost", "speedup"],
      rows: LENGTHS.map((k) => [k, rounded(state.tokens(k), 3), rounded(state.cost(k), 3), starred(state.speedup(k))]),
      caption: `α = ${rounded(state.alpha.value)}, c = ${rounded(state.c.value)}, checking: ${state.checking()}; * slower than the baseline`,
    }),
  });

  function take({ name, values, words: reason }) {
    state.set(values);
    fill(why, h("strong", `${name}: `), reason);
  }

  watch(state.all, (alpha, k) => {
    const { k: best, speedup: most } = state.best();
    const top = Math.max(state.tokens(MOST), ...LENGTHS.map((n) => state.speedup(n)), 1.25);
    fill(why);
    fill(chart, h("span.gains-one", { style: { bottom: `${100 / top}%` } }), LENGTHS.map((n) => column(n, top, best)));
    tell(
      words,
      `K = ${k}: ${rounded(state.tokens())} tokens a round, ${rounded(state.speedup())}× as fast. `,
      best === 0 ? "No K gains anything here: the best draft is none." : `The best K up to ${MOST} is ${best}, with ${rounded(most)}×.`,
    );
    shown.update();
  });
  return shown.element;
}
