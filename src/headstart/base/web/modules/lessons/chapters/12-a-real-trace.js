// Chapter 12: a real trace, read with everything the chapters before have taught; and the certificate.

import { fill, h } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { certificate } from "hs/lessons/chapters/12-a-real-trace/certificate";
import { chooser } from "hs/lessons/chapters/12-a-real-trace/chooser";
import { IDS, asked, nothingToAsk, questions } from "hs/lessons/chapters/12-a-real-trace/questions";
import { forgetExercises } from "hs/lessons/exercise";
import { note, prose, pseudocode, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { deepest, whatIf } from "hs/trace/what-if";
import { summary as summaryOf } from "hs/trace/rounds";
import { viewer } from "hs/viewer/app";
import { ALL } from "hs/lessons/round";

/** The question before the run is looked at; `place` shows its tiles, which tell the answer, only after a guess. */
const guess = (current, place) =>
  predict({
    id: "12",
    question: "Before you look closer: how many tokens does one forward of the target give in this trace?",
    kind: "number",
    unit: "tokens",
    reveal: () => {
      place.classList.remove("unguessed");
      const request = asked(current.trace);
      if (!request) return h("p", "Nothing was drafted in it: 1.");
      const { tokensPerForward, forwards, tokens } = summaryOf(request);
      return h("p", `${fixed(tokensPerForward)}: ${tokens} tokens from ${forwards} forwards. With half as long drafts it would have been ${halfOf(current.trace, request)}.`);
    },
  });

function halfOf(trace, request) {
  const found = whatIf(trace, request, Math.max(1, Math.floor(deepest(request) / 2)));
  const [low, high] = found.tokensPerForward;
  const words = fixed(low) === fixed(high) ? fixed(low) : `${fixed(low)} to ${fixed(high)}`;
  return found.label === "estimate" ? `about ${words}` : words;
}

export default {
  id: "12",
  title: "Read a real one",
  minutes: 9,
  question: "Everything at once: a run of real models, token by token and round by round. Yours, if you like.",
  round: { at: ALL, says: "The four steps once more, in rounds that a real model ran. Each is recorded with its time and its numbers." },
  exercises: IDS,
  sources: [{ text: "The format of a trace: docs/guides/read-a-trace.md" }],
  build() {
    const current = { trace: null, view: null };
    const [place, asking] = [h("div.wide.unguessed"), h("div")];
    const choose = chooser((trace, name) => {
      current.trace = trace;
      if (current.view) current.view.show(trace);
      else current.view = viewer({ trace, heading: "h4" });
      fill(place, current.view.element);
      const request = asked(trace);
      forgetExercises();
      fill(asking, request ? questions(request, name) : nothingToAsk());
    });
    choose.first();
    return [
      prose("This is what you came for. A trace says what every round drafted, what both models thought of it, which uniform draws decided, and how long it took. Nothing in it is made up for teaching."),
      section("Choose a run",
        choose.element,
        prose("One of your own is made by one command, and stays on your machine:"),
        pseudocode(["headstart generate --trace mine.jsonl \"def add(a, b):\""], { label: "The command that records a trace" })),
      current.trace && guess(current, place),
      section("Read it",
        prose("Begin with the text: solid lines are guesses that were kept, dotted ones corrections, double ones bonuses. Choose a token to see its card. Then walk along the rounds, with the buttons or the arrow keys, and through one round step by step. The figures of the whole run appear above the text once you have made your guess."),
        place,
        note("The rule that is drawn is the one that ran. What the papers of 2023 would have done with the same uniform draws is a switch, because it is another rule with the same distribution.")),
      section("Three questions about this run", asking),
      section("The end", certificate()),
      summary(
        "From a trace you can say what speculation gave, at which depth guesses fail, and where a round was lost.",
        "Tokens per forward, conditional acceptance and accepted of drafted are three different numbers.",
        "The rule that ran, and why every text it makes follows the target’s distribution alone.",
      ),
    ];
  },
};
