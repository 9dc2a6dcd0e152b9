// The rules of verification: which guesses are kept, and which token follows. Twin of headstart.rule.verify.
//
// A draft is a tree whose node i was drawn from q[i]; p[0] is the target's distribution after x0 (node -1), p[i + 1] the one
// after node i. Distributions are arrays of numbers or of fractions. Every rule returns what a picture needs to show it: the
// steps in order, with the weights that uniform draws were compared with, and the distribution that the last token was drawn from.

import { arithmeticOf, normalised, sum } from "hs/algorithm/arithmetic";
import { leftOver, residual } from "hs/algorithm/distributions";
import { Purpose } from "hs/algorithm/noise";

/**
 * @typedef {{tokens: number[], parents: number[], children: number[][], depths: number[],
 *   path: (node: number) => number[]}} Draft
 * @typedef {{rule: string, path: number[], accepted: number, token: number, kind: "correction"|"bonus"|"plain",
 *   distribution: Array, emitted: number[], steps: object[]}} Verdict
 * @typedef {(chance: any, node: number) => boolean} Accept whether the uniform draw of a node is below that chance
 * @typedef {(distribution: Array, depth: number) => number} Draw a token of that distribution
 */

/** A tree: parents[i] < i is the parent of node i, -1 for a child of x0. @returns {Draft} */
export function makeDraft(tokens, parents) {
  const children = [[], ...tokens.map(() => [])];
  const depths = [];
  parents.forEach((parent, node) => {
    if (!(parent >= -1 && parent < node)) throw new RangeError("a parent must come before its child");
    children[parent + 1].push(node);
    depths.push(parent < 0 ? 1 : depths[parent] + 1);
  });
  const path = (node) => (node < 0 ? [] : [...path(parents[node]), node]);
  return { tokens, parents, children, depths, path };
}

/** A draft in which each token follows the one before it. */
export function chain(tokens) {
  return makeDraft(tokens, tokens.map((_, i) => i - 1));
}

/** Acceptance by given uniform draws: u < chance, by node. */
export function uniforms(numbers) {
  return (chance, node) => {
    const a = arithmeticOf(chance);
    return a.less(a.of(numbers[node]), chance);
  };
}

function verdict(rule, draft, p, node, distribution, draw, steps, more = {}) {
  const path = draft.path(node);
  const token = draw(distribution, path.length);
  const kind = draft.tokens.length === 0 ? "plain" : draft.children[node + 1].length ? "correction" : "bonus";
  const emitted = [...path.map((each) => draft.tokens[each]), token];
  return { rule, path, accepted: path.length, token, kind, distribution, emitted, steps, ...more };
}

/**
 * The rule of 2022 and 2023 on a chain: keep guess x while u < p(x)/q(x); at the first refusal draw from what p has
 * beyond q; after no refusal draw from the last p.
 *
 * @param {Draft} draft @param {Array[]} p N + 1 distributions @param {Array[]} q N distributions @param {Accept} accept @param {Draw} draw
 * @returns {Verdict}
 */
export function chainRule(draft, p, q, accept, draw) {
  const a = arithmeticOf(p[0]);
  const steps = [];
  for (let node = 0; node < draft.tokens.length; node++) {
    const token = draft.tokens[node];
    const chance = a.min(a.over(p[node][token], q[node][token]), a.one);
    const accepted = accept(chance, node);
    steps.push({ node, token, p: p[node][token], q: q[node][token], chance, accepted });
    if (!accepted) return verdict("chain", draft, p, node - 1, residual(p[node], q[node]), draw, steps);
  }
  const last = draft.tokens.length - 1;
  return verdict("chain", draft, p, last, p[last + 1], draw, steps);
}

/**
 * Block verification of a chain: weights from the beginning, uniform draws from the end; the last one below its chance decides.
 *
 *     pi_0 = 1,  pi_i = min(pi_(i-1) p(x_i)/q(x_i), 1),  S_i = sum max(pi_i p - q, 0),
 *     h_i = S_i / (S_i + 1 - pi_i),  h_K = pi_K
 *
 * It is `traverse` on a chain, written out; the tests hold the two together.
 *
 * @returns {Verdict} also with weights [K + 1], and spare and chances [K + 1] (entry i belongs to the first i guesses)
 */
export function blockRule(draft, p, q, accept, draw) {
  const { weights, spare, chances } = blockChances(draft, p, q);
  const a = arithmeticOf(p[0]);
  const K = draft.tokens.length;
  const steps = [];
  let kept = K;
  for (; kept > 0; kept--) {
    const node = kept - 1;
    const accepted = !a.isZero(chances[kept]) && accept(chances[kept], node);
    steps.push({ node, token: draft.tokens[node], weight: weights[kept], chance: chances[kept], accepted });
    if (accepted) break;
  }
  let distribution = p[kept];
  if (kept < K) {
    const rest = leftOver(p[kept].map((x) => a.times(weights[kept], x)), q[kept]);
    if (!a.isZero(sum(rest))) distribution = normalised(rest);
  }
  return verdict("block", draft, p, kept - 1, distribution, draw, steps, { weights, spare, chances });
}

/** The numbers of block verification, which depend on no uniform draw: pi_i, S_i and h_i for i = 0..K; S_K is null. */
export function blockChances(draft, p, q) {
  const a = arithmeticOf(p[0]);
  const K = draft.tokens.length;
  const weights = [a.one];
  for (let i = 0; i < K; i++) {
    const token = draft.tokens[i];
    weights.push(a.min(a.over(a.times(weights[i], p[i][token]), q[i][token]), a.one));
  }
  const spare = [];
  const chances = [];
  for (let i = 0; i < K; i++) {
    spare.push(sum(leftOver(p[i].map((x) => a.times(weights[i], x)), q[i])));
    chances.push(i === 0 ? a.one : stillAccepted(a, spare[i], weights[i]));
  }
  return { weights, spare: [...spare, null], chances: [...chances, weights[K]] };
}

/** S / (S + 1 - w): the weight of a node below which a child was refused. Where S = 0 < 1 - w it is 0; 0/0 keeps w. */
function stillAccepted(a, total, weight) {
  if (!a.isZero(total)) return a.over(total, a.plus(total, a.minus(a.one, weight)));
  return a.less(weight, a.one) ? a.zero : weight;
}

/**
 * Traversal verification of a tree, leaf to root; on a chain it is block verification.
 *
 * A node first offers the decision to its children in drafting order. When all of a child's subtree is refused, the
 * part of weight * p that the child's distribution covered is taken away, and what remains is the node's new weight and distribution.
 * After the last child the node itself is accepted with its weight, and the bonus drawn from its distribution.
 *
 * @returns {Verdict} whose steps say, in order: "enter" a node with its weight, compare its "uniform" draw, "subtract" a refused
 *   child from its parent, "draw" the last token
 */
export function traverse(draft, p, q, accept, draw) {
  const a = arithmeticOf(p[0]);
  const steps = [];

  function visit(node, weight) {
    let distribution = p[node + 1];
    steps.push({ event: "enter", node, weight, distribution });
    for (const child of draft.children[node + 1]) {
      const token = draft.tokens[child];
      const covered = q[child];
      const found = visit(child, a.min(a.over(a.times(weight, distribution[token]), covered[token]), a.one));
      if (found) return found;
      const rest = leftOver(distribution.map((x) => a.times(weight, x)), covered);
      const total = sum(rest);
      weight = stillAccepted(a, total, weight);
      if (!a.isZero(total)) distribution = normalised(rest);
      steps.push({ event: "subtract", node, child, rest, total, weight, distribution });
    }
    if (node >= 0) {
      const accepted = !a.isZero(weight) && accept(weight, node);
      steps.push({ event: "uniform", node, weight, distribution, accepted });
      if (!accepted) return null;
    }
    const found = verdict("traverse", draft, p, node, distribution, draw, steps);
    steps.push({ event: "draw", node, distribution, token: found.token });
    return found;
  }

  return visit(-1, a.one);
}

/**
 * The rule of guesses that were not drawn: the target draws its own token at each node; if a child bears it, go there.
 *
 * @param {Draft} draft @param {Array[]} p N + 1 distributions @param {Draw} draw @returns {Verdict}
 */
export function walk(draft, p, draw) {
  const steps = [];
  let node = -1;
  for (;;) {
    const token = draw(p[node + 1], draft.path(node).length);
    const child = draft.children[node + 1].find((each) => draft.tokens[each] === token) ?? null;
    steps.push({ node, token, child });
    if (child === null) return verdict("walk", draft, p, node, p[node + 1], () => token, steps);
    node = child;
  }
}

/** Rule "coupled": `walk` with the noise of the seed and the position alone, so any draft gives the same text. */
export function coupled(draft, p, noise, position) {
  return { ...walk(draft, p, drawer(noise, position)), rule: "coupled" };
}

function drawer(noise, position) {
  return (distribution, depth) => noise.draw(distribution, position + depth, Purpose.TOKEN);
}

/**
 * Judges one draft with the noise of a request, as the engine does.
 *
 * @param {Draft} draft @param {number[][]} p @param {number[][]|null} q null for guesses that were not drawn
 * @param {import("hs/algorithm/noise").Noise} noise
 * @param {number} position absolute position of the first token that this round can emit
 * @param {"exact"|"coupled"|"chain"} rule "chain" is the classic rule with the same uniform draws
 * @returns {Verdict} with uniforms: the u of each drawn node
 */
export function verify(draft, p, q, noise, position, rule = "exact") {
  if (rule === "coupled") return coupled(draft, p, noise, position);
  const draw = drawer(noise, position);
  if (q === null) return walk(draft, p, draw);
  const numbers = draft.depths.map((depth, node) => uniformOf(noise, position, depth, node));
  const judge = rule === "chain" ? chainRule : traverse;
  return { ...judge(draft, p, q, uniforms(numbers), draw), uniforms: numbers };
}

/** The uniform draw u of a node at a depth (1 for a child of x0) in the round that begins at a position. */
export function uniformOf(noise, position, depth, node) {
  return noise.uniform(position + depth - 1, Purpose.ACCEPT, position, node);
}
