// The exercises of chapter 6.

import { expectedTokens } from "hs/algorithm/theory";
import { append, h } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { each, near, slip } from "hs/lessons/chapters/answers";
import { exercise } from "hs/lessons/exercise";

const number = (name, label) => ({ name, label, kind: "number" });

/** One value of E: right to two decimals, and the ways to get it wrong that are known. */
function judged(alpha, k) {
  const right = expectedTokens(alpha, k);
  const at = `At α = ${alpha}, K = ${k}: `;
  return (answer) =>
    near(answer, right)
      ? ""
      : slip(
          answer,
          [
            [right - 1, `${at}you counted the accepted guesses only. The target adds one token of its own in every round.`],
            [alpha * k + 1, `${at}αK + 1 would be right if every guess were looked at. After a refusal the rest is thrown away.`],
            [alpha * k, `${at}αK would be the accepted guesses if every guess were looked at. After a refusal the rest is thrown away, and the target adds a token.`],
            [expectedTokens(alpha, k - 1), `${at}one term is missing: the sum goes up to α^K, so the power in the closed form is K + 1.`],
            [expectedTokens(alpha, k + 1), `${at}one term too many: the sum stops at α^K.`],
            ...(alpha < 1 ? [[1 / (1 - alpha), `${at}that is the ceiling, which no K reaches.`]] : []),
          ],
          `${at}add 1 + α + α² and so on, up to α^K: ${k + 1} terms. Two decimals are enough.`,
        );
}

export const expected = () =>
  exercise({
    id: "06.1",
    title: "Tokens a round",
    ask: "Work out E, to two decimals. By head, on paper or with a calculator, but not with the figures above.",
    fields: [number("a", "α = 0.8, K = 5"), number("b", "α = 1, K = 5"), number("c", "α = 0.5, K = 3")],
    check: each(
      { a: judged(0.8, 5), b: judged(1, 5), c: judged(0.5, 3) },
      "All three. At α = 1 the closed form divides by zero, and the sum does not: six ones are 6.",
    ),
    hints: [
      "E is a sum of K + 1 terms: 1 + α + α² + … + α^K.",
      "Closed form: (1 − α^(K+1)) / (1 − α). It does not hold at α = 1, where every term of the sum is 1.",
    ],
    solution: () =>
      "E(0.8, 5) = (1 − 0.8⁶) / 0.2 = (1 − 0.262) / 0.2 = 3.69. E(1, 5) = 1 + 1 + 1 + 1 + 1 + 1 = 6.00. E(0.5, 3) = 1 + 0.5 + 0.25 + 0.125 = 1.88.",
    answer: { a: "3.69", b: "6", c: "1.88" },
  });

export const limits = () =>
  exercise({
    id: "06.2",
    title: "The two ends, and the ceiling",
    ask: "With α = 0 every guess fails. The ceiling is what E approaches when K grows and grows.",
    fields: [
      number("zero", "E at α = 0, K = 5"),
      number("eight", "Ceiling at α = 0.8"),
      number("nine", "Ceiling at α = 0.9"),
      number("least", "The α whose ceiling is 4"),
    ],
    check: each(
      {
        zero: (x) =>
          near(x, 1) ? "" : x === 0 ? "A round is never empty: the target’s own token comes even when all guesses fail." : "With α = 0 only one term of the sum is left.",
        eight: (x) => (near(x, 5) ? "" : slip(x, [[1.25, "1/α is not it: what counts is how often a guess fails, 1 − α."]], "The ceiling is 1 / (1 − α); here 1 − α = 0.2.")),
        nine: (x) => (near(x, 10) ? "" : slip(x, [[1.11, "1/α is not it: what counts is how often a guess fails, 1 − α."]], "The ceiling is 1 / (1 − α); here 1 − α = 0.1.")),
        least: (x) => (near(x, 0.75) ? "" : slip(x, [[0.25, "That is 1 − α; the question is α."]], "Solve 1 / (1 − α) = 4 for α.")),
      },
      "Right. From 0.8 to 0.9 the draft is wrong half as often, and the ceiling doubles.",
    ),
    hints: ["Which terms of 1 + α + α² + … are left at α = 0?", "An endless geometric series adds up to 1 / (1 − α)."],
    solution: () => "E(0, 5) = 1. Ceilings: 1 / 0.2 = 5 and 1 / 0.1 = 10. 1 / (1 − α) = 4 means 1 − α = 1/4, so α = 0.75.",
    answer: { zero: "1", eight: "5", nine: "10", least: "0.75" },
  });

const PRINTED = [1.85, 2.57, 3.18, 4.08, 4.81];

export const proofread = () =>
  exercise({
    id: "06.4",
    title: "Proofread a table",
    ask: [
      h("p", "You will meet this row in print. Three of its cells are right, give or take one in the last digit; two are further off. Which two, and what should the cells say?"),
      append(
        h("div.scroll.printed-row", { tabindex: "0", role: "region", "aria-label": "The printed row" }),
        h(
          "table",
          {},
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "α"), [1, 2, 3, 5, 8].map((k) => h("th.number", { scope: "col" }, `K = ${k}`)))),
          h("tbody", {}, h("tr", {}, h("td", "0.85"), PRINTED.map((x) => h("td.number", fixed(x))))),
        ),
      ),
    ],
    fields: [
      { name: "k1", label: "The first wrong cell: K =", kind: "whole" },
      number("e1", "and its true value"),
      { name: "k2", label: "The second: K =", kind: "whole" },
      number("e2", "and its true value"),
    ],
    check: (values) => {
      const cell = (name, right, other) => (k) =>
        k === right
          ? ""
          : k === other
            ? ""
            : k === 3
              ? "3.1866 was cut to 3.18 instead of rounded to 3.19: look for a larger difference."
              : `K = ${k} is right as it is. Compare each cell with the one before it: column K must add 0.85^K for every step.`;
      const swapped = values.k1 === 8 && values.k2 === 5;
      const value = (k) => (x) =>
        near(x, expectedTokens(0.85, k))
          ? ""
          : near(x, PRINTED[k === 5 ? 3 : 4])
            ? `That is what is printed for K = ${k}. Put α = 0.85 and K = ${k} into the formula.`
            : `For K = ${k} add ${k + 1} terms, from 1 to 0.85^${k}.`;
      if (values.k1 === values.k2) {
        return { ok: false, say: "You named one cell twice; there are two.", fields: { k1: "bad", k2: "bad" } };
      }
      return each(
        { k1: cell("k1", 5, 8), e1: value(swapped ? 8 : 5), k2: cell("k2", 8, 5), e2: value(swapped ? 5 : 8) },
        "Found: 4.15 at K = 5 and 5.12 at K = 8. A table in print is a claim; the formula is eight keystrokes away.",
      )(values);
    },
    hints: [
      "From K = 3 to K = 5 two terms are added, 0.85⁴ and 0.85⁵: 0.522 and 0.444.",
      "3.19 + 0.52 + 0.44 is more than 4.08. Go on in the same way to K = 8.",
    ],
    solution: () => "K = 5 is 4.15, not 4.08, and K = 8 is 5.12, not 4.81. (3.18 at K = 3 was cut, not rounded: 3.1866.)",
    answer: { k1: "5", e1: "4.15", k2: "8", e2: "5.12" },
  });

const ROUNDS = ["✓ ✓ ✓ ✓ ★", "✗ · · · +", "✓ ✓ ✗ · +", "✓ ✗ · · +"];

export const three = () =>
  exercise({
    id: "06.3",
    title: "Three rates from four rounds",
    ask: [
      h("p", "Four rounds of four guesses each, written as in the figure above: ✓ accepted, ✗ refused, · never looked at, and the target’s own token at the end. Fractions such as 3/4 are fine."),
      append(h("pre.rounds", { tabindex: "0" }), ROUNDS.join("\n")),
    ],
    fields: [
      { name: "drafted", label: "Accepted of drafted", kind: "fraction" },
      { name: "judged", label: "Accepted of judged (α)", kind: "fraction" },
      { name: "round", label: "Tokens a round", kind: "fraction" },
    ],
    check: each(
      {
        drafted: (x) =>
          near(x, 7 / 16, 0.006) ? "" : slip(x, [[0.7, "Accepted of drafted: the guesses behind a refusal were drafted too, so divide by all 16."], [11 / 16, "Accepted of drafted: + and ★ are the target’s own tokens; no guess was accepted there."]], "Accepted of drafted: count the ✓, and divide by 4 × 4 guesses."),
        judged: (x) =>
          near(x, 0.7, 0.006) ? "" : slip(x, [[7 / 16, "Accepted of judged: the guesses marked with a dot were never judged; leave them out."], [7 / 11, "Accepted of judged: ✓ and ✗ were judged, + and ★ were not."]], "Accepted of judged: count the ✓, and divide by the number of ✓ and ✗ together."),
        round: (x) =>
          near(x, 11 / 4, 0.006) ? "" : slip(x, [[7 / 4, "Tokens a round: + and ★ are tokens of the text as well."]], "Tokens a round: all ✓, + and ★, divided by four rounds."),
      },
      "Right: 7/16, 7/10 and 11/4, from the same four rounds. Whoever says “acceptance” has to say which.",
    ),
    hints: ["There are 7 ✓, 3 ✗, 6 dots, 3 + and one ★.", "Drafted: ✓, ✗ and dots. Judged: ✓ and ✗. Tokens: ✓, + and ★."],
    solution: () => "Accepted of drafted 7/16 = 0.44; accepted of judged 7/10 = 0.70; tokens a round (7 + 4) / 4 = 2.75.",
    answer: { drafted: "7/16", judged: "7/10", round: "11/4" },
  });
