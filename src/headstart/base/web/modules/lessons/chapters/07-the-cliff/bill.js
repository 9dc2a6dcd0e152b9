// The bill of one round beside plain decoding of as many tokens, in plain steps.

import { append, h, watch } from "hs/base/dom";
import { counted } from "hs/base/format";
import { gantt } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { controls } from "hs/lessons/chapters/07-the-cliff/state";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

/** Blocks of the same length, one after the other; the last may be cut short. */
const blocks = (total, each, kind, label) =>
  Array.from({ length: Math.ceil(total / each - 1e-9) }, (_, i) => ({
    from: i * each,
    to: Math.min((i + 1) * each, total),
    kind,
    label: label(i),
  }));

function lanes(state) {
  const [k, c] = [state.k.value, state.c.value];
  const drafts = c > 0 ? blocks(k * c, c, "draft", (i) => `guess ${i + 1}`) : [];
  return [
    { name: "one round", blocks: [...drafts, { from: k * c, to: state.cost(), kind: "verify", label: "check" }] },
    { name: "plain", blocks: blocks(state.tokens(), 1, "plain", (i) => `token ${i + 1}`) },
  ];
}

export function bill(state) {
  const chart = gantt({ lanes: lanes(state), unit: "plain steps" });
  const words = h("p.bill-words");
  const shown = figure({
    label: "What a round costs, and what its tokens would have cost one by one",
    title: true,
    body: append(h("div"), chart.element, words),
    controls: controls(state, "alpha", "k", "c"),
    caption: "Unit: one forward of the target with one row, a plain step. Above: the draft’s steps, then one check. Below: as many tokens as the round gives on average, decoded one by one.",
    table: () => ({
      columns: ["", "plain steps"],
      rows: [
        ["drafting", rounded(state.k.value * state.c.value, 3)],
        ["checking", rounded(state.cost() - state.k.value * state.c.value, 3)],
        ["the round", rounded(state.cost(), 3)],
        ["its tokens one by one", rounded(state.tokens(), 3)],
        ["speedup", rounded(state.speedup(), 3)],
      ],
    }),
  });
  watch(state.all, () => {
    chart.set({ lanes: lanes(state) });
    const gain = state.speedup();
    tell(
      words,
      `${counted(state.k.value, "guess", "guesses")} and a check take ${rounded(state.cost())} plain steps and give ${rounded(state.tokens())} tokens: `,
      h("strong", `${rounded(gain)}×`),
      gain < 0.9995 ? ", slower than plain decoding." : gain < 1.0005 ? ", no gain and no loss." : " as fast.",
    );
    shown.update();
  });
  return shown.element;
}
