// A draft model that has a drafter of its own. Twin of headstart.theory.stacks.

import { expectedTokens, verifyCost } from "hs/algorithm/speed";

/**
 * What a draft of 0, 1, ..., k tokens costs, in plain steps of the model that writes it.
 *
 * @param {number} k @param {number} alpha the chance that a guess for this model is right
 * @param {number|number[]} c what a guessed token costs in the same steps, or what 0, 1, ... of them cost
 * @param {object|Function|null} v a forward of this model by rows @param {number} most guessed at once
 */
export function draftSteps(k, alpha, c, v = null, most = 16) {
  const guess = (j) => (Array.isArray(c) ? c[j] : c * j);
  const longest = Array.isArray(c) ? Math.min(most, c.length - 1) : most;
  const steps = [0];
  for (let left = 1; left <= k; left++) {
    const round = (j) => {
      let cost = verifyCost(v, j + 1) + guess(j);
      for (let kept = 0; kept <= j; kept++) cost += alpha ** kept * (kept < j ? 1 - alpha : 1) * steps[left - kept - 1];
      return cost;
    };
    steps.push(Math.min(...Array.from({ length: Math.min(longest, left - 1) + 1 }, (_, j) => round(j))));
  }
  return steps;
}

/** E(alpha, K) / (v(K+1)/v(1) + c steps[K]). c: a plain step of the draft model, in plain steps of the target. */
export const stackedSpeedup = (alpha, k, c, steps, v = null) => expectedTokens(alpha, k) / (verifyCost(v, k + 1) + c * steps[k]);
