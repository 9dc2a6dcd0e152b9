// The ladder: rung i is reached if i guesses in a row pass, and the rungs laid end to end are the tokens of a round.

import { expectedTokens, ceiling } from "hs/algorithm/theory";
import { fill, h, watch } from "hs/base/dom";
import { probability } from "hs/base/format";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { rounded } from "hs/lessons/chapters/tables";
import { tell } from "hs/lessons/parts";

const share = (x) => `${(100 * x).toFixed(3)}%`;

/** What rung i is, in words. */
function rung(i, alpha) {
  if (i === 0) return "The target’s own token comes in every round: 1.";
  const guesses = i === 1 ? "guess 1 passes" : `guesses 1 to ${i} all pass`;
  return `Rung ${i} is reached if ${guesses}: ${probability(alpha ** i)}.`;
}

/** @param {{alpha: {value: number}, k: {value: number}}} state signals that the sentences around it share */
export function ladder({ alpha, k }) {
  const stairs = h("div.ladder", { "aria-hidden": "true" });
  const line = h("div.ladder-sum", { "aria-hidden": "true" });
  const axis = h("p.ladder-axis.soft", { "aria-hidden": "true" });
  const words = h("p.ladder-words");
  let upTo = 0;

  function draw() {
    const [a, most] = [alpha.value, k.value];
    const at = Math.min(upTo, most);
    const kinds = (i) => (i > at ? ".ghost" : i === 0 ? ".own" : "");
    const heights = Array.from({ length: most + 1 }, (_, i) => a ** i);
    fill(
      stairs,
      heights.map((height, i) =>
        h(
          `div.rung${kinds(i)}`,
          {},
          h("span.rung-value", i > at ? "" : probability(height)),
          h("span.rung-bar", { style: { height: share(height) } }),
          h("span.rung-name", i === 0 ? "own" : `${i}`),
        ),
      ),
    );
    const top = ceiling(a);
    fill(
      line,
      heights.map((height, i) => h(`span.ladder-piece${kinds(i)}`, { style: { width: share(height / (most + 1)) } })),
      at === most && a < 0.9 && h("span.ladder-total", rounded(expectedTokens(a, most))),
      top <= most + 1 && h("span.ladder-ceiling", { style: { left: share(top / (most + 1)) } }),
    );
    const beyond = top > most + 1 ? " and lies beyond this picture" : ", the thick line";
    axis.textContent = `The same pieces, end to end. The ceiling is ${a === 1 ? "infinite" : rounded(top)}${a === 1 ? "" : beyond}.`;
    const sofar = heights.slice(0, at + 1).reduce((x, y) => x + y, 0);
    const rest = at < most ? "" : ` That is all of it: a round of ${most} guesses gives ${rounded(expectedTokens(a, most))} tokens on average.`;
    tell(words, `${rung(at, a)} So far ${rounded(sofar)}.${rest}`);
  }

  const shown = figure({
    label: "A ladder of guesses: how likely each rung is, and the sum of all rungs",
    title: true,
    body: [
      stairs,
      axis,
      line,
      words,
    ],
    controls: [
      slider({ label: "α, acceptance", value: alpha, min: 0, max: 1, step: 0.01, format: (x) => rounded(x) }),
      slider({ label: "K, guesses a round", value: k, min: 1, max: 12, step: 1 }),
    ],
    caption: "Step through the rungs. Each rung is α times as high as the one before it.",
    table: () => ({
      columns: ["rung", "chance to reach it", "tokens so far"],
      rows: Array.from({ length: k.value + 1 }, (_, i) => [
        i,
        rounded(alpha.value ** i, 4),
        rounded(expectedTokens(alpha.value, i), 4),
      ]),
      caption: `α = ${rounded(alpha.value)}, K = ${k.value}; ceiling ${rounded(ceiling(alpha.value), 2)}`,
    }),
    steps: {
      count: () => k.value + 1,
      show: (i) => {
        upTo = i;
        draw();
      },
      words: (i) => rung(i, alpha.value),
    },
  });
  watch([alpha, k], () => {
    if (upTo > k.value) shown.go(k.value);
    draw();
    shown.update();
  });
  // The place reads "1 of 6", and its end moves with K.
  k.watch(() => shown.go(shown.step.value));
  return shown.element;
}
