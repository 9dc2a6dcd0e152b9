// Chapter 10: when speculation does not help, and when it hurts.

import { h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { handle } from "hs/lessons/handle";
import { note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { batches } from "hs/lessons/chapters/10-when-it-hurts/batches";
import { onOrOff, shortAnswer, stopsPaying } from "hs/lessons/chapters/10-when-it-hurts/exercises";
import { gain, seconds } from "hs/lessons/chapters/10-when-it-hurts/machine";
import { situationCards } from "hs/lessons/chapters/10-when-it-hurts/situations";
import { timeline } from "hs/lessons/chapters/10-when-it-hurts/timeline";

const BUSY = 256;

function predictions() {
  return predict({
    id: "10 batch",
    question: `A good draft (α = 0.8, K = 5) makes a 70B model ${fixed(gain(0.8, 5, 1))} times as fast for one request. Now ${BUSY} requests run at once. What does speculation do then?`,
    kind: "choice",
    options: [["same", "the same: all of them gain alike"], ["half", "a little less, but still a gain"], ["slower", "it makes all of them slower"]],
    reveal: (guess) => prose(
      guess === "slower" ? "Yes. " : "It makes them slower. ",
      `At ${BUSY} requests the speed is ${fixed(gain(0.8, 5, BUSY))} times the baseline. For one request the machine waited for memory, and checking guesses was free. For ${BUSY} it computes all the time, and nothing is free any more. The figures below show where that turns.`,
    ),
  });
}

function streaming() {
  const chunk = signal(3);
  const { verify, draft } = seconds(5, 1);
  const round = verify + 5 * draft;
  const said = h("span");
  watch([chunk], (n) => (said.textContent = `${fixed(1000 * round, 0)} ms of nothing and then ${n === 1 ? "one token" : `${n} tokens at once`}`));
  return prose(
    "Plain decoding gives a token every 42 ms. A round that emits ", handle(chunk, { label: "Tokens of a round", min: 1, max: 6, step: 1 }),
    " tokens gives ", said, ". On average that is sooner; to the eye it is a stutter. The middle gap (P50) falls to zero, because most tokens come together with the one before; the rare long gap (P99) is a whole round. ",
    "That is why P99 is the number to watch, and not P50. A paced stream shows the tokens of a burst evenly: switch it on in the figure. The last token comes a little later for it. ",
    "In headstart a request to the server asks for it with ", h("code", "speculation: {smooth: true}"), ".",
  );
}

export default {
  id: "10",
  title: "When it hurts",
  minutes: 9,
  question: "You can say for a given service whether to switch speculation on, and from what load on it costs more than it gives.",
  round: { at: ["verify"], says: "Five rows in a pass are nearly free for one text. With eight texts at once they are forty." },
  sources: [
    { text: "Leviathan, Kalman, Matias 2023", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Williams, Waterman, Patterson 2009: Roofline", url: "https://doi.org/10.1145/1498765.1498785" },
    { text: "Chen and others 2024: MagicDec, speculation at large batches and long contexts", url: "https://arxiv.org/abs/2408.11049" },
    { text: "vLLM 2024: How speculative decoding boosts vLLM performance by up to 2.8x", url: "https://blog.vllm.ai/2024/10/17/spec-decode.html" },
  ],
  exercises: ["10.1", "10.2", "10.3"],
  build() {
    return [
      predictions(),
      section(
        "Many requests at once",
        prose(
          "A forward reads all weights once, whatever the number of rows. This machine computes 239 rows in the time that the reading takes. A single request fills one of them; guesses fill some of the others, for nothing. Other requests can fill them, too. ",
          "A server that has enough requests has no room left for guesses: a refused guess then takes the place of somebody else’s token. Speculation shortens the time of a request; it does not add to the tokens per second of a machine that is busy.",
        ),
        batches().element,
        stopsPaying(),
        note(
          "Long contexts shift this. Each request also reads its own keys and values, which no other request shares, and with many thousand tokens a batch waits for memory again. Then guesses are free once more (Chen and others 2024).",
        ),
      ),
      section(
        "What speculation cannot touch",
        prose(
          "The ", term("time to the first token", "TTFT: from the request until its first token is there"), " is the reading of the prompt (prefill). All tokens of the prompt are known, so there is nothing to guess. ",
          "If people turn away after 300 ms without a sign of life, speculation does not help you; a prefix cache, a smaller model or a shorter prompt may. And where answers are short, a label, a “yes”, five or ten tokens, the first one is nearly all there is. Make the answer short and the first token late in this figure, and see how little is left of the gain.",
        ),
        timeline().element,
        shortAnswer(),
      ),
      section("A stream that stutters", streaming()),
      section(
        "Ten situations",
        prose("Three things turn the gain into a loss even for one request: a draft that is too expensive, one that is too different, and a target that is already fast. The cost ratio c should be 0.05 to 0.15 and the acceptance above 0.7: a draft of the same family that is 10 to 30 times smaller, a 7B model for a 70B one, is often there. Press a card, and then move what you can change."),
        situationCards(),
        prose("A target that is small, quantised or split over several machines takes less time a step, while a draft step hardly shrinks: c rises. A higher temperature lowers α if the drafter copies, or if it samples at a lower temperature: a rule of thumb says that T = 1.5 keeps 60 to 70% of the gain at T = 0.7. A draft that is drawn at the same temperature need not lose anything; chapter 8 lets you see both. Measure at the temperature that you serve."),
      ),
      onOrOff(),
      section(
        "What goes together with it",
        h(
          "ul",
          {},
          h("li", h("strong", "The KV cache. "), "Speculation needs it: without it a verification would read the whole text again. Rolling back refused guesses is setting a length (chapter 2)."),
          h("li", h("strong", "Batching. "), "In a batch each request accepts a different number of guesses. headstart lets the rows be ragged: no request waits for the slowest. Requests come and go between two steps (continuous batching). Their caches lie in slots; other servers cut them into pages (PagedAttention), which saves memory and changes nothing here."),
          h("li", h("strong", "No model that could draft. "), "A draft need not share the target’s tokenizer, though that is easier, and it need not be a model: n-gram, suffix and lookahead drafts need none (chapter 9)."),
          h("li", h("strong", "Prefill and decoding on different machines "), "(disaggregation). Large services do that. Speculation then belongs to the machines that decode; headstart runs both on one."),
        ),
        prose("You need not decide for each request. headstart’s adaptive pacing measures what a draft costs and gives, for the load of this moment, and drafts nothing where nothing is to be gained; a request can also say ", h("code", "speculation: {enabled: false}"), "."),
      ),
      summary(
        "Guesses are free while the machine waits for memory: one request or few. On a machine that is busy they take the place of other requests.",
        "The time to the first token stays what it is; answers of a few tokens gain next to nothing.",
        "Tokens come in bursts: P50 of the gaps falls, P99 is a whole round. A paced stream evens that out.",
        "A draft has to be cheap (c of 0.05 to 0.15) and alike (α above 0.7); otherwise choose another one, or none.",
      ),
    ];
  },
};
