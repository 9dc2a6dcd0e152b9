// What two distributions share: p is the target's, q the draft's, both after every processor. Twin of headstart.theory.distributions.

import { arithmeticOf, normalised, sum } from "hs/algorithm/arithmetic";

/** min(p, q) for each token: what both distributions give it. */
export function shared(p, q) {
  const a = arithmeticOf(p);
  return p.map((x, i) => a.min(x, q[i]));
}

/** max(p - q, 0) for each token: what the target gives a token beyond the draft. */
export function leftOver(p, q) {
  const a = arithmeticOf(p);
  return p.map((x, i) => a.max(a.minus(x, q[i]), a.zero));
}

/** alpha, the chance that a token drawn from q is kept: the sum of min(p, q). */
export function overlap(p, q) {
  return sum(shared(p, q));
}

/** TV(p, q) = 1 - overlap, as half the sum of |p - q|. */
export function totalVariation(p, q) {
  const a = arithmeticOf(p);
  return a.over(a.plus(sum(leftOver(p, q)), sum(leftOver(q, p))), a.plus(a.one, a.one));
}

/** norm(max(p - q, 0)), the distribution of the token after a refusal; p itself where nothing is left over. */
export function residual(p, q) {
  const rest = leftOver(p, q);
  return arithmeticOf(p).isZero(sum(rest)) ? p : normalised(rest);
}

/** The distribution of logits; at temperature 0 all of it on the first of the greatest. */
export function softmax(logits, temperature = 1) {
  const most = Math.max(...logits);
  if (temperature === 0) {
    const best = logits.indexOf(most);
    return logits.map((_, i) => (i === best ? 1 : 0));
  }
  const rises = logits.map((x) => Math.exp((x - most) / temperature));
  const total = rises.reduce((a, b) => a + b, 0);
  return rises.map((x) => x / total);
}

/** alpha under rule "coupled": the sum over x of 1 / sum_y max(p(y)/p(x), q(y)/q(x)). */
export function coupledAcceptance(p, q) {
  let alpha = 0;
  for (let x = 0; x < p.length; x++) {
    if (Math.min(p[x], q[x]) > 0) {
      alpha += 1 / p.reduce((total, _, y) => total + Math.max(p[y] / p[x], q[y] / q[x]), 0);
    }
  }
  return Math.min(alpha, 1);
}
