// One layer of a mixture: the experts that the rows of a draft meet.

import { bestK, distinct, reading } from "hs/algorithm/theory";
import { append, h, signal, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { RandomState } from "hs/algorithm/randomstate";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { SHAPES } from "hs/lessons/chapters/07-the-cliff/mixtures";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

const { experts, chosen, share } = SHAPES.qwen3;
const [ALPHA, C, MOST] = [0.8, 0.1, 16];
/** The order in which experts are met: some order, always the same. */
const ORDER = (() => {
  const rng = new RandomState(1);
  return Array.from({ length: experts }, (_, i) => [rng.random(), i]).sort(([a], [b]) => a - b).map(([, i]) => i);
})();

export function expertBoard() {
  const [k, rho] = [signal(5), signal(0.45)];
  const routing = () => ({ experts, chosen, rho: rho.value });
  const cells = Array.from({ length: experts }, () => h("span.expert"));
  const board = h("div.experts", { "aria-hidden": "true" }, cells);
  const words = h("p.break-words");
  const shown = figure({
    label: "The experts of one layer that a forward reads",
    title: true,
    body: append(h("div"), h("ul.legend", {}, h("li", h("span.expert.first"), ` the ${chosen} of the first row`), h("li", h("span.expert.further"), " met by a further row")), board, words),
    controls: [
      slider({ label: "K, guesses a round", value: k, min: 0, max: MOST, step: 1 }),
      slider({ label: "ρ, how alike neighbours choose", value: rho, min: 0, max: 0.95, step: 0.05, format: (x) => fixed(x) }),
    ],
    caption: `The number of experts is the expected one, of ${experts} with ${chosen} chosen for each row (Qwen3-30B-A3B); which of them light up is arbitrary. ρ = 0.45 fits what one maker has published.`,
    table: () => ({ columns: ["K", "rows", "experts met"], rows: Array.from({ length: MOST + 1 }, (_, n) => [n, n + 1, fixed(distinct(routing(), n + 1), 1)]) }),
  });
  watch([k, rho], () => {
    const met = distinct(routing(), k.value + 1);
    ORDER.forEach((cell, i) => (cells[cell].className = `expert ${i < chosen ? "first" : i < Math.round(met) ? "further" : ""}`));
    const v = (n) => reading(routing(), n, share);
    const [dense, mixed] = [bestK(ALPHA, C, null, MOST), bestK(ALPHA, C, v, MOST)];
    tell(words, `${k.value + 1} rows meet ${fixed(met, 1)} of ${experts} experts, so the forward reads ${percent(v(k.value + 1) - 1)} more than a plain one. At α = ${ALPHA} and c = ${C} the best K is ${mixed.k}, with ${rounded(mixed.speedup)}×; of a dense model it is ${dense.k}, with ${rounded(dense.speedup)}×.`);
    shown.update();
  });
  return shown.element;
}
