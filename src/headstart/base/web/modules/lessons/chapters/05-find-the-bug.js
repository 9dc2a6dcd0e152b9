// Chapter 5: six listings with a fault each. The exact distribution tells right from wrong.

import { append, h } from "hs/base/dom";
import { RIGHT_VERIFIER } from "hs/algorithm/mutants";
import { evidenceOf, mendedEvidence } from "hs/lessons/chapters/05-find-the-bug/evidence";
import { LISTINGS } from "hs/lessons/chapters/05-find-the-bug/listings";
import { suspects } from "hs/lessons/chapters/05-find-the-bug/suspects";
import { exercise } from "hs/lessons/exercise";
import { note, prose, pseudocode, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

/** Lines that are part of every listing's frame. */
const HARMLESS = "This line does what it should.";

function hunt(listing) {
  const lines = suspects(listing.lines, "Which line is wrong?");
  const mended = () => [
    prose("Fixed:"),
    pseudocode(listing.mended, { mark: listing.changed, label: "The fixed listing" }),
    mendedEvidence(listing, RIGHT_VERIFIER),
    listing.also && h("p.soft", listing.also),
  ];
  return exercise({
    id: listing.id,
    title: listing.title,
    ask: listing.story,
    widget: { element: lines.element, read: () => lines.picked.value },
    check: (line) => {
      if (line < 0) return { ok: false, say: "Pick a line first: click it, or use the arrow keys." };
      const ok = listing.faults.includes(line);
      const words = ok ? `Line ${line + 1} it is. ${listing.why}` : `Not line ${line + 1}. ${listing.innocent[line] ?? HARMLESS} The exact ${listing.kind === "metric" ? "means say" : "distribution says"} what is wrong:`;
      return { ok, say: append(h("div"), h("p", words), evidenceOf(listing), ok && mended()) };
    },
    hints: listing.hints,
    solution: () => append(h("div"), h("p", `Line ${listing.faults.map((line) => line + 1).join(", or line ")}. ${listing.why}`), mended()),
    solve: () => lines.pick(listing.faults[0]),
  });
}

export default {
  id: "05",
  title: "Find the bug",
  minutes: 8,
  question: "You will be able to tell a right verifier from one that only looks right, and to prove it.",
  round: { at: ["accept"], says: "The same step, written down wrong six times. Each listing has one fault." },
  exercises: LISTINGS.map(({ id }) => id),
  sources: [
    { text: "Leviathan, Kalman, Matias: Fast inference from transformers via speculative decoding (2022), algorithm 1", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen and others: Accelerating large language model decoding with speculative sampling (2023), algorithm 2", url: "https://arxiv.org/abs/2302.01318" },
  ],
  build() {
    return [
      predict({
        id: "05",
        question: "A verifier writes fluent text, every word of it likely. How many of these would you notice by reading: words drawn from the wrong distribution after each refusal, a correction in the wrong place, a wrong acceptance figure?",
        kind: "choice",
        options: [["all", "all three"], ["some", "the wrong order only"], ["none", "hardly any"]],
        reveal: () => prose("Hardly any. Faults like these were in published tutorials and in a released engine, and were read and run by many people. What breaks is the distribution of the text, and a distribution cannot be seen in one text. It can be worked out."),
      }),
      section(
        "Six suspects",
        prose("Each listing below has one fault; where two lines share it, either answer counts. The first five are retold from tutorials, in words of our own; the last from an engine. p[i] and q[i] are the distributions at the place of guess i, draw(distribution) draws a word, uniform() gives a number between 0 and 1, and residual(p, q) is max(p − q, 0) divided by its sum."),
        prose("Pick the line. Then the page enumerates every draft, every decision and every word drawn, with p = [1/2, 3/10, 1/5], q = [1/5, 3/5, 1/5] and two guesses a round, and tells you in exact fractions what the listing writes."),
      ),
      ...LISTINGS.map(hunt),
      section(
        "What found them",
        prose("Not one of these faults needs a large model to be found. Three words, two guesses and every way the dice can fall are enough, because a rule that is wrong is wrong there, too. headstart’s own rule is tested in this way, with random distributions, with zeros in them, on chains and on trees; and faults are planted in it on purpose, to see that the tests catch them."),
        note("For engines that cannot be opened there is “headstart audit”: it draws many words from a running engine and bets against the claimed distribution. A right engine keeps the bet poor; a wrong one makes it rich."),
      ),
      summary(
        "After a refusal: the residual. After none: the bonus, from a distribution that is already there.",
        "The order and the shapes are part of the rule, too.",
        "A correction is not an accepted guess; do not count it as one.",
        "A verifier is right if its exact distribution is p, and enumeration on a tiny case decides it.",
      ),
    ];
  },
};
