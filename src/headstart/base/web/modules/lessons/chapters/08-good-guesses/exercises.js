// The exercises of chapter 8.

import { RandomState } from "hs/algorithm/randomstate";
import { greedy, run, sampled, tokensOf, words } from "hs/algorithm/toy";
import { append, h, signal, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { slider } from "hs/figures/controls";
import { each, near, numberIn, slip } from "hs/lessons/chapters/answers";
import { drawnAlpha } from "hs/lessons/chapters/08-good-guesses/pairs";
import { exercise } from "hs/lessons/exercise";

const AIM = 0.8;
const AIM_TOLERANCE = 0.005;

export function setDial() {
  const level = signal(0.3);
  const now = h("p.soft");
  watch([level], (x) => (now.textContent = `Agreement ${fixed(x)}. The figure above shows α for every agreement.`));
  return exercise({
    id: "08.1",
    title: "Four guesses out of five",
    ask: "Set the agreement so that 80% of the drawn guesses are kept on average (within half a point).",
    widget: {
      element: append(h("div"), slider({ label: "Agreement", value: level, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }), now),
      read: () => level.value,
    },
    check: (x) => {
      const alpha = drawnAlpha(x);
      if (Math.abs(alpha - AIM) <= AIM_TOLERANCE) {
        return { ok: true, say: `Right: at ${fixed(x)} α = ${percent(alpha, 1)}. The models are far from equal there, and still four of five guesses pass.` };
      }
      const trap = near(x, 0.8, 0.011) ? " Agreement is not α: an agreement of 0.8 keeps nine guesses out of ten." : "";
      return { ok: false, say: `At ${fixed(x)} α = ${percent(alpha, 1)}: ${alpha < AIM ? "too little. More agreement." : "too much. Less agreement."}${trap}` };
    },
    hints: ["In the table of the figure, 80% lies between 0.4 and 0.6.", "It lies nearer to 0.6: there it is 80.8%."],
    solution: () => "0.58 gives 79.8%, 0.59 gives 80.3%.",
    solve: () => (level.value = 0.58),
  });
}

const third = 1 / 3;

export const drawOrCopy = () =>
  exercise({
    id: "08.2",
    title: "Draw or copy",
    ask: "The draft knows the target’s distribution exactly: p = q = [0.5, 0.3, 0.2]. One drafter draws its guess from q; another always takes the likeliest word. What is α? And for the second one at a very high temperature, when all three words are equally likely? Fractions are fine.",
    fields: [
      { name: "drawn", label: "Drawn from q", kind: "fraction" },
      { name: "copied", label: "Likeliest word", kind: "fraction" },
      { name: "hot", label: "Likeliest word, high temperature", kind: "fraction" },
    ],
    check: each(
      {
        drawn: (x) => (near(x, 1) ? "" : slip(x, [[0.5, "Drawn: whatever is drawn, p/q is 1, so it passes."], [0.38, "Drawn: 0.38 is how often two separate draws agree. The rule compares distributions, not draws: p/q is 1 for every word."]], "Drawn: α = Σ min(p, q), and the distributions are equal.")),
        copied: (x) => (near(x, 0.5) ? "" : slip(x, [[1, "Likeliest word: its distribution q is now all on one word, so min(p, q) is p of that word and nothing else."]], "Likeliest word: a guess that is always the same passes as often as the target says it.")),
        hot: (x) => (near(x, third) ? "" : slip(x, [[1, "High temperature: equal distributions would give 1, but this drafter still puts all on one word."], [0, "High temperature: it still passes sometimes: when the target says that very word."]], "High temperature: what is p of any one word then?")),
      },
      "Right: 1, 1/2 and 1/3. The same knowledge, guessed in two ways. n-grams, trees of likeliest words and Medusa heads copy; a draft model can draw.",
    ),
    hints: ["α = Σ min(p, q), where q is the distribution of the guess.", "A guess that is always word 1 has q = [1, 0, 0]."],
    solution: () => "Drawn: .5 + .3 + .2 = 1. Copied: q = [1, 0, 0], so min gives .5. At a high temperature p = [1/3, 1/3, 1/3], and min gives 1/3.",
    answer: { drawn: "1", copied: "1/2", hot: "1/3" },
  });

const SHARP = 16 / 19;

export const sharpened = () =>
  exercise({
    id: "08.3",
    title: "The target at half the temperature",
    ask: "A small demonstration that you may meet (32 words, four guesses) uses the target itself as its draft, at temperature 0.5. Halving the temperature squares every probability and divides by their sum. With p = [0.5, 0.3, 0.2], what is α? A fraction or three decimals.",
    fields: [{ name: "alpha", label: "α", kind: "fraction" }],
    check: each(
      {
        alpha: (x) =>
          near(x, SHARP, 0.0011)
            ? ""
            : slip(x, [[0.38, "0.38 is the sum of the squares. Divide each square by it to get q."], [0.5, "That would be a draft that copies. This one draws from q, which still gives the other words something."], [0.658, "0.658 is q of the first word. There p is smaller; the smaller one counts, and then the other two words."], [1, "Same weights, but not the same distribution: q is sharper than p."]], "First q = [0.25, 0.09, 0.04] / 0.38, then the smaller of p and q for each word, then the sum.", 0.0021),
      },
      "Right: 16/19 = 0.842. With such a draft α has a closed form; with a trained one it has to be measured.",
    ),
    hints: ["The squares are 0.25, 0.09 and 0.04; they add up to 0.38.", "q = [25/38, 9/38, 4/38]. p is the smaller one only for the first word."],
    solution: () => "q = [25/38, 9/38, 4/38], so α = 1/2 + 9/38 + 4/38 = 32/38 = 16/19 = 0.842.",
    answer: { alpha: "16/19" },
  });

const CONTEXT = tokensOf("a big dog");
const LENGTH = 12;

/** Three texts of the toy in a fixed order: sampled, greedy, speculative. */
export const TEXTS = [
  ["a", words(sampled(CONTEXT, LENGTH, new RandomState(7)))],
  ["b", words(greedy(CONTEXT, LENGTH))],
  ["c", words(run(CONTEXT, LENGTH, 4, new RandomState(11)).tokens)],
];

const METHODS = [
  ["greedy", "greedy"],
  ["sampled", "sampled, one word at a time"],
  ["speculative", "speculative"],
  ["open", "sampled or speculative: the text cannot tell"],
];

export const whichText = () =>
  exercise({
    id: "08.5",
    title: "Which text is which?",
    ask: [
      h("p", "Three texts after “a big dog”, without marks: one greedy, one sampled, one speculative. Say of each what its words alone can tell you."),
      h("dl.three-texts", {}, TEXTS.map(([name, text]) => [h("dt", {}, h("strong", `Text ${name.toUpperCase()}`)), h("dd", {}, h("span.tok", text))])),
    ],
    fields: TEXTS.map(([name]) => ({ name, label: `Text ${name.toUpperCase()}`, kind: "choice", options: METHODS })),
    check: (values) => {
      const right = { a: "open", b: "greedy", c: "open" };
      const words_ = TEXTS.map(([name]) => {
        const text = `Text ${name.toUpperCase()}: `;
        if (values[name] === right[name]) return "";
        if (name === "b") return `${text}taking the likeliest word each time runs into a circle sooner or later. Look for a circle.`;
        if (values[name] === "greedy") return `${text}greedy text repeats as soon as its last three words do; this one does not go in a circle.`;
        return `${text}how could you know? Sampled and speculative text have the same distribution, so no text is evidence for one of them.`;
      });
      const wrong = words_.filter(Boolean);
      return {
        ok: wrong.length === 0,
        say: wrong.length
          ? [...new Set(wrong)].join(" ")
          : "Right. A was sampled and C was speculative, in fact; but that cannot be seen, and that it cannot is the whole point of the rule.",
        fields: Object.fromEntries(TEXTS.map(([name], i) => [name, words_[i] ? "bad" : "good"])),
      };
    },
    hints: ["One of the three texts goes in a circle.", "Which evidence could there be for “speculative”, if both have the same distribution?"],
    solution: () => "B is greedy: it repeats one word for ever. A and C cannot be told apart by their words, because sampled and speculative text have the same distribution.",
    answer: { a: "open", b: "greedy", c: "open" },
  });

const SAME = 0.03; // acceptances nearer than this may stand in either order

/** Put recorded kinds of text in the order of their acceptance. kinds: see `recorded`, the best first. */
export function orderKinds(kinds) {
  const chosen = [...kinds].sort((a, b) => a.title.localeCompare(b.title));
  const names = chosen.map((_, i) => `t${i}`);
  const rank = (kind) => kinds.indexOf(kind) + 1;
  return exercise({
    id: "08.4",
    title: "Easy text, hard text",
    ask: [
      h("p", "Four beginnings that the same pair went on with. In which were most guesses kept? Give each a place: 1 for the highest α. What was recorded is folded away below; think first."),
      h("dl.three-texts", {}, chosen.map((kind) => [h("dt", {}, h("strong", kind.title)), h("dd", {}, h("pre.snippet", {}, kind.prompt.trimEnd()))])),
    ],
    fields: chosen.map((kind, i) => ({ name: names[i], label: kind.title, kind: "number" })),
    check: (values) => {
      const places = names.map((name) => numberIn(values[name]));
      if ([...places].sort().join() !== chosen.map((_, i) => i + 1).join()) {
        return { ok: false, say: `Use each place from 1 to ${chosen.length} once.`, fields: {} };
      }
      const wrong = chosen.flatMap((one, i) =>
        chosen.flatMap((other, j) => (places[i] < places[j] && one.alpha < other.alpha - SAME ? [[one, other]] : [])),
      );
      if (!wrong.length) return { ok: true, say: `Right: ${kinds.map((kind) => `${kind.title} ${percent(kind.alpha)}`).join(", ")}.` };
      const [[above, under]] = wrong;
      return { ok: false, say: `“${above.title}” is above “${under.title}”. Which of the two leaves fewer ways to go on?`, fields: {} };
    },
    hints: ["Text that repeats itself, or has a fixed form, leaves one way to go on.", "Digits at random leave sixteen ways at every place, all alike."],
    solution: () => kinds.map((kind, i) => `${i + 1}. ${kind.title}, ${percent(kind.alpha)}`).join("; "),
    answer: Object.fromEntries(names.map((name, i) => [name, String(rank(chosen[i]))])),
  });
}
