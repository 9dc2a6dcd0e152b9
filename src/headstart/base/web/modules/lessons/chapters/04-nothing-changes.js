// Chapter 4: why the text keeps the target's distribution. Two towers a word, every sum in exact fractions.

import { fill, h, math, signal } from "hs/base/dom";
import { FRACTIONS } from "hs/algorithm/arithmetic";
import { emittedDistribution } from "hs/algorithm/enumerate";
import { overlap, residual } from "hs/algorithm/distributions";
import { fraction } from "hs/algorithm/rational";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { SMALL, distributionOf, partsOf, short, withValue } from "hs/lessons/chapters/04-nothing-changes/two-distributions";
import { dragExercise, ownExercise, residualExercise } from "hs/lessons/chapters/04-nothing-changes/exercises";
import { emission, distributionFields, partsOfEmission, towers } from "hs/lessons/chapters/04-nothing-changes/towers";
import { flow } from "hs/lessons/chapters/04-nothing-changes/flow";
import { race } from "hs/lessons/chapters/04-nothing-changes/race";
import { whenSeen } from "hs/lessons/seen";
import { handle } from "hs/lessons/handle";
import { formula, note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { REFUSED } from "hs/lessons/round";

const WORDS = SMALL.words;

/** The picture to play with: the towers, what comes out of them, and the sums. */
function proof() {
  const out = emission(WORDS);
  const sums = h("tbody");
  const verdict = h("p.proof-verdict");
  let [frame, motion] = [null, null]; // the towers draw themselves before these are there
  const draw = (p, q) => {
    const { kept, brought, alpha } = partsOfEmission(p, q);
    out.draw(p, kept, brought);
    const distribution = emittedDistribution(p, q);
    fill(sums, WORDS.map((word, i) => h("tr", {}, h("th", { scope: "row" }, word), [kept[i], brought[i], distribution[i], p[i]].map((x, at) => h(at === 2 ? "td.strong" : "td", short(x))))));
    const equal = distribution.every((x, i) => x.equals(p[i]));
    verdict.textContent = `${equal ? "✓" : "✗"} What comes out is p, to the last digit. α = ${short(alpha)}.`;
  };
  const table = () => {
    const { p, q } = tower.distributions.value;
    return {
      columns: ["word", "p", "q", "kept, min(p, q)", "refused, q beyond p", "residual distribution", "comes out"],
      rows: WORDS.map((word, i) => [word, short(p[i]), short(q[i]), short(FRACTIONS.min(p[i], q[i])), short(FRACTIONS.max(q[i].minus(p[i]), FRACTIONS.zero)), short(residual(p, q)[i]), short(emittedDistribution(p, q)[i])]),
    };
  };
  const tower = towers({ ...SMALL, onChange: (p, q) => { motion?.stop(); draw(p, q); frame?.update(); } });
  const own = typed(tower);
  const pay = () => {
    const { p, q } = tower.distributions.value;
    motion.play(p.map((x) => x.toNumber()), q.map((x) => x.toNumber()));
  };
  let body = null;
  frame = figure({
    label: "Two towers for each word. Drag a tower, or use the arrow keys.",
    title: true,
    body: body = h(
      "div.proof",
      {},
      h("div", {}, h("p.chart-name", "p the target, q the draft"), tower.element),
      h("div", {}, h("p.chart-name", "what comes out"), out.element),
      h(
        "table.proof-sums",
        {},
        h("thead", {}, h("tr", {}, h("th"), ["kept", "+ from refusals", "= comes out", "p"].map((each) => h("th", { scope: "col" }, each)))),
        sums,
      ),
      verdict,
    ),
    controls: [button("Pay back what was refused", pay), button("Begin again", () => tower.set(SMALL.p, SMALL.q), { quiet: true }), button("Equal towers", () => tower.set(SMALL.p, SMALL.p), { quiet: true }), button("Nothing shared", () => tower.set(["1/2", "1/2", "0"], ["0", "0", "1"]), { quiet: true })],
    caption: "A distribution adds up to 1: when you move one tower, its two neighbours of the same distribution share what is left. The sums are exact fractions, worked out again at every move.",
    table,
  });
  motion = flow(body, tower.element, out.element);
  whenSeen(body, pay);
  return { element: frame.element, own, distributions: tower.distributions };
}

/** Fields for numbers of one's own. */
function typed(tower) {
  const fields = [distributionFields("p", WORDS, SMALL.p, "own"), distributionFields("q", WORDS, SMALL.q, "own")];
  const said = h("p.distribution-said", { role: "status" });
  const take = (event) => {
    event.preventDefault();
    try {
      const [p, q] = fields.map((each) => distributionOf(each.read()));
      tower.set(p, q);
      said.textContent = `Taken. α = ${short(overlap(p, q))}.`;
    } catch (error) {
      said.textContent = `${error.message}.`;
    }
  };
  return h("form.own-distributions", { novalidate: true, on: { submit: take } }, h("p.chart-name", "Numbers of your own, for “the”, “cat” and “sat”"), fields.map((each) => each.element), h("button.quiet", { type: "submit" }, "Use them"), said);
}

const row = (...children) => math("mrow", {}, children);
const mi = (text) => math("mi", {}, text);
const mo = (text) => math("mo", { stretchy: "false" }, text);
const minimum = () => row(mo("min"), mo("("), mi("p"), mo(","), mi("q"), mo(")"));
const missed = () => row(math("mn", {}, "1"), mo("−"), mi("α"));

function sumOfTheProof() {
  const rest = math("mfrac", {}, row(mi("p"), mo("−"), minimum()), missed());
  const line = formula(
    math("math", {}, row(minimum(), mo("+"), mo("("), missed(), mo(")"), mo("·"), rest, mo("="), mi("p"))),
    "at every word: the smaller of p and q, plus one minus alpha times the residual, which is p minus the smaller of the two over one minus alpha, equals p",
  );
  line.classList.add("long");
  return line;
}

/** A number in a sentence that moves p of "the" in the picture. */
function handleOfP(distributions) {
  const value = signal(partsOf(distributions.value.p[0]));
  value.watch(() => {
    const { p, q } = distributions.value;
    if (partsOf(p[0]) !== value.value) distributions.value = { p: withValue(p, 0, value.value), q };
  });
  distributions.watch(() => (value.value = partsOf(distributions.value.p[0])));
  return handle(value, { label: "p of the, in twentieths", min: 0, max: 20, step: 1, format: (parts) => short(fraction(parts, 20)) });
}

export default {
  id: "04",
  title: "Why nothing changes",
  minutes: 8,
  question: "You will be able to prove that guesses of any quality leave the target’s distribution as it is.",
  round: { at: ["accept"], says: `Why does it come out right to keep “${REFUSED.word}” in ${REFUSED.share} of all cases, and to draw “dog” from what is left?` },
  exercises: ["04.1", "04.2", "04.3", "04.4"],
  sources: [
    { text: "Leviathan, Kalman, Matias: Fast inference from transformers via speculative decoding (2022), appendix A.1", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen and others: Accelerating large language model decoding with speculative sampling (2023), theorem 1", url: "https://arxiv.org/abs/2302.01318" },
  ],
  build() {
    const { element, own, distributions } = proof();
    return [
      predict({
        id: "04",
        question: "The target says “the”, “cat” or “sat” with chances 50%, 30% and 20%. The draft says them with 20%, 60% and 20%, so it guesses “cat” twice as often as it should. Guesses are judged and corrected as in the last chapter. How often does “cat” come out in the long run?",
        kind: "number",
        unit: "%",
        reveal: (guess) => prose(guess === 30 ? "Yes. " : "", "In exactly 30% of all cases, the target’s own number. The draft decides how fast the text comes, never what it says. The picture shows why."),
      }),
      section(
        "One guess, as towers",
        prose("Put the two distributions beside each other. What they share at a word is the smaller of the two towers. A guess that falls into the shared part is always kept; a guess from the part that q has beyond p is refused. So the chance to keep a guess, ", term("α", "alpha, the acceptance: the sum of the smaller towers, 1 minus the total variation distance of p and q"), ", is the green part of q."),
        prose("What is refused must be paid back. The green parts of p and of q are equal, and both distributions add up to 1. So what q has too much is, in all, just what p is still owed. The ", term("residual", "the distribution max(p − q, 0), divided by its sum"), " pays it out where it is owed."),
        element,
        prose("Try to break it. Give “the” a chance of ", handleOfP(distributions), " in p, or drag any tower: the outline on the right is p, and what comes out fills it every time."),
        h("div.figure.narrow", { role: "group", "aria-label": "Numbers of your own" }, own),
        note("A tower of q below that of p is all green: a word that the draft thinks too little of is never refused. Only words that it thinks too much of are."),
      ),
      section(
        "The proof in one line",
        prose("A word x comes out in two ways. Either it was guessed and kept, or another guess was refused and the residual gave x."),
        sumOfTheProof(),
        prose("The first part is the smaller tower. The second is the chance of any refusal, times the residual. 1 − α cancels, and p remains. This holds for every x, every p and every q: a bad draft only makes α small. Statisticians know such a test as rejection sampling. There one guesses again until a guess is kept; here a refusal is followed by a single draw, from the residual."),
        prose("And a whole text? Each word that comes out has the target’s distribution given all words before it, whether it was guessed, a correction or a bonus. A text whose every word has the right distribution, given its past, has the right distribution."),
      ),
      section(
        "Ten thousand draws",
        prose("An argument can hide a slip; a die cannot. Here the rule is played with the towers above, as you left them. Then let it draw from p itself after a refusal, which looks just as reasonable, and see where it ends."),
        race(WORDS, distributions).element,
        prose("With the first numbers the wrong rule ends at .35, .39 and .26, and stays .15 away from p however long you wait. A refusal is news: it says that the guess was a word that q overrates. Drawing from p again forgets that, and overrated words come out too often."),
      ),
      residualExercise({ id: "04.1", title: "After a refusal", p: ["0.5", "0.3", "0.2"], q: ["0.2", "0.6", "0.2"] }),
      residualExercise({ id: "04.2", title: "After another refusal", p: ["0.4", "0.4", "0.2"], q: ["0.3", "0.3", "0.4"] }),
      ownExercise(),
      dragExercise(),
      summary(
        "A guess is kept with chance α, the overlap of the two distributions.",
        "What refusals lose, the residual gives back, at just the words that are owed it.",
        "So the text follows the target’s distribution, whatever the draft: the draft changes the speed alone.",
      ),
    ];
  },
};
