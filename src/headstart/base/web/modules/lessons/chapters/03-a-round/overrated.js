// The two distributions after "the cat", word by word: who is overrated, and how often each word would be kept.

import { h } from "hs/base/dom";
import { percent } from "hs/base/format";
import { WORDS, drafter, target, tokensOf } from "hs/algorithm/toy";
import { figure } from "hs/figures/figure";
import { distributionBars } from "hs/figures/distributions";

const CONTEXT = tokensOf("the cat");

/** A probability with so many digits that p/q, divided by hand, is the share that is told. */
export const precise = (value) => value.toPrecision(4).replace(/^0/, "");

export function overrated() {
  const [p, q] = [target(CONTEXT), drafter(CONTEXT)];
  const bars = distributionBars({ words: WORDS, p, q, height: 140 });
  const sentence = h("p.step-words");
  const words = (i) => {
    const [a, b] = [p[i], q[i]];
    const facts = `“${WORDS[i]}”: p = ${precise(a)}, q = ${precise(b)}.`;
    return a >= b ? `${facts} The draft underrates it: always kept.` : `${facts} The draft overrates it: kept in ${percent(a / b, 1)} of all cases.`;
  };
  return figure({
    label: "Target and draft after “the cat”",
    title: true,
    body: [bars.element, sentence],
    caption: "Step through the ten words. A guess is only ever refused where the hatched bar is the taller one.",
    table: () => ({ columns: ["word", "p", "q", "kept, min(1, p/q)"], rows: WORDS.map((word, i) => [word, p[i].toFixed(3), q[i].toFixed(3), Math.min(1, p[i] / q[i]).toFixed(3)]) }),
    steps: { count: WORDS.length, show: (i) => { bars.set({ mark: i }); sentence.textContent = words(i); }, words },
  }).element;
}
