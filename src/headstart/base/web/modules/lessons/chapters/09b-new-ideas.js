// Chapter 9b: six ideas of newer drafters and newer targets, each with one figure.

import { h } from "hs/base/dom";
import { draftSteps } from "hs/algorithm/theory";
import { each, near, slip } from "hs/lessons/chapters/answers";
import { expertBoard } from "hs/lessons/chapters/09b-new-ideas/experts";
import { CALL, forced } from "hs/lessons/chapters/09b-new-ideas/forced";
import { mtp } from "hs/lessons/chapters/09b-new-ideas/mtp";
import { parallel } from "hs/lessons/chapters/09b-new-ideas/parallel";
import { stack } from "hs/lessons/chapters/09b-new-ideas/stack";
import { states } from "hs/lessons/chapters/09b-new-ideas/states";
import { rounded } from "hs/lessons/chapters/tables";
import { exercise } from "hs/lessons/exercise";
import { note, prose, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

const COPY = 0.4;
const CERTAIN = CALL.filter(([, only]) => only).length;

const guess = () =>
  predict({
    id: "09b",
    question: `A model has to call a tool: it writes JSON with fixed names, and only the values are its own. Of ${CALL.length} tokens of such a call, how many need no guess, because the form lets no other token come?`,
    kind: "number",
    unit: `of ${CALL.length}`,
    reveal: () => h("p", {}, h("strong", `${CERTAIN} of ${CALL.length}`), " in the run that this chapter shows at its end. A draft of these cannot be refused."),
  });

const stacked = () =>
  exercise({
    id: "09b.1",
    title: "A stack at its best",
    ask: h("p", `A copy of the target on 4 bits drafts three tokens. A step of it costs ${COPY} of a plain step of the target, and its rows are free. What does the draft cost if the copy writes token by token? And if a drafter of its own guesses two of the three, at no cost and always right?`),
    fields: [{ name: "alone", label: "Token by token", kind: "number", unit: "plain steps" }, { name: "best", label: "With perfect guesses", kind: "number", unit: "plain steps" }],
    check: each({
      alone: (x) => (near(x, 3 * COPY) ? "" : slip(x, [[3, "Three steps of the copy, yes; each costs 0.4 of a plain step of the target."]], "One step of the copy for each token.")),
      best: (x) => (near(x, COPY * draftSteps(3, 1, 0)[3]) ? "" : slip(x, [[1, "One step of the copy; and what does that cost in plain steps of the target?"], [0.8, "The copy checks both guesses in one step, and the same step gives the third token."]], "The copy checks its guesses as the target does: all in one step, which gives a token of its own besides.")),
    }, "Right: 1.2 and 0.4. The inner round is a round like any other: two guesses and a bonus, for one step of the copy."),
    hints: ["The copy is the target of the inner drafter.", "A round with two guesses that are right gives three tokens."],
    solution: () => `3 × ${COPY} = ${rounded(3 * COPY)}. With two right guesses, one step of the copy gives all three tokens: ${COPY}.`,
    answer: { alone: "1.2", best: "0.4" },
  });

const IDEAS = [["parallel", "all guesses in one pass"], ["mtp", "the head that came with it"], ["short", "shorter drafts"], ["log", "a log of what was drafted"], ["certain", "certain runs"]];
const CASES = [
  ["chain", "The chain of a head takes half of the time of a round.", "parallel", "One pass for all guesses takes away most of that half."],
  ["routes", "Each further row of the target has to read further experts.", "short", "Late guesses are the least likely, and each costs reading."],
  ["refused", "A layer has added a refused guess to its state.", "log", "Drafted tokens wait in a log until they are accepted; the state never meets a refused one."],
  ["keys", "Nearly all of the answer is the names of fields.", "certain", "They are drafted without a guess and always accepted."],
  ["none", "There is no second model, but the checkpoint has one layer more than the model needs.", "mtp", "That layer was trained to guess the token after the next."],
];

const cases = () =>
  exercise({
    id: "09b.2",
    title: "Which idea helps?",
    ask: h("p", "Give each case the idea that was made for it; each is used once."),
    fields: CASES.map(([name, label]) => ({ name, label, kind: "choice", options: IDEAS })),
    check: (values) => {
      const wrong = CASES.filter(([name, , idea]) => values[name] !== idea);
      const fields = Object.fromEntries(CASES.map(([name, , idea]) => [name, values[name] === idea ? "good" : "bad"]));
      if (wrong.length === 0) return { ok: true, say: h("ul", {}, CASES.map(([, , , why]) => h("li", why))), fields };
      return { ok: false, say: `${CASES.length - wrong.length} of ${CASES.length} fit. Look again at: “${wrong[0][1]}”`, fields };
    },
    hints: ["Ask of each case what is too expensive in it: the draft, the check, taking back, or guessing what is certain."],
    solution: () => h("ul", {}, CASES.map(([, label, idea, why]) => h("li", {}, `${label} `, h("strong", IDEAS.find(([name]) => name === idea)[1]), `. ${why}`))),
    answer: Object.fromEntries(CASES.map(([name, , idea]) => [name, idea])),
  });

export default {
  id: "09b",
  title: "Newer drafters, newer targets",
  minutes: 11,
  question: "You will be able to say what each of six newer ideas saves, what it costs, and when it is worth it.",
  round: { at: ["draft", "verify"], says: "Three of these six ideas make “sat on the a” cheaper to guess, two are about what the large model is made of, and one needs no guess at all. The rule is the same in all of them." },
  exercises: ["09b.1", "09b.2"],
  sources: [
    { text: "DFlash, 2026: a block of guesses in one pass", url: "https://arxiv.org/abs/2602.06036" },
    { text: "DSpark, 2026: acceptance by place of EAGLE-3, DFlash and DSpark", url: "https://arxiv.org/abs/2607.05147" },
    { text: "P-EAGLE, 2026", url: "https://arxiv.org/abs/2602.01469" },
    { text: "DeepSeek-V3 technical report, 2024: multi-token prediction", url: "https://arxiv.org/abs/2412.19437" },
    { text: "Wang et al. 2024: The Mamba in the Llama, replaying in place of copying", url: "https://arxiv.org/abs/2408.15237" },
  ],
  build() {
    return [
      guess(),
      section("All guesses in one pass",
        prose("A head such as EAGLE guesses one token after the other, so four guesses are four passes of the head. DFlash puts four empty places behind the text and fills all of them in one pass. That pass may be larger, so the first guess is better. But no guess knows the one before it, so late guesses are worse. DSpark joins neighbours with a small table and keeps most of what independence loses: its paper reports 3.64 tokens a round on chat, where DFlash has 3.07 and EAGLE-3 2.39."),
        parallel()),
      section("A head that came with the model",
        prose("Some checkpoints hold one layer more than the model needs. It was trained beside the model to guess the token after the next, and it is called an MTP head, for multi-token prediction. Nothing has to be trained or loaded besides. Its step is one layer and the output matrix; in a small model with a large vocabulary the matrix is nearly all of that. So headstart lets it guess a part of the vocabulary. The target still writes the other tokens as often as before."),
        mtp()),
      section("A drafter for the drafter",
        prose("A large draft model guesses well and is slow, for the reason of chapter 1: it reads its weights for each token. So it gets a drafter of its own, and writes its draft in rounds. The inner rounds keep the draft model’s distribution exactly, so the target keeps as many guesses as before. Only the price of a draft falls."),
        stack(),
        note("Measured with a copy on 4 bits and look-up in the text as its drafter, on a model of a billion weights: the stack was 1.6 times as fast as the copy alone, and had 0.76 of the speed of a small draft model that fits well. A stack helps a draft model that is good and slow; it does not replace one that is good and fast.")),
      stacked(),
      section("A mixture reads what its rows choose",
        prose("In a mixture of experts each row of a forward chooses a few experts of each layer, and all that are chosen have to be read. A row that is refused has been read for, too. Move K, and watch one layer."),
        expertBoard(),
        prose("So a mixture wants short drafts that are surely right. Chapter 7 has the whole curve for three published models.")),
      section("A state cannot be cut",
        prose("The layers of a hybrid model are of two kinds. Attention keeps a list with an entry for each token: when a guess is refused, its entry is dropped. A recurrent layer keeps one sum over the whole text, and a refused token cannot be taken out of a sum. Copying the state for each guess would do, and would be a lot to write. headstart writes what each token would put into the state to a log, and lets accepted tokens into the state later. To refuse is to forget rows."),
        states()),
      section("Some tokens are certain",
        prose("Where the answer must fit a grammar, as in a call of a tool, the grammar often lets a single token come. Such tokens are no guesses: they are drafted at no cost and cannot be refused. The target still has to read them, for its keys and values, and reads a whole run in one forward."),
        forced()),
      cases(),
      summary(
        "Guessing all at once pays where drafting takes much of a round; a draft model that is good and slow can have a drafter of its own.",
        "An MTP head costs one layer and the output matrix, so it guesses a part of a large vocabulary.",
        "A mixture wants short drafts, because refused rows have been read for.",
        "A hybrid lets tokens into its state once they are accepted.",
        "Under a grammar, certain tokens come in runs, one forward for each run.",
      ),
    ];
  },
};
