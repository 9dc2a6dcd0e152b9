// Chapter 6: the expected tokens of a round, and what people mean by "acceptance".

import { ceiling, expectedTokens } from "hs/algorithm/theory";
import { h, signal } from "hs/base/dom";
import { dice } from "hs/lessons/chapters/06-tokens-a-round/dice";
import { expected, limits, proofread, three } from "hs/lessons/chapters/06-tokens-a-round/exercises";
import { ladder } from "hs/lessons/chapters/06-tokens-a-round/ladder";
import { tokensTable } from "hs/lessons/chapters/06-tokens-a-round/table";
import { threeRates } from "hs/lessons/chapters/06-tokens-a-round/three-rates";
import { live } from "hs/lessons/chapters/live";
import { display, fraction, power, row } from "hs/lessons/chapters/mathml";
import { rounded } from "hs/lessons/chapters/tables";
import { handle } from "hs/lessons/handle";
import { formula, note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

function guess() {
  return predict({
    id: "06.guess",
    question: "Eight of ten guesses pass, and a round has five guesses. How many tokens does a round give, on average?",
    kind: "number",
    unit: "tokens",
    min: 0,
    max: 6,
    reveal: (answer) =>
      h(
        "p",
        {},
        Math.abs(Number(answer) - 5) < 0.01
          ? "Five is 0.8 × 5 + 1: the answer if every guess were looked at. "
          : Math.abs(Number(answer) - 4) < 0.01
            ? "Four is 0.8 × 5: the answer if every guess were looked at, and the target added nothing. "
            : "",
        h("strong", "3.69."),
        " The fifth guess counts only if the four before it passed, and the target adds one token of its own at the end.",
      ),
  });
}

function sum() {
  return [
    formula(
      display("E = 1 + α +", power("α", "2"), "+ … +", power("α", "K")),
      "E equals one plus alpha plus alpha squared and so on up to alpha to the power K.",
    ),
    formula(
      display("E =", fraction(row("1 −", power("α", row("K + 1"))), "1 − α")),
      "For alpha below one, E equals one minus alpha to the power K plus one, divided by one minus alpha.",
    ),
  ];
}

function build() {
  const state = { alpha: signal(0.8), k: signal(5) };
  const { alpha, k } = state;
  const a = () => handle(alpha, { label: "alpha", min: 0, max: 1, step: 0.01, format: (x) => rounded(x) });
  const n = () => handle(k, { label: "K, guesses a round", min: 1, max: 12, step: 1 });
  return [
    guess(),
    section(
      "A ladder with rungs that get lower",
      prose(
        "Call α the chance that a guess passes, once all guesses before it did. Guess 1 is used with chance α, guess 2 with α × α, guess 3 with α × α × α. The target’s own token comes in every round: a correction after a refusal, a ",
        term("bonus", "If all K guesses pass, the forward that judged them has one answer left: what comes after the last guess. That token is free."),
        " after none.",
      ),
      ladder(state),
      prose("With α = ", a(), " and K = ", n(), " a round gives ", live([alpha, k], (x, y) => rounded(expectedTokens(x, y))), " tokens on average. However many guesses you add, it stays below 1 / (1 − α) = ", live([alpha], (x) => (x === 1 ? "∞" : rounded(ceiling(x)))), "."),
      sum(),
      prose("Check the ends. If nothing passes (α = 0) one term is left: 1, as without a draft. If everything passes (α = 1) every term is 1: K + 1. The ", h("em", "ceiling"), " is 5 at α = 0.8 and 10 at α = 0.9; a draft that costs something never gets there, as the next chapter shows."),
    ),
    section("The whole table", tokensTable(state)),
    section(
      "A mean is not a round",
      prose("E is a mean over many rounds. Throw some: each guess gets a die between 0 and 1, and passes if it falls below α."),
      dice(state),
      note(
        "The formula takes α to be the same at every position, and each guess to pass or fail by itself. In real text it is neither: easy stretches and hard ones follow each other. With conditional acceptances α₁, α₂, … by position the sum becomes 1 + α₁ + α₁α₂ + …, which headstart uses wherever it has them.",
      ),
    ),
    expected(),
    limits(),
    section(
      "Three numbers, one name",
      prose("“Acceptance rate” is used for at least three different fractions. They come from the same rounds and differ by a factor of two and more. Choose one, and see what is counted above the line (filled) and below it (framed)."),
      threeRates(),
      prose(
        "Only the conditional rate is α. Accepted of drafted is lower, because it divides by guesses that were never judged. The last choice is what was printed with this run, 46.2% at seven guesses: it takes corrections and bonus tokens for accepted guesses. So the same 17 rounds have an acceptance of 31.9%, 46.2% or 71.7%, as you like; but only one of them belongs into the formula.",
      ),
    ),
    three(),
    proofread(),
    summary(
      "A round of K guesses gives E = 1 + α + … + α^K tokens on average; 1 at α = 0, K + 1 at α = 1.",
      "No K gives more than 1 / (1 − α): 5 at α = 0.8, 10 at α = 0.9.",
      "α is accepted of judged. Accepted of drafted is lower; tokens a round is what you gain.",
    ),
  ];
}

export default {
  id: "06",
  title: "How many tokens a round",
  minutes: 8,
  question: "How many tokens does one forward of the target give, and which of three “acceptance rates” tells you?",
  round: { at: ["commit"], says: "This round gave four words: three guesses and one of the large model’s own. How many are they on average?" },
  sources: [
    { text: "Leviathan, Kalman, Matias 2023, equation 1", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen et al. 2023", url: "https://arxiv.org/abs/2302.01318" },
  ],
  exercises: ["06.1", "06.2", "06.3", "06.4"],
  build,
};
