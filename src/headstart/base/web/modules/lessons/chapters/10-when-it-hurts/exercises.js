// The exercises of chapter 10.

import { h } from "hs/base/dom";
import { counted } from "hs/base/format";
import { gain, paysUpTo } from "hs/lessons/chapters/10-when-it-hurts/machine";
import { exercise } from "hs/lessons/exercise";

const [ALPHA, K] = [0.6, 4];
const NEAR = 0.03;

/** The batch size at which it stops paying. */
export function stopsPaying() {
  const right = paysUpTo(ALPHA, K);
  return exercise({
    id: "10.1",
    title: "Where it stops paying",
    ask: `Set α to ${ALPHA} and K to ${K} in the figure above. Up to how many requests at once is speculation still faster than plain decoding? (Within 3% is close enough.)`,
    fields: [{ name: "batch", label: "Requests at once", kind: "whole" }],
    check({ batch }) {
      if (Math.abs(batch - right) <= NEAR * right) return { ok: true, say: `Yes: it pays up to ${right} requests. At ${right} the speed is ${gain(ALPHA, K, right).toFixed(3)}, at ${right + 1} it is ${gain(ALPHA, K, right + 1).toFixed(3)}.` };
      if (batch < 1) return { ok: false, say: "At least one request runs, or there is nothing to speed up." };
      return { ok: false, say: `With ${counted(batch, "request")} the speed is ${gain(ALPHA, K, batch).toFixed(2)} times the baseline: ${gain(ALPHA, K, batch) > 1 ? "still faster, so go higher" : "already slower, so go lower"}.` };
    },
    hints: ["Move the slider “Requests at once” until the speed falls through 1.00; then go back and forth by one with the arrow keys.", "Between 100 and 115."],
    solution: () => `${right}. A verification of ${K + 1} rows a request takes as long as ${K + 1} plain rows once the machine computes all the time, and gives 2.31 tokens on average. Beyond the 239 rows that this machine computes while it reads the weights once, every guess costs what a token costs.`,
    answer: { batch: right },
  });
}

/** A short answer behind a long prompt. */
export function shortAnswer() {
  const [first, step, tokens, times] = [1.2, 0.04, 11, 2.5];
  const right = (first + (tokens - 1) * step) / (first + ((tokens - 1) * step) / times);
  return exercise({
    id: "10.2",
    title: "A short answer behind a long prompt",
    ask: `The first token comes after ${first} s. Ten more tokens follow at 40 ms each. Speculation makes the decoding ${times} times as fast. How many times as fast does the whole answer come?`,
    fields: [{ name: "times", label: "Times as fast", kind: "number", unit: "×" }],
    check: ({ times: given }) =>
      Math.abs(given - right) <= 0.012
        ? { ok: true, say: `Yes: 1.60 s become ${(first + 0.4 / times).toFixed(2)} s. Speculation touches 0.4 s of them.` }
        : { ok: false, say: Math.abs(given - times) < 0.01 ? "That is the decoding alone. The time to the first token stays what it was." : "Add up both parts before and after: 1.2 s stay, and 0.4 s are divided by 2.5." },
    hints: ["Before: 1.2 + 10 × 0.04 = 1.6 s.", "After: 1.2 + 0.4 / 2.5 = 1.36 s."],
    solution: () => `1.6 / 1.36 = ${right.toFixed(2)}.`,
    answer: { times: right.toFixed(2) },
  });
}

const REASONS = [
  ["free", "rows are free: the machine waits for memory"],
  ["busy", "no row is free: the machine computes all the time"],
  ["first", "nearly all of the time passes before the first token"],
  ["copy", "guesses are copied from the text at hand; no model is needed"],
];
const CARDS = [
  ["chat", "A person chats with a 70B model on a GPU of her own. Answers have 400 tokens; a 1B draft is accepted at α = 0.75.", "on", "free"],
  ["night", "A nightly job summarises 10,000 documents, 400 at a time. No user waits for a single one.", "off", "busy"],
  ["filter", "A filter reads mails of 2,000 tokens and answers “yes” or “no”.", "off", "first"],
  ["edit", "A code editor lets a model rewrite a file with small changes. There is no small model with its tokenizer.", "on", "copy"],
];

/** Four cards: on or off, and why. */
export function onOrOff() {
  return exercise({
    id: "10.3",
    title: "On or off, and why",
    ask: "Four services. Would you switch speculation on, and what decides it?",
    fields: CARDS.flatMap(([name, words], i) => [
      { name: `${name}-set`, label: `Card ${i + 1}. ${words}`, kind: "choice", options: [["on", "on"], ["off", "off"]] },
      { name: `${name}-why`, label: "Because", kind: "choice", options: REASONS },
    ]),
    check(values) {
      const marks = {};
      for (const [name, , set, why] of CARDS) {
        marks[`${name}-set`] = values[`${name}-set`] === set ? "good" : "bad";
        marks[`${name}-why`] = values[`${name}-why`] === why ? "good" : "bad";
      }
      const wrong = CARDS.filter(([name]) => marks[`${name}-set`] === "bad" || marks[`${name}-why`] === "bad").map(([name]) => CARDS.findIndex(([each]) => each === name) + 1);
      return { ok: wrong.length === 0, say: wrong.length ? `Look again at card ${wrong.join(", ")}.` : "All four. The question is always the same: is there time in which the machine waits, and does that time fall into the decoding?", fields: marks };
    },
    hints: ["Each of the four reasons belongs to one card.", "Ask for each card: does a forward wait for memory or for arithmetic? And is the time spent on decoding at all?"],
    solution: () => h("ol", {}, CARDS.map(([, , set, why]) => h("li", `${set}; ${REASONS.find(([name]) => name === why)[1]}`))),
    answer: Object.fromEntries(CARDS.flatMap(([name, , set, why]) => [[`${name}-set`, set], [`${name}-why`, why]])),
  });
}
