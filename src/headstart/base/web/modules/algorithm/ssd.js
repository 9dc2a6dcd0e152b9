// Drafting for every likely outcome while the target verifies. Twin of headstart.theory.ssd; times in verifications.

import { acceptedLengths } from "hs/algorithm/speed";

/** Speedup over the baseline: (h E_h + (1-h) E_m) / (h max(1 + s, T_a) + (1-h)(1 + s + T_m)). */
export function ssdSpeedup(hit, tokensHit, tokensMiss, ahead, onMiss, slow = 0) {
  const tokens = hit * tokensHit + (1 - hit) * tokensMiss;
  return tokens / (hit * Math.max(1 + slow, ahead) + (1 - hit) * (1 + slow + onMiss));
}

/** The most that drafting ahead can gain over drafting in turn: (1 + T_SD) / (1 + s) E_h / E_SD. */
export function ssdBound(tokensHit, tokensSd, draftSd, slow = 0) {
  return ((1 + draftSd) / (1 + slow)) * (tokensHit / tokensSd);
}

/** 1 - F^-r: the chance that the bonus token is among F foreseen ones; never with F = 0. */
export function hitRate(fanOut, r) {
  return fanOut < 1 ? 0 : 1 - fanOut ** -r;
}

/** The chance that a round's outcome was ready, with F_0..F_K foreseen bonus tokens after 0..K accepted ones. */
export function roundHitRate(fanOuts, alpha, r) {
  const chances = acceptedLengths(alpha, fanOuts.length - 1);
  return fanOuts.reduce((total, f, k) => total + chances[k] * hitRate(f, r), 0);
}

/** F_0..F_K, whole numbers that add up to `budget`, by largest remainder from the best shares P_k^(1/(1+r)). */
export function fanOuts(budget, k, alpha, r) {
  const shares = acceptedLengths(alpha, k).map((chance) => chance ** (1 / (1 + r)));
  const total = shares.reduce((a, b) => a + b, 0);
  const exact = shares.map((share) => (budget * share) / total);
  const given = exact.map(Math.floor);
  const owed = budget - given.reduce((a, b) => a + b, 0);
  const order = given.map((_, i) => i).sort((i, j) => given[i] - exact[i] - (given[j] - exact[j]) || i - j);
  for (const i of order.slice(0, owed)) given[i] += 1;
  return given;
}
