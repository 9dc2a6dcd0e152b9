// Chapter 2: the causal mask makes one pass answer the question of every place, so guesses are judged all at once.

import { computed, h, signal, watch } from "hs/base/dom";
import { listed } from "hs/base/format";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { maskGrid, rowInWords, useOf } from "hs/lessons/chapters/02-one-forward/mask";
import { shelf } from "hs/lessons/chapters/02-one-forward/shelf";
import { exercise } from "hs/lessons/exercise";
import { handle } from "hs/lessons/handle";
import { note, prose, pseudocode, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

const PREFIX = ["the", "cat", "sat"];
const GUESSES = ["on", "the", "red", "dog", "ran"];

/** The mask, a row at a time, for K guesses. */
function mask(k) {
  const guesses = () => GUESSES.slice(0, k.value);
  const sentence = h("p.step-words");
  const slice = h("p.mask-slice");
  const grid = maskGrid({ prefix: PREFIX, guesses: guesses(), at: 0, onPick: (row) => frame.go(row) });
  const show = (row) => {
    grid.set({ at: row });
    sentence.textContent = rowInWords(row, PREFIX, guesses());
  };
  const frame = figure({
    label: "Who may look at whom, in one pass",
    title: true,
    body: [h("div.mask-scene", {}, grid.element, h("div", {}, sentence, slice))],
    controls: slider({ label: "K, the number of guesses", value: k, min: 1, max: GUESSES.length, step: 1 }),
    caption: "Each row is a word that the large model reads; filled squares are the words that it may look at. Point at a row, or step with the arrows.",
    table: () => ({
      columns: ["row", "reads", "looks at", "good for"],
      rows: [...PREFIX, ...guesses()].map((word, row, all) => [row, word, all.slice(0, row + 1).join(" "), useOf(row, PREFIX, guesses()).short]),
    }),
    steps: { count: () => PREFIX.length + k.value, show, words: (row) => rowInWords(row, PREFIX, guesses()) },
  });
  watch([k], (now) => {
    grid.set({ guesses: guesses() });
    const [first, last] = [PREFIX.length - 1, PREFIX.length - 1 + now];
    slice.replaceChildren(`Of ${PREFIX.length + now} distributions, rows ${first} to ${last} are of use: `, h("strong", `${now + 1} distributions for ${now} ${now === 1 ? "guess" : "guesses"}`), ".");
    queueMicrotask(() => {
      frame.go(Math.min(frame.step.value, PREFIX.length + now - 1));
      frame.update();
    });
  });
  return frame.element;
}

/** Pick the row that judges guess 3. */
function pickRow() {
  const prefix = ["a", "big", "red", "dog", "sat"];
  const guesses = ["on", "the", "mat", "a"];
  let picked = null;
  const grid = maskGrid({ prefix, guesses, told: false, label: "Rows to choose from", onPick(row) {
    picked = row;
    grid.set({ at: row });
  } });
  const right = prefix.length + 1;
  return exercise({
    id: "02.1",
    title: "Who judges guess 3?",
    ask: prose("The text is “a big red dog sat”, the guesses are “on the mat a”. Choose the row whose distribution judges guess 3, “mat”. Rows are counted from 0."),
    widget: { element: grid.element, read: () => picked },
    check(row) {
      if (row === null) return { ok: false, say: "Choose a row of the grid first." };
      if (row === right) return { ok: true, say: `Row ${right}, “the”: it has read all up to guess 2, and gives the distribution of the word after it. In general guess i is judged by row P + i − 2, if the text has P words.` };
      if (row === right + 1) return { ok: false, say: "This row has read “mat” itself. It tells what comes after “mat”, not whether “mat” is right." };
      if (row < prefix.length - 1) return { ok: false, say: "The word after this row is part of the text already; there is nothing to judge." };
      return { ok: false, say: `The word after this row is ${row < right ? "an earlier one than “mat”" : "after “mat”"}. Look for the row just before “mat”.` };
    },
    hints: ["A row gives the distribution of the word that follows it.", "Which row is the last one that has not seen “mat”?"],
    solution: () => `Row ${right}, which reads “the”, the guess before “mat”. Rows ${prefix.length - 1} to ${prefix.length + 3} judge the four guesses and give the bonus.`,
    solve: () => grid.element.querySelectorAll("button")[right].click(),
  });
}

function countDistributions() {
  const [length, k] = [12, 7];
  return exercise({
    id: "02.2",
    title: "How many distributions?",
    ask: prose(`A text has ${length} tokens, and the draft has guessed ${k}. All ${length + k} go through one pass. Its output has a row for each token, counted from 0.`),
    fields: [
      { name: "distributions", label: "Distributions that are of use", kind: "whole" },
      { name: "first", label: "The first of them is row", kind: "whole" },
      { name: "last", label: "The last of them is row", kind: "whole" },
    ],
    check({ distributions, first, last }) {
      const right = { distributions: k + 1, first: length - 1, last: length + k - 1 };
      const fields = Object.fromEntries(Object.entries({ distributions, first, last }).map(([name, value]) => [name, value === right[name] ? "good" : "bad"]));
      if (Object.values(fields).every((state) => state === "good")) return { ok: true, fields, say: `${k + 1} distributions, rows ${length - 1} to ${length + k - 1}. In code: logits[${length - 1}:${length + k}].` };
      if (distributions === k) return { ok: false, fields, say: `${k} distributions judge the guesses. One more is of use, if all of them are kept.` };
      if (first === length) return { ok: false, fields, say: "Counting from 0, the text’s last token is not in the row of its number. And it is the row before a guess that judges it." };
      if (fields.distributions === "good" && first === right.first) return { ok: false, fields, say: "The last row is that of the last guess. What is its index, counted from 0?" };
      return { ok: false, fields, say: "The first guess is judged by the row of the text’s last token; the bonus comes from the row of the last guess." };
    },
    hints: ["Try it small in the picture: 3 words and K = 2.", "One distribution for each guess, and one for what comes after the last."],
    solution: () => `The text’s last token is row ${length - 1}, and judges guess 1. The last guess is row ${length + k - 1}, and gives the bonus. That makes ${k + 1}.`,
    answer: { distributions: k + 1, first: length - 1, last: length + k - 1 },
  });
}

function rewind() {
  return exercise({
    id: "02.3",
    title: "Rewind",
    ask: prose("The same 12 tokens and 7 guesses, with a cache. Before the pass the shelf holds 11 boxes. Three guesses are kept, the fourth is refused. To how many boxes is the shelf set back?"),
    fields: [{ name: "boxes", label: "Boxes", kind: "whole" }],
    check({ boxes }) {
      if (boxes === 15) return { ok: true, say: "12 for the text and 3 for the kept guesses. The correction gets its box in the next pass." };
      const say = {
        19: "That is the shelf after the pass, before the rewind: four of its boxes belong to words that are gone.",
        16: "The correction was drawn after the pass; no pass has read it, so it has no box yet.",
        14: "The pass also read the text’s twelfth token, which had no box before. It stays.",
        11: "Not everything was in vain: the text’s last token and the kept guesses have right boxes.",
      }[boxes];
      return { ok: false, say: say ?? "Count the words that a pass has read and that are still part of the text." };
    },
    hints: ["After the pass there are 11 + 8 boxes.", "Which of them belong to words that stay?"],
    solution: () => "11 + 1 + 7 = 19 boxes after the pass. Guesses 4 to 7 go: 19 − 4 = 15.",
    answer: { boxes: 15 },
  });
}

export default {
  id: "02",
  title: "One forward answers K\u00a0+\u00a01 questions",
  minutes: 6,
  question: "You will be able to say which row of a pass judges which guess, and what happens to the cache.",
  round: { at: ["verify"], says: "How does one pass give five distributions at once: what comes after “cat”, and after each of the four guesses?" },
  exercises: ["02.1", "02.2", "02.3"],
  sources: [
    { text: "Vaswani and others: Attention is all you need (2017), section 3.2.3, the mask", url: "https://arxiv.org/abs/1706.03762" },
    { text: "Leviathan, Kalman, Matias: Fast inference from transformers via speculative decoding (2022)", url: "https://arxiv.org/abs/2211.17192" },
  ],
  build() {
    const k = signal(4);
    const example = computed(() => GUESSES.slice(0, k.value), [k]);
    const questions = h("span");
    watch([example], (guesses) => (questions.textContent = listed(guesses.map((_, i) => `“${[...PREFIX, ...guesses.slice(0, i)].join(" ")} …”`))));
    return [
      predict({
        id: "02",
        question: "A large model is to check four guesses after “the cat sat”: on, the, red, dog. What comes after “the cat sat”? After “the cat sat on”? And so on. How many passes through the model does it need?",
        kind: "choice",
        options: [["1", "1"], ["4", "4"], ["5", "5"]],
        reveal: (said) => prose(said === "1" ? "Yes, one. " : "One. ", "It even answers a fifth question along the way: what comes after all four. You can read off why."),
      }),
      section(
        "No row looks ahead",
        prose("A model of this kind reads its words side by side. In every layer each word gathers something from other words, but only from itself and those before it: this is the ", term("causal mask", "a triangle of permissions, fixed when the model is trained"), "."),
        mask(k),
        prose("So what the row of “sat” computes cannot depend on the guesses after it. Its distribution is the very one that it would give if the text ended there. The same holds for every row: reading ", handle(k, { label: "number of guesses", min: 1, max: GUESSES.length, step: 1 }),
          " guesses at once answers ", questions, " and one question more, each as if it had been asked alone."),
        prose("Training uses the same property: the model reads a whole page and is corrected at every word of it in one pass, which is called ", term("teacher forcing", "each row is given the true words before it, not the model’s own"),
          ". A plain decoding step reads off the last row only. Speculative decoding reads off K + 1 rows."),
        pseudocode([
          "logits = target(text + guesses)      P + K rows",
          "distributions = softmax(logits[P-1 : P+K])    K + 1 distributions",
          "guess i is judged by distributions[i-1]",
          "the bonus comes from distributions[K]",
        ], { mark: [1], label: "The rows that are of use" }),
        note("“As if it had been asked alone” holds in exact arithmetic. Graphics cards may add numbers in another order when there are more rows, and then the last bits differ; headstart’s own kernels for processors keep them, and ", h("code", "headstart audit"), " checks it."),
      ),
      section(
        "What is computed, and what is remembered",
        prose("The older words need not be computed again. What later words gather from a word, its ", term("keys and values", "two vectors for each layer and head; together they are what attention looks at"), ", is kept in a cache. With it, a pass computes K + 1 rows, the text’s last word and the guesses, however long the text is."),
        shelf(),
        prose("Guesses put boxes on the shelf before anybody knows whether they are right. After a refusal the wrong ones must come off, on both models’ shelves. Forgetting this is a classic mistake: the text goes on as if refused words were still there."),
        prose("Headstart reads the drafts of several texts in one pass, of different lengths and from different places, each with a shelf of its own. It also reads whole trees of guesses; then the mask is no triangle any more, but follows the branches. You will plant one in chapter 9."),
      ),
      pickRow(),
      countDistributions(),
      rewind(),
      summary(
        "A row of a pass sees only what is before it, so one pass gives the distribution after every word that it reads.",
        "The row before a guess judges it; K guesses and the bonus take K + 1 distributions from one pass.",
        "The cache keeps what was computed; after a refusal it is set back to the words that stay.",
      ),
    ];
  },
};
