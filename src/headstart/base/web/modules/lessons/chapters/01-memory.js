// Chapter 1: decoding waits for memory, not for arithmetic; so a pass with a few rows more costs hardly more.

import { computed, h, watch } from "hs/base/dom";
import { fixed, whole } from "hs/base/format";
import { ownMachine } from "hs/lessons/chapters/01-memory/doctor";
import { bytes, milliseconds, passOf } from "hs/lessons/chapters/01-memory/machines";
import { pipe, setting } from "hs/lessons/chapters/01-memory/pipe";
import { exercise } from "hs/lessons/exercise";
import { handle } from "hs/lessons/handle";
import { note, prose, pseudocode, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

const LARGE = passOf({ billions: 70, bits: 16, bandwidth: 3350, flops: 990 }, 1);

const rate = (perSecond) => (perSecond < 9.5 ? fixed(perSecond, 1) : whole(perSecond));

/** The sentence whose numbers are handles of the picture. */
function sentence(now) {
  const pass = computed(() => passOf({ billions: now.billions.value, bits: now.bits.value, bandwidth: now.bandwidth.value, flops: now.flops.value }, 1), [now.billions, now.bits, now.bandwidth, now.flops]);
  const result = h("span");
  watch([pass], ({ weights, reading }) => result.replaceChildren("That is ", h("strong", bytes(weights)), ", so one token takes ", h("strong", milliseconds(reading)), `, and there are at most ${rate(1 / reading)} a second.`));
  return prose(
    "A model of ", handle(now.billions, { label: "billions of weights", min: 1, max: 400, step: 1, format: (value) => `${value} billion` }),
    " weights, ", handle(now.bits, { label: "bits of a weight", min: 4, max: 16, step: 4, format: (value) => `${value} bits` }),
    " each, is read at ", handle(now.bandwidth, { label: "gigabytes a second", min: 10, max: 8000, step: 10, format: (value) => `${whole(value)} GB` }),
    " a second. ", result,
  );
}

function timeOfToken() {
  return exercise({
    id: "01.1",
    title: "A token of a large model",
    ask: prose("70 billion weights of 16 bits, memory that gives 3.35 TB a second, one text. How many milliseconds does a token take at least?"),
    fields: [{ name: "ms", label: "Milliseconds", kind: "number", unit: "ms" }],
    check({ ms }) {
      const right = 1000 * LARGE.reading;
      const near = (value) => Math.abs(ms - value) <= 0.02 * value;
      if (near(right)) return { ok: true, say: `140 GB divided by 3,350 GB a second: ${right.toFixed(1)} ms, or 24 tokens a second.` };
      if (near(right / 2)) return { ok: false, say: "This is what 8 bits would take. 16 bits are 2 bytes." };
      if (near(right / 1000)) return { ok: false, say: "This is in seconds. The question is about milliseconds." };
      if (near(right * 8)) return { ok: false, say: "Bits and bytes: 16 bits are 2 bytes." };
      if (near(1000 / right)) return { ok: false, say: "These are tokens a second. Turn it around." };
      return { ok: false, say: "First the bytes that a pass reads, then divide by the bytes a second." };
    },
    hints: ["70 billion weights of 2 bytes are 140 GB.", "140 GB / 3,350 GB/s is a time in seconds."],
    solution: () => "140 / 3,350 = 0.0418 seconds: 42 ms.",
    answer: { ms: 41.8 },
  });
}

function bytesOfText() {
  return exercise({
    id: "01.2",
    title: "A text of 200 tokens",
    ask: prose("The same model writes 200 tokens, one at a time. How many terabytes of weights go through the pipe in all?"),
    fields: [{ name: "tb", label: "Terabytes", kind: "number", unit: "TB" }],
    check({ tb }) {
      if (Math.abs(tb - 28) <= 0.28) return { ok: true, say: "200 times 140 GB: 28 TB, for a text that is itself smaller than a thousand bytes or so." };
      if (Math.abs(tb - 0.14) < 0.01) return { ok: false, say: "This is one pass. Each of the 200 tokens needs one." };
      if (Math.abs(tb - 28000) < 300) return { ok: false, say: "These are gigabytes. 1,000 of them are a terabyte." };
      if (Math.abs(tb - 14) < 0.2) return { ok: false, say: "Each weight has 2 bytes." };
      return { ok: false, say: "Every token reads all the weights once: 140 GB, 200 times." };
    },
    hints: ["How many passes are there?", "200 × 140 GB; 1,000 GB are 1 TB."],
    solution: () => "200 × 140 GB = 28,000 GB = 28 TB.",
    answer: { tb: 28 },
  });
}

function wrongWords() {
  return exercise({
    id: "01.3",
    title: "What is wrong here?",
    ask: prose("A blog says: “On a GPU with 80 GB of memory bandwidth, generating a token is limited by memory.” What is wrong?"),
    fields: [{ name: "wrong", label: "The mistake", kind: "choice", options: [
      ["limit", "generating a token is limited by arithmetic"],
      ["capacity", "80 GB is how much fits into the memory, not how fast it is read"],
      ["large", "80 GB is too much for a GPU"],
      ["nothing", "nothing"],
    ] }],
    check({ wrong }) {
      if (wrong === "capacity") return { ok: true, say: "A capacity is in bytes, a bandwidth in bytes a second. Such a card holds 80 GB, and reads up to 3,350 GB of them in a second." };
      return { ok: false, fields: { wrong: "bad" }, say: {
        limit: "For one text that part is right: the pass waits for memory.",
        large: "Cards with 80 GB are common in data centres.",
        nothing: "Look at the unit. What is counted in bytes, and what in bytes a second?",
      }[wrong] };
    },
    hints: ["In which unit would you give the speed of a pipe?"],
    solution: () => "80 GB is the capacity. The bandwidth of such a card is about 3,350 GB a second. The claim itself, that memory is the limit, is right.",
    answer: { wrong: "capacity" },
  });
}

export default {
  id: "01",
  title: "Why a token costs the whole model",
  minutes: 7,
  question: "You will be able to work out how long a token must take, and why a few more rows in a pass are nearly free.",
  round: { at: ["verify"], says: "Why may one pass read “cat” and four guesses, five words, for the price of one?" },
  exercises: ["01.1", "01.2", "01.3"],
  sources: [
    { text: "Chen and others: Accelerating large language model decoding with speculative sampling (2023), introduction", url: "https://arxiv.org/abs/2302.01318" },
    { text: "Williams, Waterman, Patterson: Roofline, an insightful visual performance model (2009)", url: "https://doi.org/10.1145/1498765.1498785" },
  ],
  build() {
    const now = setting();
    return [
      predict({
        id: "01",
        question: "A model has 70 billion weights of 2 bytes each. Its graphics card can do 990 trillion operations a second, and read 3,350 GB a second from its memory. It writes one text. How many tokens a second can you hope for?",
        kind: "number",
        unit: "tokens a second",
        min: 0,
        max: 1e9,
        reveal: (guess) => [
          prose(guess !== null && Math.abs(guess - 24) <= 3 ? "Right: about 24. " : "About 24. ", "Every token needs every weight, and 140 GB take 42 ms to come out of memory."),
          prose("The multiplications would allow some 7,000 tokens a second. The arithmetic units wait, more than 99% of the time, for something to multiply."),
        ],
      }),
      section(
        "A long pipe",
        prose("To write a token, a model passes its input through all of its layers. Every weight takes part, so every weight must come from memory to where the arithmetic is done. For the next token they must all come again: they are far too many to stay there."),
        sentence(now),
        pipe(now),
        prose("Now move n, the number of ", term("rows", "one row is one token at one place of a text that the pass computes something for"), " in the pass. While they come by, the weights can be multiplied with more than one row; the reading is the same. The line stays flat for a long while before it rises. Speculative decoding lives on this flat part."),
        note("140 GB do not fit into one card of 80 GB. Spread over two cards, each reads its half at the same time, and a token takes half as long. The flat part of the line stays as it is."),
      ),
      section(
        "Reading is quick, writing is slow",
        prose("When you send a prompt, all of its tokens are there at once: one pass with many rows reads them. This is called ", term("prefill", "the pass that reads the prompt; it fills the cache"), ", and the arithmetic units are busy. Then comes ",
          term("decoding", "writing the answer, token by token"), ": the next token is known only after the pass before it, so each pass has one row."),
        pseudocode(["text = prompt", "repeat:", "  logits = target(text)          all weights come from memory", "  token = draw from softmax(logits of the last row)", "  text = text + token            one token more"], { mark: [2], label: "Writing one token at a time" }),
        prose("200 tokens are 200 trips through the pipe. Chen and others name this as the reason for their paper: a call that waits for memory gives each text one token only, so a long text is mostly waiting. Nothing in the loop can be left out, since each token depends on the one before it. But a pass could take more rows along for nothing, if only we knew which: the tokens that are going to come next. We do not know them. We can guess them."),
      ),
      section(
        "Your own machine",
        prose("Where the line bends is a matter of the machine, of the model, and of how many texts are written at once, since each adds rows of its own. So measure it."),
        ownMachine(),
      ),
      timeOfToken(),
      bytesOfText(),
      wrongWords(),
      summary(
        "A token of one text takes as long as reading all the weights: their bytes over the bandwidth.",
        "The arithmetic is idle meanwhile, so a pass with a few more rows takes hardly longer.",
        "A plain loop cannot use that: it never knows more than one token to pass on.",
      ),
    ];
  },
};
