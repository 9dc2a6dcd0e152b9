// The cache of keys and values as a shelf: a pass puts boxes on it, and a refusal takes the wrong ones off again.

import { fill, h } from "hs/base/dom";
import { figure } from "hs/figures/figure";

const TEXT = ["the", "cat", "sat"];
const GUESSES = ["on", "the", "red", "dog"];
const KEPT = 2;
const CORRECTION = "mat";

/** The steps: the text, the boxes on the shelf with their state, and the sentence. */
export const STAGES = [
  {
    text: TEXT.map((word) => [word, "prompt"]),
    shelf: TEXT.slice(0, -1).map((word) => [word, "old"]),
    say: "Between two rounds, every word of the text has a box on the shelf, except the last one: “sat” was only just written, and no pass has read it.",
  },
  {
    text: [...TEXT.map((word) => [word, "prompt"]), ...GUESSES.map((word) => [word, "guessed"])],
    shelf: TEXT.slice(0, -1).map((word) => [word, "old"]),
    say: "The draft guesses four words. It has a small shelf of its own for that; the large model’s has not moved.",
  },
  {
    text: [...TEXT.map((word) => [word, "prompt"]), ...GUESSES.map((word) => [word, "guessed"])],
    shelf: [...TEXT.slice(0, -1).map((word) => [word, "old"]), ...[TEXT.at(-1), ...GUESSES].map((word) => [word, "new"])],
    say: "One pass over five rows, “sat” and the four guesses. The two older words are not computed again: their boxes are read. Five boxes are added.",
  },
  {
    text: [...TEXT.map((word) => [word, "prompt"]), ["on", "accepted"], ["the", "accepted"], ["red", "refused"], ["dog", "beyond"]],
    shelf: [...[...TEXT, ...GUESSES.slice(0, KEPT)].map((word) => [word, "old"]), ...GUESSES.slice(KEPT).map((word) => [word, "wrong"])],
    say: "“on” and “the” are kept, “red” is refused. The boxes of “red” and “dog” now belong to a text that does not exist.",
  },
  {
    text: [...TEXT.map((word) => [word, "prompt"]), ["on", "accepted"], ["the", "accepted"], [CORRECTION, "correction"]],
    shelf: [...TEXT, ...GUESSES.slice(0, KEPT)].map((word) => [word, "old"]),
    say: "The shelf is rewound: its length is set back from 7 to 5. Nothing is copied. The correction “mat” has no box yet; the next pass will read it first.",
  },
];

export function shelf() {
  const text = h("p.round-text");
  const boards = h("ol.shelf");
  const count = h("p.shelf-count");
  const sentence = h("p.step-words");
  let now = STAGES[0];
  const show = (i) => {
    now = STAGES[i];
    fill(text, now.text.flatMap(([word, kind], at) => [at ? " " : "", h(`span.tok.${kind}`, word)]));
    fill(boards, now.shelf.map(([word, state]) => h("li", { class: state }, h("span.mono", word), h("span.unseen", { new: ", new", wrong: ", wrong now", old: "" }[state]))));
    count.textContent = `${now.shelf.length} boxes`;
    sentence.textContent = now.say;
  };
  return figure({
    label: "A shelf of keys and values, through one round",
    title: true,
    body: [h("p.shelf-name", "the text"), text, h("p.shelf-name", "the large model’s shelf"), boards, count, sentence],
    caption: "A box holds the keys and values of one word, of every layer. The draft’s shelf is rewound in the same way.",
    table: () => ({ columns: ["place", "on the shelf", "state"], rows: now.shelf.map(([word, state], i) => [i, word, { old: "right", new: "new", wrong: "wrong now" }[state]]) }),
    steps: { count: STAGES.length, show, words: (i) => STAGES[i].say },
  }).element;
}
