// Rounds by dice: each guess passes with chance alpha, and the first that fails ends the round.

import { RandomState } from "hs/algorithm/randomstate";
import { acceptedLengths, expectedTokens } from "hs/algorithm/theory";
import { announce } from "hs/base/announce";
import { fill, h, watch } from "hs/base/dom";
import { counted, percent } from "hs/base/format";
import { histogram } from "hs/figures/charts";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

const SEED = 6;

/** How many guesses pass before one fails, and the dice that were thrown. */
export function throwRound(alpha, k, rng) {
  const thrown = [];
  for (let i = 0; i < k; i++) {
    thrown.push(rng.random());
    if (thrown[i] >= alpha) return { accepted: i, thrown };
  }
  return { accepted: k, thrown };
}

/** @param {{alpha: {value: number}, k: {value: number}}} state the ladder's signals */
export function dice({ alpha, k }) {
  let rng, counts, last;
  const words = h("p.dice-words");
  const thrown = h("p.dice-thrown", { "aria-hidden": "true" });
  const total = () => counts.reduce((x, y) => x + y, 0);
  const mean = () => counts.reduce((sum, count, i) => sum + count * (i + 1), 0) / total();
  const bins = () => {
    const expected = acceptedLengths(alpha.value, k.value);
    const rounds = Math.max(total(), 1);
    return expected.map((chance, i) => ({ label: `${i + 1}`, value: counts[i] / rounds, expected: chance }));
  };
  const reset = () => {
    rng = new RandomState(SEED);
    counts = Array(k.value + 1).fill(0);
    last = null;
  };
  reset();
  const chart = histogram({ bins: bins(), format: (share) => percent(share), names: ["thrown", "expected"] });

  function say() {
    if (!total()) return "No round thrown yet. The dashes show what the formula expects.";
    const ending = last.accepted === k.value ? "all guesses passed" : `guess ${last.accepted + 1} failed`;
    const now = `The last round: ${ending}, so it gave ${counted(last.accepted + 1, "token")}.`;
    return `${now} Mean of ${counted(total(), "round")}: ${rounded(mean())} tokens. The formula: ${rounded(expectedTokens(alpha.value, k.value))}.`;
  }

  function draw() {
    chart.set({ bins: bins() });
    tell(words, say());
    fill(
      thrown,
      Array.from({ length: k.value }, (_, i) => {
        const number = last?.thrown[i];
        const kind = number === undefined ? ".unthrown" : number < alpha.value ? ".pass" : ".fail";
        return h(`span.dice-die${kind}`, number === undefined ? "" : number.toFixed(2).replace(/^0/, ""));
      }),
    );
    shown.update();
  }

  const play = (rounds, { quiet = false } = {}) => () => {
    for (let i = 0; i < rounds; i++) {
      last = throwRound(alpha.value, k.value, rng);
      counts[last.accepted]++;
    }
    draw();
    if (!quiet) announce(say());
  };
  const shown = figure({
    label: "Rounds by dice against the formula: share of rounds by the tokens they gave",
    title: true,
    body: [thrown, chart.element, words],
    controls: [
      button("Throw one round", play(1)),
      button("Throw 100", play(100), { quiet: true }),
      button("Throw 10,000", play(10_000), { quiet: true }),
      button("Begin again", () => (reset(), draw()), { quiet: true }),
    ],
    caption: "A guess passes if its die falls below α. Rounds are short or full, seldom in between; E is only their mean.",
    table: () => ({
      columns: ["tokens", "expected share", "rounds", "share"],
      rows: bins().map(({ label, value, expected }, i) => [
        label,
        percent(expected, 2),
        counts[i],
        total() ? percent(value, 2) : "–",
      ]),
      caption: total() ? `mean ${rounded(mean(), 3)}` : "nothing thrown yet",
    }),
  });
  watch([alpha, k], () => {
    reset();
    play(20, { quiet: true })();
  });
  return shown.element;
}
