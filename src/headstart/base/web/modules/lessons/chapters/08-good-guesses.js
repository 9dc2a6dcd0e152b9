// Chapter 8: what decides how many guesses pass.

import { h, signal } from "hs/base/dom";
import { tableOf } from "hs/figures/figure";
import { display } from "hs/lessons/chapters/mathml";
import { dial } from "hs/lessons/chapters/08-good-guesses/dial";
import { drawOrCopy, orderKinds, setDial, sharpened, whichText } from "hs/lessons/chapters/08-good-guesses/exercises";
import { heat, keptTable } from "hs/lessons/chapters/08-good-guesses/heat";
import { byKind, recorded } from "hs/lessons/chapters/08-good-guesses/kinds";
import { rounding } from "hs/lessons/chapters/08-good-guesses/rounding";
import { sideBySide } from "hs/lessons/chapters/08-good-guesses/three-texts";
import { formula, note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { REFUSED } from "hs/lessons/round";

function guess() {
  return predict({
    id: "08.guess",
    question:
      "A draft knows nothing of the target: it prefers some of ten words a little, at random; the target prefers one word clearly. How many of 100 of the draft’s guesses are kept, on average?",
    kind: "number",
    unit: "of 100",
    min: 0,
    max: 100,
    reveal: (answer) =>
      h(
        "p",
        {},
        Number(answer) === 10 ? "Ten would be the chance to hit one word among ten. " : "",
        h("strong", "53."),
        " Not because a wild guess happens to be right, but because two broad distributions overlap: wherever the draft gives a word less than the target does, its guess always passes.",
      ),
  });
}

/** Shares that were measured with the bundled models; the README beside them has them. */
export const MEASURED = [
  ["draft model, drawn", "61.8%", "62.7%", "62.7%"],
  ["EAGLE-3 head, drawn", "68.8%", "70.5%", "70.9%"],
  ["Medusa heads, copied", "34.0%", "29.3%", "24.5%"],
];

function measured() {
  return h(
    "div.scroll",
    { tabindex: "0", role: "region", "aria-label": "Acceptance of one guess, measured with the bundled models" },
    tableOf({
      columns: ["drafter", "T = 0", "T = 0.7", "T = 1"],
      rows: MEASURED,
      caption: "A guess is accepted: the bundled models on held-out Python, each on 64 windows of 512 tokens of its own; the windows are not the same ones.",
    }),
  );
}

const overlapFormula = () =>
  formula(display("α =", "∑", "min ( p , q )"), "alpha is the sum, over all words, of the smaller of p and q.");

function realText(found) {
  return [
    section(
      "Easy text and hard text",
      prose(
        "Acceptance is a property of draft, target ", h("em", "and text"), ". After “The Eiffel Tower is in” a tiny model knows what comes next. Boilerplate, repeated names and copied passages are easy, and there a good draft has four or five guesses accepted in each call of the target, as reports say; what is being invented is hard. So measure α on texts like yours, not on those that look easy.",
      ),
    ),
    orderKinds(found.kinds),
    h("details.recorded", {}, h("summary", "What was recorded: it answers 08.4"), byKind(found)),
  ];
}

function build() {
  const level = signal(0.8);
  const found = recorded();
  return [
    guess(),
    section(
      "How alike is enough?",
      prose("For one token α is the overlap of two distributions:"),
      overlapFormula(),
      prose(
        "So what a draft needs is not to be right, but to have a distribution like the target’s. Here is a dial for that. At 1 the draft is the target; at 0 it is noise.",
      ),
      dial(level),
      prose(
        "Do not take the 53% at the dial’s end for more than it is: there are only ten words. Among 100,000 two unrelated distributions share next to nothing. For small drafts of the target’s own family 0.6 to 0.85 is often reported; above 0.7 they are usually worth their price.",
      ),
    ),
    setDial(),
    section(
      "Temperature",
      prose(
        "Temperature T flattens a distribution (T > 1) or sharpens it (T < 1). What that does to α depends on how the draft guesses. A drafter that ",
        term("draws", "It takes its guess at random from its distribution q, as the target does from p."),
        " has a flat distribution to draw from; one that ",
        term("copies", "It proposes one word and is sure of it: its likeliest word, or what came next when the same words were here before."),
        " bets everything on one word.",
      ),
      heat(level),
      keptTable(level),
      note(
        "“At T = 1.5 expect 60 to 70% of the speedup of T = 0.7” is a rule of thumb that you may meet. At an agreement of 0.8 that is about right for a draft that copies (75%) and for one that samples at a low temperature (72%). A draft that follows the temperature even gains (117%). One thing no formula sees: hot text wanders to places where any draft knows less.",
      ),
      prose("Measured with the models that come with headstart:"),
      measured(),
      prose("And an n-gram, which copies, has 64% of its first guesses accepted at T = 0 and 34% at T = 1, on the same prompts."),
    ),
    drawOrCopy(),
    sharpened(),
    ...realText(found),
    section(
      "Greedy, sampled, speculative",
      prose("Greedy decoding takes the likeliest word each time. Sampling draws one. Speculative decoding is no third kind of text: it is one of the two, in fewer forwards."),
      sideBySide(),
      prose("Greedy text runs in circles when the same words come round. In greedy speculative decoding there is nothing to draw: a guess is kept if it is the target’s likeliest word."),
    ),
    whichText(),
    section(
      "Cheaper guesses, better guesses",
      prose(
        "The rule keeps the target’s distribution whatever the draft is. So the draft may be rounded as roughly as you like: at worst a guess is refused. Fewer bits make it cheaper to read, and cost a little α.",
      ),
      rounding(level),
      prose(
        "The other way is to train it. ", term("Distillation", "Training a small model to give the same distributions as a large one, on the large one’s own texts."), " moves q towards p, so it raises Σ min(p, q) directly; ",
        h("code", "headstart train"), " does that for draft models and heads. The target may be rounded, too, but that is another matter: it changes p, and with it the text.",
      ),
    ),
    summary(
      "α is the overlap of two distributions: Σ min(p, q) = 1 − TV. On the dial even unrelated distributions share half.",
      "A higher temperature costs copied guesses; drawn ones follow it. Ask how a draft guesses before you fear T = 1.5.",
      "α belongs to a draft, a target and a kind of text. Measure it on yours.",
      "No text can tell whether it was written speculatively. A draft may be rounded freely.",
    ),
  ];
}

export default {
  id: "08",
  title: "What makes guesses good",
  minutes: 9,
  question: "Why do some guesses pass and others fail: agreement, temperature, the kind of text, the way the draft guesses?",
  round: { at: ["draft"], says: `“the” was a good guess, “${REFUSED.word}” a bad one: q = ${REFUSED.q} where the large model has p = ${REFUSED.p}. What makes q come near to p?` },
  sources: [
    { text: "Leviathan, Kalman, Matias 2023, corollary 3.6", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Zhou et al. 2024 (DistillSpec)", url: "https://arxiv.org/abs/2310.08461" },
    { text: "Chen et al. 2023, theorem 1", url: "https://arxiv.org/abs/2302.01318" },
    { text: "BentoML 2025: the right draft model", url: "https://www.bentoml.com/blog/3x-faster-llm-inference-with-speculative-decoding" },
  ],
  exercises: ["08.1", "08.2", "08.3", "08.4", "08.5"],
  build,
};
