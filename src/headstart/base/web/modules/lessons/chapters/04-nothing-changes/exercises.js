// The exercises of chapter 4: residuals by hand, distributions of one's own, and an overlap by dragging.

import { h } from "hs/base/dom";
import { FRACTIONS, fractions, sum } from "hs/algorithm/arithmetic";
import { emittedDistribution } from "hs/algorithm/enumerate";
import { overlap, residual } from "hs/algorithm/distributions";
import { fraction, parse } from "hs/algorithm/rational";
import { SMALL, distributionOf, short } from "hs/lessons/chapters/04-nothing-changes/two-distributions";
import { towers } from "hs/lessons/chapters/04-nothing-changes/towers";
import { exercise } from "hs/lessons/exercise";
import { prose } from "hs/lessons/parts";

const WORDS = SMALL.words;

/** A residual to be worked out: three fractions. */
export function residualExercise({ id, title, p, q, more = null }) {
  const [P, Q] = [fractions(p), fractions(q)];
  const right = residual(P, Q);
  return exercise({
    id,
    title,
    ask: [prose("The target has p = [", p.join(", "), "], the draft has q = [", q.join(", "), "] over “the”, “cat”, “sat”. A guess has been refused. From which distribution is the word in its place drawn?"), more],
    fields: WORDS.map((word) => ({ name: word, label: word, kind: "fraction" })),
    check: (values) => {
      const given = [];
      for (const word of WORDS) {
        try {
          given.push(parse(values[word]));
        } catch (error) {
          return { ok: false, say: `${error.message}.`, fields: { [word]: "bad" } };
        }
      }
      // Three decimals are as good as a fraction.
      const good = given.map((x, i) => Math.abs(x.toNumber() - right[i].toNumber()) < 0.0006);
      const fields = Object.fromEntries(WORDS.map((word, i) => [word, good[i] ? "good" : "bad"]));
      if (good.every(Boolean)) return { ok: true, say: `Yes: max(p − q, 0) = [${P.map((x, i) => short(FRACTIONS.max(x.minus(Q[i]), FRACTIONS.zero))).join(", ")}], divided by its sum.`, fields };
      const rest = P.map((x, i) => FRACTIONS.max(x.minus(Q[i]), FRACTIONS.zero));
      const undivided = given.every((x, i) => x.equals(rest[i]));
      const itself = given.every((x, i) => x.equals(P[i]));
      if (itself) return { ok: false, say: "That is p itself. A part of p came out with the guesses that were kept; after a refusal only the rest is owed: what p has beyond q.", fields };
      return { ok: false, say: undivided ? "That is what p has beyond q. A distribution adds up to 1: divide by the sum." : !sum(given).equals(FRACTIONS.one) ? `Your three chances add up to ${short(sum(given))}; a distribution adds up to 1.` : "Not this distribution. Where q has more than p, nothing is left over.", fields };
    },
    hints: ["Take p − q for each word, and write 0 where it is negative.", "Then divide all three by their sum, so that they add up to 1."],
    solution: () => `p − q = [${P.map((x, i) => short(x.minus(Q[i]))).join(", ")}]. Without what is negative, and divided by the sum: [${right.map(short).join(", ")}].`,
    answer: Object.fromEntries(WORDS.map((word, i) => [word, short(right[i])])),
  });
}

/** Distributions of one's own with a property: alpha 3/4, and every correction the same word. */
export function ownExercise() {
  const names = ["p", "q"].flatMap((distribution) => WORDS.map((word) => [`${distribution}-${word}`, `${distribution} of ${word}`]));
  const read = (values, distribution) => distributionOf(WORDS.map((word) => values[`${distribution}-${word}`]));
  return exercise({
    id: "04.3",
    title: "Numbers of your own",
    ask: "Write a p and a q over the three words so that three guesses of four are kept in the long run, and every correction is “sat”.",
    fields: names.map(([name, label]) => ({ name, label, kind: "fraction" })),
    check: (values) => {
      let p, q;
      try {
        [p, q] = [read(values, "p"), read(values, "q")];
      } catch (error) {
        return { ok: false, say: `${error.message}.` };
      }
      const [alpha, rest] = [overlap(p, q), residual(p, q)];
      const wanted = alpha.equals(fraction("3/4"));
      const sat = rest[2].equals(FRACTIONS.one);
      if (wanted && sat) return { ok: true, say: `Yes: α = 3/4, and the residual is [${rest.map(short).join(", ")}]. Checked by enumeration: [${emittedDistribution(p, q).map(short).join(", ")}] comes out, which is your p.` };
      return { ok: false, say: `Yours has α = ${short(alpha)}${wanted ? ", as it should" : " and not 3/4"}. After a refusal the words come with chances [${rest.map(short).join(", ")}]${sat ? ", as they should." : ": all should be on “sat”."}` };
    },
    hints: ["Only at “sat” may q have less than p; at “the” and “cat” it must have at least as much.", "At “sat”, p must exceed q by 1/4, since that is what is refused elsewhere."],
    solution: () => "For instance p = [1/4, 1/4, 1/2] and q = [1/2, 1/4, 1/4]: they share 1/4 + 1/4 + 1/4, and only “sat” has more in p.",
    answer: { "p-the": "1/4", "p-cat": "1/4", "p-sat": "1/2", "q-the": "1/2", "q-cat": "1/4", "q-sat": "1/4" },
  });
}

/** Make alpha exactly 7/10 by dragging q; p stays. */
export function dragExercise() {
  const start = { words: WORDS, p: ["2/5", "2/5", "1/5"], q: ["1/10", "1/10", "4/5"] };
  const now = h("output.alpha-now");
  const tower = towers({ ...start, onChange: (p, q) => (now.textContent = `α = ${short(overlap(p, q))} = ${overlap(p, q).toDecimal(2)}`) });
  return exercise({
    id: "04.4",
    title: "Seven in ten",
    ask: "Drag the towers until exactly 7/10 of the guesses are kept. Many positions are right.",
    widget: { element: h("div", {}, tower.element, now), read: () => tower.distributions.value },
    check: ({ p, q }) => {
      const alpha = overlap(p, q);
      if (alpha.equals(fraction("7/10"))) return { ok: true, say: `α is 7/10 exactly: the green parts add up to ${short(alpha)}.` };
      return { ok: false, say: `α is ${short(alpha)}. ${alpha.less(fraction("7/10")) ? "Make the towers more alike" : "Make the towers less alike"}.` };
    },
    hints: ["α is the sum of the green parts: the smaller tower of each pair.", "Leave p as it is. Raise q of “the”: what it gains, the other two of q lose."],
    solution: () => "With p = [2/5, 2/5, 1/5], one of many is q = [1/2, 1/10, 2/5]: the smaller ones are 2/5 + 1/10 + 1/5 = 7/10.",
    solve: () => tower.set(["2/5", "2/5", "1/5"], ["1/2", "1/10", "2/5"]),
  });
}
