// Chapter 4b: what headstart runs today. Block verification, traversal, the walk, and the coupled rule.

import { announce } from "hs/base/announce";
import { append, fill, h, math } from "hs/base/dom";
import { counted, percent } from "hs/base/format";
import { fractions, numbersOf } from "hs/algorithm/arithmetic";
import { JUDGES, distance, expectation, joint, textDistribution } from "hs/algorithm/enumerate";
import { coupledAcceptance } from "hs/algorithm/distributions";
import { parse } from "hs/algorithm/rational";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { SMALL, short } from "hs/lessons/chapters/04-nothing-changes/two-distributions";
import { twoRules } from "hs/lessons/chapters/04b-the-rule-today/two-rules";
import { textFigure, write } from "hs/lessons/chapters/04b-the-rule-today/texts";
import { treeFigure } from "hs/lessons/chapters/04b-the-rule-today/tree";
import { exercise } from "hs/lessons/exercise";
import { formula, note, prose, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

const GUESSES = [1, 1, 0];
const START = [0.7, 0.3, 0.4];

const setup = (judge, k = 3) => ({ p: () => fractions(SMALL.p), q: () => fractions(SMALL.q), k, judge: JUDGES[judge] });
const tokensARound = (judge) => expectation(setup(judge), ({ emitted }) => emitted.length);

/** The table of both rules, uncovered in four steps. */
function comparison() {
  let frame = null; // the table draws itself before its frame is there
  const rules = twoRules(GUESSES, START, () => frame?.update());
  const said = [
    () => "The small model guessed “cat cat the”. Each guess has its uniform draw.",
    () => `The rule of 2023 goes from the left and keeps ${counted(rules.verdicts().classic.accepted, "guess", "guesses")}.`,
    () => "Block verification first gives each guess a weight: the weight before it times p/q, at most 1. A good guess can make up for a poor one before it.",
    () => `Then it looks at the uniform draws from the right. The first that is low enough decides: ${counted(rules.verdicts().block.accepted, "guess", "guesses")} kept.`,
  ];
  const words = h("p.step-words");
  frame = figure({
    label: "One draft, one set of uniform draws, two rules. Step through it, and move the uniform draws.",
    title: true,
    body: h("div", {}, rules.element, words),
    steps: { count: 4, show: (i) => (rules.show(i), (words.textContent = said[i]())), words: (i) => said[i](), first: 3 },
    table: () => {
      const { classic, block } = rules.verdicts();
      return { columns: ["rule", "guesses kept", "then drawn from"], rows: [["of 2023", String(classic.accepted), `[${classic.distribution.map(short).join(", ")}]`], ["block", String(block.accepted), `[${block.distribution.map(short).join(", ")}]`]] };
    },
  });
  return frame.element;
}

/** A button that enumerates every draft and every uniform draw. */
function proofByCounting() {
  const said = h("p.step-words", { role: "status" });
  const count = () => {
    const words = ["chain", "block"].map((judge) => {
      const distribution = textDistribution(setup(judge), 4);
      const gap = distance(distribution, joint(setup(judge).p, 4));
      return `${judge === "chain" ? "the rule of 2023" : "block verification"} is ${short(gap)} away from the target’s distribution of ${counted(distribution.length, "text")} and gives ${tokensARound(judge).toDecimal(3)} tokens a round`;
    });
    fill(said, `By enumeration, in fractions: ${words.join("; ")}.`);
    announce(said.textContent);
  };
  return h("div.proof-by-counting", {}, button("Enumerate every draft and every uniform draw", count), said);
}

function weights() {
  const [mi, mn, mo] = ["mi", "mn", "mo"].map((tag) => (text) => math(tag, { stretchy: tag === "mo" ? "false" : undefined }, text));
  const sub = (name, index) => math("msub", {}, mi(name), index);
  const before = () => math("mrow", {}, mi("i"), mo("−"), mn("1"));
  const ratio = math("mfrac", {}, mi("p"), mi("q"));
  const row = (...children) => math("math", {}, math("mrow", {}, children));
  const chance = math("mfrac", {}, sub("S", mi("i")), math("mrow", {}, sub("S", mi("i")), mo("+"), mn("1"), mo("−"), sub("π", mi("i"))));
  return [
    formula(row(sub("π", mi("i")), mo("="), mo("min"), mo("("), sub("π", before()), mo("·"), ratio, mo(","), mn("1"), mo(")")), "pi i equals the smaller of pi i minus one times p over q, and one"),
    formula(row(sub("S", mi("i")), mo("="), mo("∑"), mo("max"), mo("("), sub("π", mi("i")), mi("p"), mo("−"), mi("q"), mo(","), mn("0"), mo(")")), "S i is the sum over all words of the larger of pi i times p minus q, and zero"),
    formula(row(sub("h", mi("i")), mo("="), chance), "h i equals S i over S i plus one minus pi i"),
  ];
}

function uniformsExercise({ id, title, ask, wanted, start, answer, hints, solution }) {
  const rules = twoRules(GUESSES, start);
  return exercise({
    id,
    title,
    ask,
    widget: { element: rules.element, read: rules.verdicts },
    check: ({ classic, block }) => {
      const ok = classic.accepted === wanted.classic && block.accepted === wanted.block;
      return { ok, say: `${ok ? "Yes: the" : "The"} rule of 2023 keeps ${classic.accepted}, block verification keeps ${block.accepted}.${ok ? "" : ` Wanted: ${wanted.classic} and ${wanted.block}.`}` };
    },
    hints,
    solution: () => solution,
    solve: () => rules.uniforms.forEach((uniform, i) => (uniform.value = answer[i])),
  });
}

function weightsExercise() {
  const right = ["1/2", "1", "1"].map(parse);
  return exercise({
    id: "04b.2",
    title: "Weights by hand",
    ask: "Another draft: “cat the sat”. p/q is 1/2 at “cat”, 5/2 at “the” and 1 at “sat”. Which weights have the three guesses?",
    fields: ["cat", "the", "sat"].map((word) => ({ name: word, label: `weight of ${word}`, kind: "fraction" })),
    check: (values) => {
      const given = ["cat", "the", "sat"].map((word) => { try { return parse(values[word]); } catch { return null; } });
      const good = given.map((x, i) => Boolean(x?.equals(right[i])));
      const fields = Object.fromEntries(["cat", "the", "sat"].map((word, i) => [word, good[i] ? "good" : "bad"]));
      if (good.every(Boolean)) return { ok: true, say: "Yes. “the” is so much likelier to the target than to the draft that it makes up for “cat”: from there on nothing can be refused.", fields };
      return { ok: false, say: given[1] && given[1].equals(parse("5/4")) ? "5/4 is above 1; a weight is a chance." : "Multiply from the left, and never let a weight exceed 1.", fields };
    },
    hints: ["The weight before the first guess is 1.", "1/2 × 5/2 is more than 1, so the second weight is 1."],
    solution: () => "1 × 1/2 = 1/2; then min(1/2 × 5/2, 1) = 1; then 1 × 1 = 1.",
    answer: { cat: "1/2", the: "1", sat: "1" },
  });
}

/** A coupled text is shown for K = 2; which text comes with K = 5? */
function coupledExercise() {
  const seed = 11;
  const length = 8;
  const words = (rule, name, from = seed) => write(rule, name, from, length).tokens.map(({ text }) => text.trim()).join(" ");
  const shown = words("coupled", "two");
  const others = [words("exact", "five"), words("coupled", "five", seed + 1)];
  const options = [others[0], shown, others[1]].map((text) => [text, text]);
  return exercise({
    id: "04b.3",
    title: "Another drafter, another text?",
    ask: append(h("p"), "Under rule “coupled”, seed 11 and two guesses a round, “the cat” goes on: ", h("em", shown), ". Which text comes with five guesses a round?"),
    fields: [{ name: "text", label: "The text", kind: "choice", options }],
    check: ({ text }) => {
      const right = words("coupled", "five");
      return { ok: text === right, say: text === right ? "Yes, the same text: the words depend on the seed and the target alone. Only the number of rounds changed." : "Under this rule the target’s word at a place is settled by the seed before anything is guessed." };
    },
    hints: ["What does a word depend on under rule “coupled”?", "Set the figure above to “coupled” and move from 2 guesses to 5."],
    solution: () => `“${words("coupled", "five")}”: the draft decides how many words come out of a round, never which.`,
    answer: { text: shown },
  });
}

export default {
  id: "04b",
  title: "The rule today",
  minutes: 10,
  question: "You will be able to say which rule headstart runs on which draft, and why it keeps more guesses.",
  round: { at: ["accept"], says: "Two newer ways to take this one step: judge the four guesses together, or let the same luck decide for both models." },
  exercises: ["04b.1", "04b.2", "04b.3", "04b.4"],
  sources: [
    { text: "Sun and others: Block verification accelerates speculative decoding (2024)", url: "https://arxiv.org/abs/2403.10444" },
    { text: "Weng and others: Traversal verification for speculative tree decoding (2025)", url: "https://arxiv.org/abs/2505.12398" },
    { text: "Daliri, Musco, Suresh: Coupling without communication and drafter-invariant speculative decoding (2024)", url: "https://arxiv.org/abs/2408.07978" },
  ],
  build() {
    return [
      predict({
        id: "04b",
        question: "Three guesses in a row. The first has a high uniform draw, and the rule of 2023 refuses it. Could a rule that keeps the target’s distribution exactly still keep all three?",
        kind: "choice",
        options: [["no", "no, what follows a refused guess is lost"], ["yes", "yes, it could"]],
        reveal: () => prose("It could, and headstart’s does. A distribution is kept on average over all drafts and uniform draws, so a rule may be milder here if it is stricter elsewhere. Judging the block as one, it keeps on average at least as many guesses as the rule of 2023, and most often more."),
      }),
      section(
        "A chain of guesses: block verification",
        prose("The rule of the last chapter judges each guess alone. It is exact, but it forgets: a guess that p likes much more than q does is kept with chance 1, and the rest of that surplus is thrown away. Block verification carries it along."),
        comparison(),
        prose("In symbols, from the first guess to the last: the weight that a guess carries, what the next distribution has left beyond q, and the number that its uniform draw must stay below."),
        weights(),
        prose("The uniform draw of guess i is compared with h, never with p/q. The last guess has h = π. The greatest i whose uniform draw is low enough is how many guesses are kept, and the next word comes from max(π p − q, 0) there, divided by its sum."),
        proofByCounting(),
        note("With the same uniform draws one rule may keep more in this round and fewer in the next. On average over drafts and uniform draws block verification never keeps fewer. “u against p/q” is therefore not what headstart does, although many pictures show it."),
      ),
      section(
        "A tree of guesses: traversal, or a walk",
        prose("A tree holds several guesses for the same place. Where they were drawn from the draft’s distribution, headstart goes to the leaves first and back to the root: traversal verification, which on a chain is block verification. Where they were not drawn, as with n-grams or the likeliest words of a model, there is no q to weigh against. Then the target draws its own word at each place, and a guess that says the same saves a forward. No uniform draw is needed at all."),
        treeFigure(),
      ),
      section(
        "One seed, one text: the coupled rule",
        prose("Rule “exact” keeps the distribution; the words of one seed may change with the drafter. Rule “coupled” keeps the words, too. Target and draft use the same random numbers at the same place, and a guess is kept where both then say the same word. It keeps somewhat fewer guesses: with the small distributions ", percent(coupledAcceptance(...[SMALL.p, SMALL.q].map((distribution) => numbersOf(fractions(distribution))))), " instead of 70%, and never a smaller share than α/(2 − α). In return the text depends on the seed and the target alone. headstart takes it for requests that name a seed, and rule “exact” for all others, unless it is told otherwise."),
        textFigure(),
      ),
      uniformsExercise({
        id: "04b.1",
        title: "Milder",
        ask: "The guesses are “cat cat the”. Find uniform draws with which block verification keeps all three and the rule of 2023 keeps one.",
        wanted: { classic: 1, block: 3 },
        start: [0.8, 0.8, 0.8],
        answer: [0.3, 0.7, 0.4],
        hints: ["The rule of 2023 must keep the first guess and refuse the second: the first two uniform draws decide that.", "Block verification keeps all three if the last uniform draw is below the last weight, 5/8, whatever the other uniform draws are."],
        solution: "For instance .30, .70 and .40: .30 < 1/2 and .70 ≥ 1/2 for the rule of 2023, and .40 < 5/8 for block verification.",
      }),
      weightsExercise(),
      coupledExercise(),
      uniformsExercise({
        id: "04b.4",
        title: "Stricter",
        ask: "The same guesses. Now find uniform draws with which the rule of 2023 keeps all three and block verification none. There must be such draws: both rules keep the same distribution.",
        wanted: { classic: 3, block: 0 },
        start: [0.8, 0.8, 0.4],
        answer: [0.3, 0.3, 0.8],
        hints: ["Both first uniform draws must be below 1/2; the third guess can never be refused by the rule of 2023.", "The last uniform draw must not be below 5/8, and the first not below its h, 1/11."],
        solution: "For instance .30, .30 and .80.",
      }),
      summary(
        "Drawn chains: block verification. Drawn trees: traversal, from the leaves to the root.",
        "Guesses that were not drawn (a model’s likeliest words, n-grams): the walk, without any uniform draw.",
        "Rule “coupled”: the same seed gives the same text with any drafter, or none.",
      ),
    ];
  },
};
