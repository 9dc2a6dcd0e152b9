// Chapter 0: the race. A guess, the same text written twice, and which of its words were guessed.

import { data, fill, h } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { recordedRun, WORDS } from "hs/algorithm/toy";
import { legend } from "hs/figures/text";
import { markGuessed } from "hs/lessons/chapters/00-two-typists/guess";
import { gainOf, race, result } from "hs/lessons/chapters/00-two-typists/race";
import { exercise } from "hs/lessons/exercise";
import { note, prose, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { progress } from "hs/lessons/progress";
import { ALL } from "hs/lessons/round";

const BET = "00";
const ROUNDS = 6;

/** The words of some rounds of the toy, each with its mark. */
function marked(rounds) {
  return rounds.flatMap(({ emitted, accepted, end }) => emitted.map((token, i) => ({ text: WORDS[token], origin: i < accepted ? "accepted" : end.kind })));
}

function countPasses() {
  const rounds = recordedRun(5).rounds.slice(0, ROUNDS);
  const tokens = marked(rounds);
  const [passes, guessed] = [rounds.length, tokens.filter(({ origin }) => origin === "accepted").length];
  return exercise({
    id: "00.1",
    title: "Count the passes",
    ask: [
      prose("Two tiny models, whom you will meet again, have written this nonsense. Its lines say where each word came from."),
      h("p.counted-text", {}, tokens.flatMap(({ text, origin }, i) => [i ? " " : "", h(`span.tok.${origin}`, text)])),
      legend(["accepted", "correction", "bonus"]),
      prose("Each pass of the large model ends with exactly one word of its own. How many passes were there, and how many words were guessed right?"),
    ],
    fields: [
      { name: "passes", label: "Passes of the large model", kind: "whole" },
      { name: "guessed", label: "Words guessed right", kind: "whole" },
    ],
    check(values) {
      const fields = { passes: values.passes === passes ? "good" : "bad", guessed: values.guessed === guessed ? "good" : "bad" };
      if (fields.passes === "good" && fields.guessed === "good") return { ok: true, fields, say: `${tokens.length} words for ${passes} passes: ${fixed(tokens.length / passes, 2)} words a pass, where one at a time would have taken ${tokens.length} passes.` };
      if (values.passes === tokens.length) return { ok: false, fields, say: "That is the number of passes without guesses. With guesses, a pass ends at a word of the large model’s own: one with a dotted or a double line." };
      if (values.passes === guessed && values.guessed === passes) return { ok: false, fields, say: "The other way round: solid lines are guesses, the others end a pass." };
      if (fields.passes === "good") return { ok: false, fields, say: "The passes are right. Guessed right are the words with a solid line." };
      return { ok: false, fields, say: "Count the words with a dotted or a double line: each of them ends a pass." };
    },
    hints: ["A solid line: the word was guessed, and the large model agreed.", "Every word without a solid line is the large model’s own, and there is one for each pass."],
    solution: () => `${passes} words have a dotted or a double line, so there were ${passes} passes; the other ${guessed} were guessed.`,
    answer: { passes, guessed },
  });
}

/** The bet beside the truth; it follows what the reader does further up. */
function betAgain(recorded) {
  const element = h("p.bet");
  const show = () => {
    const bet = progress.get(`prediction ${BET}`);
    fill(element, typeof bet === "number"
      ? ["You guessed ", h("strong", `${fixed(bet, 1)} times`), "; it was ", h("strong", `${fixed(gainOf(recorded), 1)} times`), ". By chapter 7 you will be able to work it out beforehand."]
      : "You have not guessed yet. The question is still at the top of this chapter.");
  };
  progress.changed.watch(show);
  show();
  return element;
}

const MISSING = "This page was built without the recorded race, so there is nothing to run here. The other chapters are complete.";

export default {
  id: "00",
  title: "Two typists",
  minutes: 5,
  question: "You will be able to say in a sentence what speculative decoding does, and what it leaves as it is.",
  round: { at: ALL, says: "This is the round that all chapters take apart: four guesses, one pass of the large model, four words. Here it goes by without a number." },
  exercises: ["00.1"],
  sources: [
    { text: "Leviathan, Kalman, Matias: Fast inference from transformers via speculative decoding (2022)", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen and others: Accelerating large language model decoding with speculative sampling (2023)", url: "https://arxiv.org/abs/2302.01318" },
    { text: "NVIDIA: An introduction to speculative decoding for reducing latency in AI inference", url: "https://developer.nvidia.com/blog/an-introduction-to-speculative-decoding-for-reducing-latency-in-ai-inference/" },
  ],
  build() {
    const recorded = data("race");
    return [
      recorded && predict({
        id: BET,
        question: "A model writes a short program, one token at a time. Then it writes the same program again, and this time a much smaller model guesses ahead for it. How many times as fast will the second run be?",
        kind: "number",
        unit: "times",
        min: 0.01,
        max: 1000,
        reveal: () => prose(result(recorded), " Watch it."),
      }),
      section(
        "The race",
        prose("Alone, the model works as usual: one pass through all of its weights for each token. With a draft, the small model writes a few tokens ahead, and the large one reads them all in one pass, keeps those that it would have written, and adds one of its own."),
        recorded ? race(recorded) : note(MISSING),
        prose("Look at the two strips: each block is one pass of the large model. With a draft a block is a little longer, because the small model needs time too. But there are fewer of them, because most give several tokens."),
      ),
      section(
        "An intern and a manager",
        prose("A manager has a letter to write. Her intern drafts the next five words, and she reads all five at a glance. She keeps them up to the first word that is not hers, writes her own there, and the intern goes on behind it. She decides about every word, so the letter is hers. If the first three of the five are hers, one look has given four words: the three, and one of her own. It is done sooner, because reading five words takes her no longer than writing one."),
        prose("The intern is the ", h("b", "draft model"), ", the manager the ", h("b", "target model"), ". Three questions are left open, and the next chapters answer them. Why does reading five words cost no more than writing one? How must she judge, so that the letter is exactly hers, even where there is chance in what she writes? And when is an intern worth having?"),
      ),
      recorded && section(
        "Easy words and hard words",
        prose("“The Eiffel Tower stands in …”: you do not need a large model for the next word. Most texts are full of such places, and a few where everything is decided. Here is the text of the race again. Where was the small model right?"),
        markGuessed(recorded.headstart.tokens),
        prose("Where a line is only indented or a bracket closed, two models hardly ever differ; where a new name begins, they easily do. You do not have to know beforehand which places are easy: the small model tries all of them, and the large one sorts them out."),
        note("The papers that introduced this in 2022 and 2023 measured 2 to 3 times the speed with T5-XXL (11 billion weights), and 2 to 2.5 times with Chinchilla (70 billion), with the same distribution of what is written."),
      ),
      countPasses(),
      recorded && betAgain(recorded),
      summary(
        "A small model guesses a few tokens; the large model checks all of them in one pass and adds one token of its own.",
        "The text is the large model’s. Only the number of its passes changes.",
        "Where words are easy, one pass gives several of them.",
      ),
    ];
  },
};
