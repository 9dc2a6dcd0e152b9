// A die with a continuous face: a strip from 0 to 1, cut into parts, and a needle where the number fell.

import { fill, h } from "hs/base/dom";
import { probability } from "hs/base/format";

/**
 * @returns {{element: HTMLElement, set: (state: {parts: {share: number, words: string, kind: string}[], u: number|null}) => void}}
 *   kind: "kept", "refused", or "word", "hit" for the words that the die chooses from and the one that it hit
 */
export function die() {
  const strip = h("div.die-strip");
  const needle = h("div.die-needle");
  const element = h("div.die", { "aria-hidden": "true" }, strip, needle, h("div.die-ends", {}, h("span", "0"), h("span", "1")));
  const set = ({ parts, u }) => {
    element.classList.toggle("idle", !parts.length);
    fill(strip, parts.map(({ share, words, kind }) =>
      h(`span.die-part.${kind}`, { style: { width: `${100 * share}%` } }, share > 0.045 * words.length * 0.6 ? words : "")));
    needle.hidden = u === null;
    if (u === null) return;
    needle.style.left = `${100 * u}%`;
    fill(needle, h("span.die-number", { class: u > 0.85 ? "left" : u < 0.15 ? "right" : "" }, `die ${probability(u)}`));
  };
  return { element, set };
}

/** The parts of a distribution: one for each word, in the order in which a number between 0 and 1 chooses among them. */
export const wordParts = (words, distribution, hit) =>
  words.map((word, i) => ({ share: distribution[i], words: word, kind: i === hit ? "hit" : "word" }));

/** The two parts of a judgement. */
export const judgementParts = (chance) => [
  { share: chance, words: "keep", kind: "kept" },
  { share: 1 - chance, words: "refuse", kind: "refused" },
];
