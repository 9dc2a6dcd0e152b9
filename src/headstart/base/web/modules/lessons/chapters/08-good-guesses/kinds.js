// Acceptance by kind of text, recorded from real models.

import { bestK } from "hs/algorithm/theory";
import { data, h } from "hs/base/dom";
import { day, percent } from "hs/base/format";
import { figure } from "hs/figures/figure";
import { legend, tokenText } from "hs/figures/text";
import { rounded } from "hs/lessons/chapters/tables";

/** What was recorded: {kinds: [{title, prompt, judged, accepted, alpha, tokens: [[text, origin]]}], ...}, best first. */
export function recorded() {
  const found = data("kinds");
  const kinds = found.kinds.map((kind) => ({ ...kind, alpha: kind.accepted / kind.judged }));
  return { ...found, kinds: kinds.sort((a, b) => b.alpha - a.alpha) };
}

const tokensOf = ({ prompt, tokens }) => [
  { text: prompt, origin: "prompt", step: -1 },
  ...tokens.map(([text, origin], i) => ({ text, origin, step: i })),
];

export function byKind({ kinds, k, sampling, seeds, versions, date, commit }) {
  const bar = ({ alpha }) => h("span.kind-bar", { "aria-hidden": "true" }, h("span.kind-fill", { style: { width: percent(alpha, 1) } }));
  const [easy, hard] = [kinds[0], kinds.at(-1)];
  const gain = ({ alpha }) => rounded(bestK(alpha, 0.1).speedup);
  return figure({
    label: "Acceptance in recorded texts, by kind",
    title: true,
    body: [h(
      "div.kinds",
      {},
      kinds.map((kind) =>
        h(
          "div.kind",
          {},
          h("div.kind-line", {}, h("strong", kind.title), bar(kind), h("strong", percent(kind.alpha))),
          h("details", {}, h("summary", "One of its texts"), legend(), tokenText({ tokens: tokensOf(kind) }).element),
        ),
      ),
    ), h("p.figure-said", `At c = 0.1 the best draft length would make ${easy.title.toLowerCase()} ${gain(easy)}× as fast, and ${hard.title.toLowerCase()} ${gain(hard)}×.`)],
    caption: `Recorded: the bundled pair at temperature ${sampling.temperature}, ${k} drawn guesses a round, ${seeds[1]} texts of ${sampling.max_tokens} tokens of each kind; ${day(date)}, commit ${commit}, torch ${versions.torch}. It is a very small pair: do not judge the texts.`,
    table: () => ({
      columns: ["text", "judged", "accepted", "α"],
      rows: kinds.map((kind) => [kind.title, kind.judged, kind.accepted, percent(kind.alpha, 1)]),
    }),
  }).element;
}
