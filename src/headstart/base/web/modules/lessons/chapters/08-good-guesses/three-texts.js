// Greedy, sampled and speculative text of the same toy, side by side.

import { emittedDistribution } from "hs/algorithm/enumerate";
import { RandomState } from "hs/algorithm/randomstate";
import { SEED, WORDS, drafter, greedy, run, sampled, target, tokensOf } from "hs/algorithm/toy";
import { fill, h, signal, watch } from "hs/base/dom";
import { counted, fixed, percent } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";

const CONTEXT = tokensOf("the cat sat");
const TOKENS = 20;
const GAMMA = 5;

/** The three texts for a seed; the speculative one as a run with its counts. */
function threeTexts(seed) {
  return {
    greedy: greedy(CONTEXT, TOKENS),
    sampled: sampled(CONTEXT, TOKENS, new RandomState(seed)),
    speculative: run(CONTEXT, TOKENS, GAMMA, new RandomState(seed)),
  };
}

/** The origin of every token of a run: accepted, correction or bonus. */
function origins(found) {
  return found.rounds.flatMap(({ accepted, end }) => [...Array(accepted).fill("accepted"), end.kind]);
}

export function sideBySide() {
  const seed = signal(SEED);
  const rows = h("dl.three-texts");
  const words_ = h("p.texts-words");
  const shown = figure({
    label: "Twenty words after “the cat sat”: greedy, sampled, speculative",
    title: true,
    body: [rows, words_],
    controls: [
      button("Another seed", () => (seed.value += 1)),
      button("Seed 42, as published", () => (seed.value = SEED), { quiet: true }),
    ],
    caption: "Solid line: an accepted guess; dotted: a correction; double: a bonus token. Greedy text does not change with the seed. The other two differ from each other because they use their random numbers in another order; their distribution is the same, as the table says for the first word.",
    table: () => {
      const [p, q] = [target(CONTEXT), drafter(CONTEXT)];
      const emitted = emittedDistribution(p, q);
      const likeliest = p.indexOf(Math.max(...p));
      return {
        columns: ["first word", "greedy", "sampled", "speculative"],
        rows: WORDS.map((word, i) => [word, i === likeliest ? "1" : "0", fixed(p[i], 4), fixed(emitted[i], 4)]),
        caption: "The chance of each first word, exact. Speculative: one guess, judged by the classic rule.",
      };
    },
  });
  watch([seed], (now) => {
    const found = threeTexts(now);
    const marks = origins(found.speculative);
    const line = (name, tokens, calls, kinds) => [
      h("dt", {}, h("strong", name), h("span.soft", ` ${calls}`)),
      h("dd", {}, tokens.map((token, i) => [h(`span.tok${kinds ? `.${kinds[i]}` : ""}`, WORDS[token]), " "])),
    ];
    fill(
      rows,
      line("greedy", found.greedy, counted(TOKENS, "target call")),
      line("sampled", found.sampled, counted(TOKENS, "target call")),
      line("speculative", found.speculative.tokens, `${counted(found.speculative.targetCalls, "target call")}, ${counted(found.speculative.draftCalls, "draft call")}`, marks),
    );
    const { accepted, draftCalls, judged, conditional, acceptedOfDrafted, printed } = found.speculative;
    fill(
      words_,
      `Seed ${now}: ${accepted} of ${draftCalls} guesses were used (${percent(acceptedOfDrafted, 1)}), ${percent(conditional, 1)} of the ${judged} that were judged.`,
      now === SEED ? ` In print this run has an acceptance of ${percent(printed, 1)}, which counts corrections as well.` : "",
    );
    shown.update();
  });
  return shown.element;
}
