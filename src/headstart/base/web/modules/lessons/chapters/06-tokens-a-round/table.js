// E for every alpha and K, as a grid whose cells can be picked.

import { alphaKTable, expectedTokens } from "hs/algorithm/theory";
import { append, fill, h, watch } from "hs/base/dom";
import { heatGrid } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { rounded } from "hs/lessons/chapters/tables";

export const ALPHAS = [0.5, 0.7, 0.85, 0.95];
export const KS = [1, 2, 3, 5, 8];

// With drafts that cost nothing the speedup is E itself.
export const CELLS = alphaKTable(ALPHAS, KS, 0);

const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const power = (i) => (i < 2 ? "" : String(i).replace(/\d/g, (digit) => SUPERSCRIPTS[digit]));

/** "1 + .7 + .7² + .7³ = 2.53" */
function written(alpha, k) {
  const base = rounded(alpha, 2).replace(/^0/, "").replace(/0$/, "");
  const parts = ["1", ...Array.from({ length: k }, (_, i) => base + power(i + 1))];
  return `${parts.join(" + ")} = ${rounded(expectedTokens(alpha, k))}`;
}

const near = (list, value) => list.findIndex((each) => Math.abs(each - value) < 1e-9);

/** @param {{alpha: {value: number}, k: {value: number}}} state the ladder's signals: picking a cell sets them */
export function tokensTable({ alpha, k }) {
  const sum = h("p.sum-written");
  const ring = () => {
    const [row, column] = [near(ALPHAS, alpha.value), near(KS, k.value)];
    return row < 0 || column < 0 ? null : [row, column];
  };
  const grid = heatGrid({
    corner: "α \\ K",
    rows: ALPHAS.map((a) => rounded(a)),
    columns: KS,
    value: (r, c) => CELLS[r][c],
    format: (x) => rounded(x),
    label: "Tokens a round",
    ring: ring(),
    onPick: (r, c) => {
      alpha.value = ALPHAS[r];
      k.value = KS[c];
    },
  });
  watch([alpha, k], (a, n) => {
    grid.set({ ring: ring() });
    fill(sum, `E(${rounded(a)}, ${n}) = ${written(a, n)}`);
  });
  return figure({
    label: "Tokens a round for four acceptances and five draft lengths",
    title: true,
    body: append(h("div"), grid.element, sum),
    caption:
      "Pick a cell: the ladder above follows. Read a row from left to right: each column adds less than the one before, and the lower α is, the sooner it stops growing.",
    table: () => ({
      columns: ["α", ...KS.map((n) => `K = ${n}`)],
      rows: ALPHAS.map((a, r) => [rounded(a), ...CELLS[r].map((x) => rounded(x))]),
    }),
  }).element;
}
