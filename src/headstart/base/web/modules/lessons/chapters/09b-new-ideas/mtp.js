// A head that came with the model: most of its step is the output matrix, so it may guess fewer words.

import { bestK, speedupByPosition } from "hs/algorithm/theory";
import { signal } from "hs/base/dom";
import { whole } from "hs/base/format";
import { choice } from "hs/figures/controls";
import { bestOf, gains } from "hs/lessons/chapters/09b-new-ideas/gains";
import { rounded } from "hs/lessons/chapters/tables";

/** Weights of a step of Qwen3.5-0.8B, from its shape: width 1,024, MLPs of 3,584, 18 layers with the gated delta rule and 6 with attention. */
const [WIDTH, TOKENS] = [1024, 248320];
const MLP = 3 * 3584 * WIDTH;
const ATTENTION = WIDTH * (2 * 2048 + 2 * 512 + 2048) + MLP;
const DELTA = WIDTH * (6144 + 2048 + 32 + 2048) + MLP;
export const STEP = 18 * DELTA + 6 * ATTENTION + TOKENS * WIDTH;
/** Weights of a step of its head that may guess so many tokens: the matrix that joins two inputs, one layer, the output matrix. */
export const headStep = (tokens) => 2 * WIDTH * WIDTH + ATTENTION + tokens * WIDTH;
/** Measured on a small hybrid with such a head, greedy: docs/figures.md. */
export const ACCEPTED = [0.77, 0.63, 0.64, 0.83];

export function mtp() {
  const kept = signal(32768);
  const price = (tokens) => headStep(tokens) / STEP;
  const gain = (tokens) => (k) => speedupByPosition(ACCEPTED, k, price(tokens));
  return gains({
    label: "A head that may guess all tokens, and one that may guess some",
    most: 8, top: 3, names: [`all ${whole(TOKENS)} tokens`, "those that you choose"], gains: () => [gain(TOKENS), gain(kept.value)], signals: [kept],
    controls: [choice({ label: "It may guess", value: kept, options: [131072, 32768, 8192].map((n) => [n, `${whole(n)} tokens`]) })],
    caption: "Calculated from the shape of Qwen3.5-0.8B, as if reading weights were all that takes time. The acceptance was measured on a small hybrid with such a head: .77, .63, .64 and .83 by place. A shorter list costs a little of it, which is left out here.",
    says: ([all, some]) => `A step of the head reads ${whole(headStep(kept.value) / 1e6)} of the model’s ${whole(STEP / 1e6)} million weights, so c = ${rounded(price(kept.value))}: ${bestOf(some)}. If it may guess all tokens, c = ${rounded(price(TOKENS))}, and ${bestOf(all)}.`,
  });
}

/** For the text: the best speedup with so many tokens. */
export const bestWith = (tokens) => bestK(ACCEPTED, headStep(tokens) / STEP, null, 8).speedup;
