// The machine and the models of this chapter, and what an answer looks like in time.

import { decode, fixedK } from "hs/algorithm/adaptive";
import { batchSpeedup, forwardSeconds, payingBatch } from "hs/algorithm/machine";

/** A GPU of the data-sheet kind: 3.35 TB/s, 800 TFLOP/s in 16 bits. */
export const MACHINE = { bandwidth: 3.35e12, flops: 8e14, overhead: 0 };
export const TARGET = { parameters: 70e9, bytesPerWeight: 2 };
export const DRAFT = { parameters: 1e9, bytesPerWeight: 2 };

/** The speedup of a batch whose requests all draft k guesses. */
export const gain = (alpha, k, batch) => batchSpeedup(MACHINE, TARGET, alpha, k, batch, { draft: DRAFT });

/** The batch size up to which drafting pays. */
export const paysUpTo = (alpha, k) => payingBatch(MACHINE, TARGET, alpha, k, { draft: DRAFT, most: 2048 });

/** Seconds of a plain step, of a draft step and of a verification at a batch size. */
export const seconds = (k, batch) => ({
  plain: forwardSeconds(MACHINE, TARGET, 1, batch),
  draft: forwardSeconds(MACHINE, DRAFT, 1, batch),
  verify: forwardSeconds(MACHINE, TARGET, k + 1, batch),
});

/**
 * One answer, plain and with guesses: when each token is there, and what ran meanwhile.
 * @param {{batch: number, tokens: number, first: number, k: number, alpha: number, paced: boolean, seed?: number}} setup
 *   `first` is the time to the first token in seconds; `paced` shows the tokens of a burst evenly
 */
export function answer({ batch, tokens, first, k, alpha, paced, seed = 10 }) {
  const { plain, draft, verify } = seconds(k, batch);
  const steps = Array.from({ length: tokens - 1 }, (_, i) => ({ from: first + i * plain, to: first + (i + 1) * plain, kind: "plain" }));
  const run = decode({ alphas: Array(Math.max(1, tokens - 1)).fill(alpha), tokens: tokens - 1, choose: fixedK(k), seed });
  const length = k * draft + verify;
  const [blocks, shown] = [[], [first]];
  run.rounds.forEach(({ accepted, at }, i) => {
    const from = first + i * length;
    const burst = Math.min(accepted + 1, tokens - 1 - at);
    if (k > 0) blocks.push({ from, to: from + k * draft, kind: "draft" });
    blocks.push({ from: from + k * draft, to: from + length, kind: "verify", label: `+${burst}` });
    const between = paced && burst > 1 ? Math.min((0.8 * length) / burst, 0.05) : 0;
    for (let j = 0; j < burst; j++) shown.push(from + length + j * between);
  });
  return {
    plain: { blocks: steps, shown: [first, ...steps.map(({ to }) => to)], calls: steps.length },
    fast: { blocks, shown, calls: run.rounds.length },
  };
}

/** The gaps between tokens that follow each other on the screen. */
export const gaps = (shown) => shown.slice(1).map((time, i) => time - shown[i]);

/** The value that a share of the numbers is not above (nearest rank); NaN for none. */
export function quantile(numbers, share) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] : NaN;
}
