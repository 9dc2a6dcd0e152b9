// Chapter 9: where drafts come from. A gallery, a tree to plant, and drafting ahead of the verdict.

import { h } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { tableOf } from "hs/figures/figure";
import { BRANCHES, bestFanOuts, hitRateOf, lanesFigure, placer } from "hs/lessons/chapters/09-drafters/ahead";
import { FAMILIES } from "hs/lessons/chapters/09-drafters/families";
import { gallery } from "hs/lessons/chapters/09-drafters/gallery";
import { BY_RANK, NODES, best, planter } from "hs/lessons/chapters/09-drafters/plant";
import { exercise } from "hs/lessons/exercise";
import { note, prose, section, summary } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

const CLOSE = 0.05;

const guess = () =>
  predict({
    id: "09",
    question: "A program of 150 lines is to be written out again with one name changed. Who guesses best what comes next?",
    kind: "choice",
    options: ["a small model of the same family", "heads on the target itself", "somebody who copies from the program"],
    reveal: () =>
      h("div", {}, h("p", "The one who copies. Almost every line is in the prompt already, and copying costs nothing. The rule does not ask where a guess comes from: whatever is proposed, the text stays the target’s."),
        h("p", "So a drafter may be anything that can guess. Look at nine of them.")),
  });

function plantExercise() {
  const widget = planter();
  const most = best();
  return exercise({
    id: "09.1",
    title: "Plant a tree",
    ask: [
      h("p", `You may draft ${NODES} guesses, and they may branch. After any text, the target’s token is your first guess there in ${percent(BY_RANK[0])} of cases, the second in ${percent(BY_RANK[1])}, the third in ${percent(BY_RANK[2])}, the fourth in ${percent(BY_RANK[3])}.`),
      h("p", "Choose a box, and add a guess after it. A box shows the chance that the accepted path runs through it. Come within 5% of the best tree."),
    ],
    widget,
    check: ({ parents, tokens }) => {
      if (parents.length === 0) return { ok: false, say: "Plant something first." };
      const share = tokens / most.expected;
      const gap = `Your tree gives ${fixed(tokens, 3)} tokens a round; the best one ${fixed(most.expected, 3)}.`;
      if (share >= 1 - 1e-9) return { ok: true, say: `${gap} There is no better one.` };
      if (share >= 1 - CLOSE) return { ok: true, say: `${gap} That is within 5%.` };
      return { ok: false, say: `${gap} That is ${percent(1 - share, 1)} short.${parents.length < NODES ? ` You have ${NODES - parents.length} guesses left.` : ""}` };
    },
    hints: [
      "Each box is worth its percentage: the expected tokens are 1 plus the sum of all boxes. So always add the guess whose box would show the highest percentage.",
      "A chain of eight is not the best: its last boxes are worth next to nothing. Nor is one level: after the second guess there is little left.",
    ],
    solution: () => `The best tree has ${most.depths.filter((depth) => depth === 1).length} guesses at the first level and is ${Math.max(...most.depths)} deep: a long main branch with a second guess where it is near the root. It gives ${fixed(most.expected, 3)} tokens a round. Sequoia finds it by dynamic programming, for any number of guesses.`,
    solve: () => widget.plant(most.parents),
  });
}

function aheadExercise() {
  const widget = placer();
  const most = bestFanOuts();
  return exercise({
    id: "09.2",
    title: "Six branches for what may happen",
    ask: h("p", `While the target checks three guesses, the draft model can prepare ${BRANCHES} branches: each is one outcome, so many guesses kept and then one certain token. Place them so that the outcome was foreseen as often as possible; one percentage point below the best is near enough.`),
    widget,
    check: (given) => {
      const [mine, top] = [hitRateOf(given), hitRateOf(most)];
      const used = given.reduce((a, b) => a + b, 0);
      const words = `Your branches foresee ${percent(mine, 1)} of the outcomes; the best placing ${percent(top, 1)}.`;
      return { ok: mine >= top - 0.01, say: used < BRANCHES ? `${words} You have ${BRANCHES - used} left.` : words };
    },
    hints: ["A branch is worth the chance of its outcome times what it adds to what is foreseen. The first branch after an outcome adds most.", "“All kept” is the likeliest outcome, and its next token is the easiest to foresee, so it deserves more than one branch."],
    solution: () => `After 0, 1, 2 and 3 kept guesses: ${most.join(", ")} branches. They foresee ${percent(hitRateOf(most), 1)}.`,
    solve: () => widget.place(most),
  });
}

const STORIES = [
  ["edit", "You edit long files of code; most of the answer is in the prompt.", "ngram", "Copying gives long accepted stretches for nothing."],
  ["chat", "One 70B model serves chat for a year, and you may train something small.", "eagle", "A net on the target’s own hidden states guesses best, and a year pays for its training."],
  ["family", "A 7B model of the same family as your 70B target lies on the disk; nothing may be trained.", "draft", "A small model of the same family guesses well as it is."],
  ["memory", "There is no memory for a second model, and nothing may be trained; copying from the prompt alone gives little.", "lookahead", "Lookahead needs only the target: it guesses from its own wider forwards."],
  ["agent", "An agent calls the same tools with nearly the same arguments, request after request.", "suffix", "Suffix look-up remembers earlier answers, not only this text."],
];
const OPTIONS = ["draft", "ngram", "suffix", "eagle", "lookahead"].map((kind) => [kind, FAMILIES.find((family) => family.kind === kind).name]);

const stories = () =>
  exercise({
    id: "09.3",
    title: "Who fits which story?",
    ask: h("p", "Give each story the drafter that fits it best; each is used once."),
    fields: STORIES.map(([name, story]) => ({ name, label: story, kind: "choice", options: OPTIONS })),
    check: (values) => {
      const wrong = STORIES.filter(([name, , kind]) => values[name] !== kind);
      const fields = Object.fromEntries(STORIES.map(([name, , kind]) => [name, values[name] === kind ? "good" : "bad"]));
      if (wrong.length === 0) return { ok: true, say: h("ul", {}, STORIES.map(([, , , why]) => h("li", why))), fields };
      return { ok: false, say: `${STORIES.length - wrong.length} of ${STORIES.length} fit. Look again at: “${wrong[0][1]}”`, fields };
    },
    hints: ["Ask of each story: may anything be trained? Is there memory for a second model? Does the text repeat itself, within one request or from one to the next?"],
    solution: () => h("ul", {}, STORIES.map(([, story, kind, why]) => h("li", {}, `${story} `, h("strong", FAMILIES.find((family) => family.kind === kind).name), `. ${why}`))),
    answer: Object.fromEntries(STORIES.map(([name, , kind]) => [name, kind])),
  });

const variants = () =>
  h("div.wide.scroll-table", { tabindex: "0", role: "region", "aria-label": "The families side by side" }, tableOf({
    columns: ["family", "what it costs", "acceptance, training"],
    rows: [...FAMILIES.map(({ name, costs, range }) => [name, costs, range]), ["Trees, from heads or a small net", "more rows in the same forward", "as if .85 or more on one chain"]],
  }));

export default {
  id: "09",
  title: "Where drafts come from",
  minutes: 12,
  question: "Anything may guess. You will know the families, plant a tree of guesses, and see how to guess while the verdict is still out.",
  round: { at: ["draft"], says: "“sat on the a” may come from anywhere: a small model, a copy, a head. The other three steps stay as they are." },
  exercises: ["09.1", "09.2", "09.3"],
  sources: [
    { text: "Leviathan, Kalman, Matias 2023: a small model drafts", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Cai et al. 2024: Medusa", url: "https://arxiv.org/abs/2401.10774" },
    { text: "Li et al. 2024: EAGLE", url: "https://arxiv.org/abs/2401.15077" },
    { text: "Fu et al. 2024: Lookahead decoding", url: "https://arxiv.org/abs/2402.02057" },
    { text: "Miao et al. 2023: SpecInfer, trees of guesses", url: "https://arxiv.org/abs/2305.09781" },
    { text: "Chen et al. 2024: Sequoia, the best tree", url: "https://arxiv.org/abs/2402.12374" },
    { text: "Kumar, Dao, May 2026: speculative speculative decoding", url: "https://arxiv.org/abs/2603.03251" },
    { text: "PyTorch 2024: A hitchhiker’s guide to speculative decoding", url: "https://pytorch.org/blog/hitchhikers-guide-speculative-decoding/" },
  ],
  build() {
    return [
      prose("The rule of the last chapters never asks who guessed. It asks only which tokens were proposed and, if they were drawn by chance, with which probabilities. That leaves a great deal of freedom."),
      guess(),
      section("Nine ways to guess",
        prose("Choose a drafter and step through its rounds. Some are replays of real runs; the others are small true drafters on our ten words, and say so."),
        gallery(),
        variants(),
        note("The ranges are those that articles and papers give for chat and code; a range is no promise for your text. “Spiky” means: many tokens where the text repeats itself, none elsewhere. Chapter 9b has newer kinds: guesses all at once, heads inside checkpoints, stacks. Measure yours with ", h("code", "headstart doctor"), ".")),
      section("More than one guess for a place",
        prose("A forward pass over eight rows costs hardly more than over one (chapter 1). So why put all eight on one chain? If the second guess is wrong, the other six were for nothing. A tree hedges: two guesses for the same place, and the better branch goes on."),
        prose("All branches share the text before them in the cache, and each guess may look only at its own branch: the mask of chapter 2, with a branch for a row. At the end one path is kept, and the rest is forgotten."),
        plantExercise()),
      section("Guess while the verdict is out",
        prose("Drafting and verifying take turns: one of the two models always waits. Speculative speculative decoding lets them run at once. The draft model does not know yet which guesses will be kept, so it prepares for several outcomes. Its paper reports about 30% over the best drafting in turn, and up to 5 times over the baseline."),
        lanesFigure(),
        aheadExercise()),
      section("Which one for whom?",
        stories(),
        note(h("strong", "Another tokenizer? "), "It is often said that draft and target must share one. They need not: the guessed text can be split again with the target’s tokenizer, or the draft distribution moved to the tokens that both have. It costs some acceptance."),
        note(h("strong", "Quantised models? "), "Yes, the draft and the target. A draft may be as rough as it likes, because the target checks it. A quantised target is another target: its own distribution is what stays exact."),
        note(h("strong", "Beam search? "), "It looks for one likely text among many; speculation makes one text sooner. They answer different questions, and headstart does the second. The two can be combined: each beam is drafted for by itself."),
        note(h("strong", "Does anybody use it? "), "vLLM, TensorRT-LLM, SGLang and transformers have it, and large services are reported to run it."),
      ),
      summary(
        "A drafter can be a small model, heads on the target, a copy from the text, or all of these in a list; the text stays the target’s.",
        "What it costs and what it gives differ: copying is free and spiky, trained heads guess best, small models fit anywhere.",
        "A tree of guesses hedges. The best tree for eight guesses is neither a chain nor a fan, and can be computed.",
        "Drafting ahead hides the drafting, as often as the outcome was foreseen.",
      ),
    ];
  },
};
