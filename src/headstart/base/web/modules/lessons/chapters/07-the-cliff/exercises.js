// The exercises of chapter 7.

import { breakEvenAlpha, speedup } from "hs/algorithm/theory";
import { h } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { each, near, numberIn, slip } from "hs/lessons/chapters/answers";
import { REGRET, optimum } from "hs/lessons/chapters/07-the-cliff/best";
import { exercise } from "hs/lessons/exercise";

const number = (name, label, unit) => ({ name, label, kind: "number", ...(unit ? { unit } : {}) });

const RUN = { tokens: 50, calls: 17, drafts: 119 };

const real = (c) => RUN.tokens / (RUN.calls + RUN.drafts * c);

const realJudge = (c, rough) => (answer) =>
  near(answer, real(c))
    ? ""
    : slip(
        answer,
        [
          [RUN.tokens / RUN.calls, `At c = ${c}: 2.94 counts target calls only. The ${RUN.drafts} draft steps take time as well.`],
          [1 / real(c), `At c = ${c}: upside down. Speedup is plain time over new time.`],
          ...rough,
        ],
        `At c = ${c}: plain decoding takes 50 plain steps. The run takes 17 of them and 119 draft steps of ${c} each.`,
        0.02,
      );

export const wallClock = () =>
  exercise({
    id: "07.1",
    title: "Fewer calls are not less time",
    ask: "A run of 50 tokens at seven guesses a round: 17 calls of the target, 119 of the draft. How much faster was it than plain decoding, if a draft step costs 0.2 of a plain step? And if it costs 0.5?",
    fields: [number("fifth", "Speedup at c = 0.2", "×"), number("half", "Speedup at c = 0.5", "×")],
    check: each(
      {
        fifth: realJudge(0.2, [[1.5, "1.5 has been printed for this run as a rough figure. It is not that much: work it out."]]),
        half: realJudge(0.5, [[0.84, "0.84 is another table’s cell, for α = 0.7 and K = 5. Count the steps of this run."]]),
      },
      "Right: 1.23 and 0.65. Nearly three times fewer calls, and yet at c = 0.5 it takes half as long again as plain decoding.",
    ),
    hints: ["Count everything in plain steps. The draft’s part is 119 × c.", "c = 0.2: 17 + 23.8 = 40.8 plain steps for 50 tokens."],
    solution: () => "50 / (17 + 119 × 0.2) = 50 / 40.8 = 1.23. 50 / (17 + 119 × 0.5) = 50 / 76.5 = 0.65.",
    answer: { fifth: "1.23", half: "0.65" },
  });

export const perfect = () =>
  exercise({
    id: "07.4",
    title: "The perfect draft",
    ask: "A draft that is always right (q = p), at c = 0.1. Rows are free.",
    fields: [number("five", "Speedup at K = 5", "×"), number("limit", "What it stays below for every K", "×")],
    check: each(
      {
        five: (x) =>
          near(x, 4)
            ? ""
            : slip(x, [[6, "Six is the tokens of a round. Five guesses at 0.1 and a check take time as well."], [5, "A round gives K + 1 tokens: the bonus is one of them."], [3.33, "A round gives K + 1 = 6 tokens: the bonus is one of them."]], "Tokens of a round over its cost: (K + 1) / (1 + cK)."),
        limit: (x) =>
          near(x, 10)
            ? ""
            : slip(x, [[4, "Longer drafts give more than 4 here: try K = 50."]], "Let K grow in (K + 1) / (1 + cK): what matters in the end is one guess, which costs c and gives one token."),
      },
      "Right: 4.0 at K = 5, and never more than 1/c = 10. Even a draft that is never wrong is only as fast as it drafts.",
    ),
    hints: ["At α = 1 a round gives K + 1 tokens and costs 1 + cK.", "For K = 1000: 1001 / 101."],
    solution: () => "6 / (1 + 0.5) = 4.0. For large K, (K + 1) / (1 + cK) tends to 1/c = 10.",
    answer: { five: "4", limit: "10" },
  });

const SAME = [
  ["faster", "Faster: nothing is ever refused, so every round gives K + 1 tokens"],
  ["equal", "As fast as plain decoding at best: every token is computed once by the draft, and checked besides"],
  ["wrong", "It changes the text: the draft decides what is said"],
];

export const sameModel = () =>
  exercise({
    id: "07.5",
    title: "The target as its own draft",
    ask: "Someone loads the same model twice, as target and as draft, so that every guess is right. What happens, and what does the formula say at K = 5?",
    fields: [{ name: "what", label: "What happens", kind: "choice", options: SAME }, number("speed", "Speedup at K = 5", "×")],
    check: (values) => {
      const why = {
        faster: "A round does give K + 1 tokens. But what does it cost, if each guess takes a whole plain step?",
        wrong: "The rule keeps the target’s distribution whatever the draft is. The text is right; the time is not.",
      };
      const speed = numberIn(values.speed);
      const wrong = [
        values.what === "equal" ? "" : (why[values.what] ?? "Choose what happens."),
        near(speed, 1)
          ? ""
          : slip(speed, [[6, "Six tokens a round, yes; and what does the round cost at c = 1?"]], "Here c = 1, because a draft step is a plain step: (K + 1) / (1 + cK)."),
      ];
      return {
        ok: !wrong.some(Boolean),
        say: wrong.some(Boolean)
          ? wrong.filter(Boolean).join(" ")
          : "Right: 6 / (1 + 5) = 1.00 with free rows, and below 1 as soon as anything else costs time. A draft has to be much cheaper than the target; ten to thirty times is usual.",
        fields: { what: wrong[0] ? "bad" : "good", speed: wrong[1] ? "bad" : "good" },
      };
    },
    hints: ["What is c if both are the same model?", "(K + 1) / (1 + 1 × K)"],
    solution: () => "c = 1, so the speedup is 6 / 6 = 1.00 at best: five guesses cost five plain steps, and the check a sixth. What is checked was computed by the same weights just before.",
    answer: { what: "equal", speed: "1" },
  });

export const least = () => {
  const judge = (c) => (x) => {
    const right = breakEvenAlpha(5, c);
    if (near(x, right, 0.0101)) return "";
    if (near(x, c, 0.001)) return `At c = ${c}: α = c is where K = 1 begins to pay. Five guesses need more.`;
    return x > 0 && x < 1
      ? `At c = ${c}: with α = ${x} the speedup at K = 5 is ${fixed(speedup(x, 5, c), 3)}; go ${x < right ? "up" : "down"}.`
      : "α lies between 0 and 1.";
  };
  return exercise({
    id: "07.3",
    title: "From where on does it pay?",
    ask: "K = 5, rows are free. Find the least α that gains anything, to two decimals. The figures help.",
    fields: [number("fifth", "at c = 0.2: α ="), number("half", "at c = 0.5: α =")],
    check: each({ fifth: judge(0.2), half: judge(0.5) }, "Right: 0.51 and 0.78. The more expensive the guess, the better it has to be."),
    hints: ["Look for E(α, 5) = 1 + 5c: 2 at c = 0.2, and 3.5 at c = 0.5.", "Set K = 5 and the price in the figure above, and read the sentence under it."],
    solution: () => `E(α, 5) = 2 at α = ${fixed(breakEvenAlpha(5, 0.2), 3)}; E(α, 5) = 3.5 at α = ${fixed(breakEvenAlpha(5, 0.5), 3)}.`,
    answer: { fifth: "0.51", half: "0.78" },
  });
};

/** The five cases to choose a draft length for. */
export const CASES = [
  { name: "a", alpha: 0.5, c: 0.1 },
  { name: "b", alpha: 0.7, c: 0.05 },
  { name: "c", alpha: 0.85, c: 0.1 },
  { name: "d", alpha: 0.95, c: 0.1 },
  { name: "e", alpha: 0.3, c: 0.5 },
];

function regretOf({ alpha, c }) {
  const best = optimum(alpha, c);
  return (k) => {
    const where = `α = ${alpha}, c = ${c}: `;
    if (!Number.isInteger(k) || k < 0 || k > 16) return `${where}K is a whole number from 0 (no draft) to 16.`;
    const lost = 1 - speedup(alpha, k, c) / best.speedup;
    if (lost <= REGRET) return "";
    const gain = speedup(alpha, k, c);
    const advice = best.k === 0 ? "Is there any K that gains?" : k < best.k ? "Longer drafts pay here." : "Shorter drafts pay here.";
    return `${where}K = ${k} gives ${fixed(gain)}×, which is ${percent(lost)} less than the best. ${advice}`;
  };
}

export const chooseK = () =>
  exercise({
    id: "07.2",
    title: "Choose K",
    ask: h("p", "Five drafts, five lengths, from 0 (do not draft) to 16. Any K that gives away at most 2% counts as right: the exact optimum is not needed."),
    fields: CASES.map(({ name, alpha, c }) => number(name, `α = ${alpha}, c = ${c}: K =`)),
    check: each(
      Object.fromEntries(CASES.map((one) => [one.name, regretOf(one)])),
      "All within 2%. Note the last one: below break-even the best length is 0. Do not tune K there; find or train a better draft.",
    ),
    hints: [
      "Set α and c in the bar chart and look for the star.",
      "In the last case one guess costs half a token and passes in three cases of ten.",
    ],
    solution: () =>
      h(
        "ul",
        {},
        CASES.map((one) => {
          const best = optimum(one.alpha, one.c);
          const also = best.from === best.to ? "" : ` (${best.from} to ${best.to} are within 2%)`;
          return h("li", `α = ${one.alpha}, c = ${one.c}: K = ${best.k}, ${fixed(best.speedup)}×${also}`);
        }),
      ),
    answer: { a: "2", b: "5", c: "7", d: "15", e: "0" },
  });
