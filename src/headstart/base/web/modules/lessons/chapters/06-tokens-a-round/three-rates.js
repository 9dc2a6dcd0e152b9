// Three figures that are all called "acceptance", counted from one recorded run of the published toy.

import { expectedTokens } from "hs/algorithm/theory";
import { recordedRun } from "hs/algorithm/toy";
import { fill, h, signal, watch } from "hs/base/dom";
import { percent } from "hs/base/format";
import { choice } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { rounded } from "hs/lessons/chapters/tables";

const GAMMAS = [3, 5, 7];

const RATES = [
  {
    name: "conditional",
    words: "accepted of judged",
    over: (n) => n.accepted,
    under: (n) => n.judged,
    as: percent,
    top: ["accepted"],
    bottom: ["accepted", "refused"],
    says: "Of the guesses that the rule looked at, so many passed. This is α, the number that the formula wants.",
  },
  {
    name: "of drafted",
    words: "accepted of drafted",
    over: (n) => n.accepted,
    under: (n) => n.draftCalls,
    as: percent,
    top: ["accepted"],
    bottom: ["accepted", "refused", "skipped"],
    says: "Of all guesses that were paid for, so many were used. It falls as drafts get longer, even if the draft is as good as before.",
  },
  {
    name: "per round",
    words: "tokens a round",
    over: (n) => n.emitted,
    under: (n) => n.targetCalls,
    as: (x) => rounded(x),
    top: ["accepted", "end"],
    bottom: ["row"],
    says: "Tokens for each forward of the target: what you gain. It includes the target’s own token at the end of every round.",
  },
  {
    name: "printed",
    words: "all tokens of drafted",
    over: (n) => n.emitted,
    under: (n) => n.draftCalls,
    as: percent,
    top: ["accepted", "end"],
    bottom: ["accepted", "refused", "skipped"],
    says: "The figure that was printed with this run. It counts corrections and bonus tokens as accepted guesses, which they are not: no formula takes it.",
  },
];

function marksOf(round, gamma) {
  const guesses = Array.from({ length: gamma }, (_, i) =>
    i < round.accepted ? ["accepted", "✓"] : i === round.accepted ? ["refused", "✗"] : ["skipped", "·"],
  );
  return [...guesses, ["end", round.accepted === gamma ? "★" : "+"]];
}

export function threeRates() {
  const gamma = signal(7);
  const rate = signal("conditional");
  const runs = new Map();
  const runOf = (k) => runs.get(k) ?? runs.set(k, recordedRun(k)).get(k);
  const rows = h("div.rate-rows", { "aria-hidden": "true" });
  const result = h("p.rate-result");
  const says = h("p.rate-says");

  const shown = figure({
    label: "One run of 50 tokens, counted in different ways",
    title: true,
    body: [
      rows,
      h("p.rate-legend.soft", {}, "✓ accepted, ✗ refused, · never looked at, + the target’s correction, ★ its bonus token. One row is one round."),
      result,
      says,
    ],
    controls: [
      choice({ label: "Count", value: rate, options: RATES.map((each) => [each.name, each.words]) }),
      choice({ label: "Guesses a round", value: gamma, options: GAMMAS.map((k) => [k, `${k}`]) }),
    ],
    caption: "A published toy of ten words, “the cat sat” and 50 more tokens, seed 42: the same run, token for token.",
    table: () => ({
      columns: ["K", "target calls", "draft calls", "judged", "accepted", "tokens", ...RATES.map((each) => each.words)],
      rows: GAMMAS.map((k) => {
        const n = runOf(k);
        const all = RATES.map((each) => each.as(each.over(n) / each.under(n), each.as === percent ? 1 : 2));
        return [k, n.targetCalls, n.draftCalls, n.judged, n.accepted, n.emitted, ...all];
      }),
    }),
  });
  watch([gamma, rate], (k, name) => {
    const n = runOf(k);
    const chosen = RATES.find((each) => each.name === name);
    fill(
      rows,
      n.rounds.map((round) =>
        h(
          `div.rate-row${chosen.bottom.includes("row") ? ".counted" : ""}`,
          {},
          marksOf(round, k).map(([kind, sign]) => {
            const marks = `${chosen.top.includes(kind) ? ".over" : ""}${chosen.bottom.includes(kind) ? ".under" : ""}`;
            return h(`span.rate-mark.${kind}${marks}`, sign);
          }),
        ),
      ),
    );
    const value = chosen.over(n) / chosen.under(n);
    fill(result, h("strong", `${chosen.over(n)} / ${chosen.under(n)} = ${chosen.as(value, 1)}`), ` ${chosen.words}`);
    const predicted =
      name === "per round" ? "" : ` Put into the formula, it predicts ${rounded(expectedTokens(value, k))} tokens a round; the run made ${rounded(n.emitted / n.targetCalls)}.`;
    fill(says, chosen.says + predicted);
    shown.update();
  });
  return shown.element;
}
