// Chapter 3: one round of drafting and judging, a step at a time, by the classic rule.

import { computed, h, signal, watch } from "hs/base/dom";
import { fixed, percent, probability } from "hs/base/format";
import { WORDS, singleToken } from "hs/algorithm/toy";
import { overrated, precise } from "hs/lessons/chapters/03-a-round/overrated";
import { replay } from "hs/lessons/chapters/03-a-round/replay";
import { exercise } from "hs/lessons/exercise";
import { handle } from "hs/lessons/handle";
import { note, prose, pseudocode, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { ALL, REFUSED } from "hs/lessons/round";

const CASES = [
  { p: 0.3, q: 0.2, u: 0.99 },
  { p: 0.1, q: 0.4, u: 0.2 },
  { p: 0.06, q: 0.21, u: 0.3 },
  { p: 0, q: 0.05, u: 0.01 },
  { p: 0.45, q: 0.5, u: 0.85 },
];
const kept = ({ p, q, u }) => u < Math.min(1, p / q);

/** A sentence whose p and q can be moved. */
function playground() {
  const [p, q] = [signal(0.06), signal(0.21)];
  const chance = computed(() => Math.min(1, p.value / q.value), [p, q]);
  const result = h("strong");
  watch([chance], (now) => (result.textContent = now === 1 ? "always" : `in ${percent(now)} of all cases`));
  const options = { min: 0.01, max: 0.99, step: 0.01, format: (value) => fixed(value) };
  return prose("Try it: the target gives a word p = ", handle(p, { label: "p of the word", ...options }), ", the draft gives it q = ",
    handle(q, { label: "q of the word", ...options }), ". When the draft guesses this word, it is kept ", result, ".");
}

function dealt() {
  const answer = Object.fromEntries(CASES.map((each, i) => [`case${i + 1}`, kept(each) ? "keep" : "refuse"]));
  return exercise({
    id: "03.1",
    title: "Five dealt cases",
    ask: prose("For each guess you are told p, q and what the die shows. Keep it or refuse it?"),
    fields: CASES.map(({ p, q, u }, i) => ({
      name: `case${i + 1}`, label: `Case ${i + 1}: p = ${fixed(p)}, q = ${fixed(q)}, die ${fixed(u)}`, kind: "choice", options: [["keep", "keep"], ["refuse", "refuse"]],
    })),
    check(values) {
      const wrong = CASES.findIndex((_, i) => values[`case${i + 1}`] !== answer[`case${i + 1}`]);
      const fields = Object.fromEntries(CASES.map((_, i) => [`case${i + 1}`, values[`case${i + 1}`] === answer[`case${i + 1}`] ? "good" : "bad"]));
      if (wrong < 0) return { ok: true, fields, say: "All five. Only p, q and the die decide; how clever the guess looks does not." };
      const { p, q, u } = CASES[wrong];
      const why = p >= q ? "p is not below q, so no number of the die refuses it" : `p/q is ${fixed(p / q)}, and the die shows ${fixed(u)}, which is ${kept(CASES[wrong]) ? "less" : "not less"}`;
      return { ok: false, fields, say: `Look at case ${wrong + 1} again: ${why}.` };
    },
    hints: ["Work out p/q. Where it is 1 or more, you can stop: the guess is kept.", "Else the guess is kept exactly if the die shows less than p/q."],
    solution: () => h("ol", CASES.map((each) => h("li", `p/q = ${fixed(each.p / each.q)}, die ${fixed(each.u)}: ${kept(each) ? "keep" : "refuse"}.`))),
    answer,
  });
}

function comesOut() {
  const plain = (text) => text.toLowerCase().replace(/[^a-z ]/g, " ").trim().replace(/\s+/g, " ");
  return exercise({
    id: "03.2",
    title: "What comes out",
    ask: prose("The text is “the cat”. The draft guesses ", h("span.tok", "sat on red mat the"), ". The first two guesses are kept, the third is refused, and the residual gives ", h("span.tok", "a"),
      ". Which words does this round add?"),
    fields: [{ name: "words", label: "Added words, with spaces between", kind: "text" }],
    check({ words }) {
      const given = plain(words);
      if (given === "sat on a") return { ok: true, say: "Two guesses and the correction: three words for one pass of the large model." };
      if (given === "sat on") return { ok: false, say: "The round does not end empty-handed at a refusal: one more word comes out." };
      if (/^sat on a (mat|red|the)/.test(given)) return { ok: false, say: "What was guessed after “red” was guessed for another text, and goes with it." };
      if (given.includes("red")) return { ok: false, say: "“red” was refused. It does not come out; the residual’s word is in its place." };
      if (given.startsWith("the cat")) return { ok: false, say: "Leave out “the cat”: it was there before." };
      return { ok: false, say: "Walk from left to right: keep, keep, replace, and stop there." };
    },
    hints: ["The kept guesses come first, in their order.", "The first refusal ends the round, with one word in the refused one’s place."],
    solution: () => "“sat on a”. The guesses “mat” and “the” are never looked at.",
    answer: { words: "sat on a" },
  });
}

function whyTheyGo() {
  return exercise({
    id: "03.3",
    title: "Guesses 4 and 5",
    ask: prose("In the replay “red” was refused. Why are “big” and “on” thrown away without a look?"),
    fields: [{ name: "why", label: "Because", kind: "choice", options: [
      ["unlikely", "they were less likely than “red”"],
      ["context", "they, and the distributions p for them, followed a text with “red” in it"],
      ["time", "judging them would take another pass, so time is saved"],
      ["order", "the die has no numbers left"],
    ] }],
    check({ why }) {
      if (why === "context") return { ok: true, say: "The distributions that the pass gave for these places are distributions after “the cat a red …”. The text now reads “the cat a cat”: for it nothing has been guessed, and nothing computed." };
      const say = {
        unlikely: "How likely they are is never asked: after another word they could be likely or not, and the draft does not say.",
        time: "It is true that judging them after “cat” would take another pass. But why are the distributions of this pass of no use for them?",
        order: "There is always another number. Ask instead what text the distributions of this pass belong to.",
      }[why];
      return { ok: false, say, fields: { why: "bad" } };
    },
    hints: ["Which words had the large model read when it gave the distribution for the place of “big”?"],
    solution: () => "Each distribution is for one text before it. A refusal changes the text, and what was computed for the old one no longer applies.",
    answer: { why: "context" },
  });
}

export default {
  id: "03",
  title: "A round, slowly",
  minutes: 7,
  question: "You will be able to play a round by hand: draft, verify, accept or reject, commit.",
  round: { at: ALL, says: `All four steps, with their numbers. “${REFUSED.word}” came with q = ${REFUSED.q}, the large model gives it p = ${REFUSED.p}, and the die showed ${REFUSED.die}: not below p/q = ${REFUSED.limit}, so it is refused.` },
  exercises: ["03.1", "03.2", "03.3"],
  sources: [
    { text: "Leviathan, Kalman, Matias: Fast inference from transformers via speculative decoding (2022), algorithm 1", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen and others: Accelerating large language model decoding with speculative sampling (2023), algorithm 2", url: "https://arxiv.org/abs/2302.01318" },
  ],
  build() {
    const { judged, end, guess } = singleToken();
    const word = WORDS[guess.token];
    return [
      predict({
        id: "03",
        question: "After “the”, a small model guesses five words: cat, a, red, big, on. The large model checks them and refuses the third, “red”. How many words does the text grow by in this round?",
        kind: "choice",
        options: [["2", "2"], ["3", "3"], ["4", "4"], ["5", "5"]],
        reveal: (said) => prose(said === "3" ? "Yes, three: " : "Three: ", "“cat” and “a”, which were kept, and a word of the large model’s own in the place of “red”. The last two guesses are lost. Watch it happen."),
      }),
      section(
        "Twelve steps",
        prose("The models here know ten words only, so that you can see every number; real ones know 32,000 to 128,000 tokens or more, and nothing else is different. A ", term("distribution", "for every word, the chance that it comes next; the chances add up to 1"),
          " is drawn as ten bars. The die shows a number u between 0 and 1, each as likely as any other: a uniform draw."),
        replay(),
      ),
      section(
        "Four verbs",
        prose(h("b", "Draft."), " The small model writes K words, often 3 to 7, in the ordinary way, one after another, and remembers the distribution q that it drew each of them from."),
        prose(h("b", "Verify."), " The large model reads text and guesses in one pass. This gives its distribution p at every place: K + 1 distributions, as you saw in the last chapter."),
        prose(h("b", "Accept or reject."), " From left to right, a guess x is kept with chance p(x)/q(x), or for certain where p(x) is the larger. At the first refusal you stop, and draw the word for this place from the ",
          term("residual", "the part of p that lies above q, scaled so that it adds up to 1"), "."),
        prose(h("b", "Commit."), " The kept guesses and one word of the target’s join the text: a ", h("span.tok.correction", "correction"), " after a refusal, or, if every guess was kept, a ", h("span.tok.bonus", "bonus"),
          " from the last distribution, which needed no guess. So a round always adds at least 1 word, and at most K + 1: with K = 4 that is anything from 1 to 5, as chance will have it."),
        pseudocode([
          "repeat",
          "  for i = 1 … K:",
          "    q[i] = draft(text + x[1 … i-1])",
          "    x[i] = draw from q[i]",
          "  p[1 … K+1] = target(text + x[1 … K])      one pass",
          "  n = 0",
          "  while n < K and die() < p[n+1](x[n+1]) / q[n+1](x[n+1]):",
          "    n = n + 1",
          "  last = p[K+1] if n = K else residual(p[n+1], q[n+1])",
          "  text = text + x[1 … n] + draw from last",
        ], { mark: [6, 8], label: "A round, in pseudo-code" }),
        prose("Of the five guesses in the replay two were kept, 40% of those drafted. But only three were judged at all: keep these two counts apart, chapter 6 needs both."),
      ),
      section(
        "Only the overrated are refused",
        prose(`A published example: after “the cat” the draft said “${word}”. The target gives it p = ${precise(judged.p[guess.token])}, the draft had q = ${precise(judged.q[guess.token])}, so it is kept in only `
          + `${percent(judged.chance, 1)} of all cases. The die showed ${probability(judged.u)}: refused, and the residual gave “${WORDS[end.token]}”.`),
        overrated(),
        playground(),
        prose("Why this chance and this residual, and no others? Because with them the text follows the target’s distribution exactly. The next chapter proves it."),
        note("This is the classic rule of 2023. Headstart keeps a little more of each draft with a newer rule, block verification, which looks at the guesses together; chapter 4b plays it with the same cards."),
        note("Look at the letters before you read elsewhere. Here p is the target and q the draft, as in the first papers; others call the draft p and the target q, and then keep a guess with chance q/p."),
      ),
      dealt(),
      comesOut(),
      whyTheyGo(),
      summary(
        "A round drafts K words, verifies them in one pass, keeps a prefix of them, and adds one word of the target’s own.",
        "A guess x is kept with chance min(1, p(x)/q(x)): only words that the draft overrates are ever refused.",
        "After a refusal the later guesses go, because the distributions for them belong to a text that is not there any more.",
      ),
    ];
  },
};
