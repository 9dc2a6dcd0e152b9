// The best draft length, the lengths that are as good within 2%, and what a printed table says.

import { bestK, speedup } from "hs/algorithm/theory";
import { fill, h, watch } from "hs/base/dom";
import { percent } from "hs/base/format";
import { figure } from "hs/figures/figure";
import { MOST, controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

/** How much less than the best counts as good enough. */
export const REGRET = 0.02;

export const ROWS = [
  { alpha: 0.5, printed: 2 },
  { alpha: 0.7, printed: 3 },
  { alpha: 0.85, printed: 5 },
  { alpha: 0.9, printed: 6 },
  { alpha: 0.95, printed: 8 },
];

/** Best K, its speedup, and the shortest and longest K that lose no more than `REGRET`. */
export function optimum(alpha, c, v = null) {
  const { k, speedup: most } = bestK(alpha, c, v, MOST);
  const good = Array.from({ length: MOST + 1 }, (_, n) => n).filter((n) => speedup(alpha, n, c, v) >= most * (1 - REGRET));
  return { k, speedup: most, from: good[0], to: good.at(-1) };
}

const at = (k) => `${(100 * (k + 0.5)) / (MOST + 1)}%`;
const range = ({ from, to }) => (from === to ? `${from}` : `${from} to ${to}`);

export function bestTable(state) {
  const tracks = h("div.best-tracks", { "aria-hidden": "true" });
  const words = h("p.break-words");
  const found = () => ROWS.map(({ alpha, printed }) => ({ alpha, printed, ...optimum(alpha, state.c.value, state.v()) }));
  const shown = figure({
    label: "The best K by acceptance, and every K that is within 2% of it",
    title: true,
    body: [
      tracks,
      h("ul.legend", {}, h("li", "★ the best K"), h("li.key-band", "at most 2% slower"), h("li", "○ K in a table that you may meet in print (for c = 0.1)")),
      words,
    ],
    controls: controls(state, "c", "machine"),
    caption: "The bands are wide: one or two guesses more or less hardly matter. The circles drift out of them as α grows, because the printed lengths do not follow from the formula beside them.",
    table: () => ({
      columns: ["α", "best K", "speedup", "within 2%", "K in print", "its speedup", "given away"],
      rows: found().map((each) => {
        const theirs = speedup(each.alpha, each.printed, state.c.value, state.v());
        return [rounded(each.alpha), each.k, rounded(each.speedup), range(each), each.printed, rounded(theirs), percent(1 - theirs / each.speedup, 1)];
      }),
      caption: `c = ${rounded(state.c.value)}, K up to ${MOST}`,
    }),
  });
  watch([state.c, state.machine], () => {
    fill(
      tracks,
      found().map((each) =>
        h(
          "div.best-track",
          {},
          h("span.best-name", `α = ${rounded(each.alpha)}`),
          h(
            "span.best-line",
            {},
            h("span.best-band", { style: { left: `${(100 * each.from) / (MOST + 1)}%`, width: `${(100 * (each.to - each.from + 1)) / (MOST + 1)}%` } }),
            h("span.best-printed", { style: { left: at(each.printed) } }, "○"),
            h("span.best-star", { style: { left: at(each.k) } }, "★"),
          ),
          h("span.best-gain", `K = ${each.k}: ${rounded(each.speedup)}×`),
        ),
      ),
      h("div.best-track.scale", {}, h("span.best-name", "K"), h("span.best-line", {}, [0, 4, 8, 12, 16].map((k) => h("span.best-tick", { style: { left: at(k) } }, `${k}`)))),
    );
    const one = found()[2];
    tell(words, `At α = ${rounded(one.alpha)} the best K is ${one.k}, with ${rounded(one.speedup)}×, and ${range(one)} are within 2% of it.`);
    shown.update();
  });
  return shown.element;
}
