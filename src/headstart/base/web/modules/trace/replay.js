// The rule that ran, as a list of events that pictures can step through, and in words. Nothing is guessed: the numbers
// are those of the file, in which the recorder wrote down what each uniform draw was compared with.

import { probability, visible } from "hs/base/format";
import { childrenOf, entryOf, isChain, pathTo } from "hs/trace/rounds";

/**
 * @typedef {{kind: "enter"|"uniform"|"own"|"draw"|"read", node: number, accepted?: boolean, token?: number,
 *   child?: number|null, uniform?: number, weight?: number, end?: string}} Event
 *   enter: the rule goes down past a node, whose uniform draw is looked at later. uniform: a node's uniform draw is compared with its weight.
 *   own: the target draws its own token after a node (-1: x0), which `child` has, or no guess. draw: the last token.
 */

/** What the rule did in a step, in order. @returns {Event[]} */
export function events(step) {
  if (step.procedure === "read") return [{ kind: "read", node: -1 }];
  const last = step.path.at(-1) ?? -1;
  const draw = { kind: "draw", node: last, token: step.end.token, end: step.end.kind };
  if (step.procedure === "plain") return [draw];
  return step.procedure === "walk" ? walked(step, draw) : traversed(step, last, draw);
}

function walked(step, draw) {
  const found = (step.drawn ?? []).map(([node, token]) => {
    const child = childrenOf(step)[node + 1].find((each) => step.tokens[each] === token);
    return { kind: "own", node, token, child: child ?? null };
  });
  return [...found, draw];
}

function traversed(step, last, draw) {
  const children = childrenOf(step);
  const found = [];
  const visit = (node) => {
    if (node >= 0) found.push({ kind: "enter", node, reach: reachOf(step, node) });
    for (const child of children[node + 1]) if (visit(child)) return true;
    if (node < 0) return true;
    const { uniform, weight } = step.nodes[node];
    const accepted = node === last;
    found.push({ kind: "uniform", node, uniform, weight: weight ?? null, accepted });
    return accepted;
  };
  visit(-1);
  return [...found, draw];
}

/**
 * The weight with which the rule comes to a node on its way down: min(weight above * p / q, 1), beginning with 1 at x0.
 * Null behind an elder sibling: what that one has left is known only from the whole distributions, which a trace does not hold.
 */
export function reachOf(step, node) {
  const children = childrenOf(step);
  let reach = 1;
  for (const each of pathTo(step, node)) {
    if (children[step.parents[each] + 1][0] !== each) return null;
    const { p, q } = step.nodes[each];
    if (p === null || !(q > 0)) return null;
    reach = Math.min((reach * p) / q, 1);
  }
  return reach;
}

/** The name of the rule that ran, and what it does, in words. */
export function ruleOf(request, step) {
  if (step.procedure === "read") return { name: "Reading", words: "A part of the prompt was read. Nothing was judged." };
  if (step.procedure === "plain") {
    return { name: "Plain decoding", words: "Nothing was drafted: the target draws one token from its own distribution." };
  }
  if (step.procedure === "walk") {
    if (request.rule === "coupled") {
      return {
        name: "Coupled: the target’s own tokens",
        words: "At each node the target draws its own token with the noise of seed and position. A guess is kept if it is that token. So every draft leads to the same text.",
      };
    }
    return {
      name: "Walk: the target’s own tokens",
      words: request.greedy
        ? "These guesses were not drawn by chance. At each node the target says its likeliest token; a guess is kept if it is that token."
        : "These guesses were not drawn by chance. At each node the target draws its own token; a guess is kept if it is that token.",
    };
  }
  return isChain(step)
    ? {
        name: "Block verification",
        words: "Weights are carried down the chain, then each guess’s uniform draw is compared with its weight, from the last guess to the first. The first guess whose uniform draw is below its weight is kept, and with it all guesses before it.",
      }
    : {
        name: "Traversal verification",
        words: "Weights are carried down the tree, then each node’s uniform draw is compared with its weight, from the leaves to the root. The first node whose uniform draw is below its weight is kept, and with it all nodes above it.",
      };
}

/** One event as a sentence. */
export function inWords(request, step, event) {
  const text = (token) => `“${visible(request.text(token))}”`;
  const name = (node) => (node < 0 ? "the last token" : `guess ${text(step.tokens[node])}`);
  switch (event.kind) {
    case "read":
      return "A part of the prompt was read; nothing was judged.";
    case "enter": {
      const { p, q } = step.nodes[event.node];
      const distributions = `p ${probability(p)}, q ${probability(q)}`;
      return event.reach === null
        ? `Down to ${name(event.node)}: ${distributions}. Its weight is what its elder siblings have left.`
        : `Down to ${name(event.node)}: ${distributions}. Weight so far: ${probability(event.reach)}.`;
    }
    case "uniform":
      return uniformWords(name(event.node), event);
    case "own":
      return event.child === null
        ? `After ${name(event.node)} the target’s own token is ${text(event.token)}. No guess bears it.`
        : `After ${name(event.node)} the target’s own token is ${text(event.token)}. A guess bears it: accepted.`;
    default:
      return drawWords(text(event.token), event.end, step, request.greedy);
  }
}

function uniformWords(name, { uniform, weight, accepted }) {
  if (weight === null) return `${capital(name)} is ${accepted ? "accepted" : "refused"}.`;
  if (!(weight > 0)) return `Back at ${name}: its weight is 0, so no uniform draw can keep it.`;
  const compared = `uniform draw ${probability(uniform)}, weight ${probability(weight)}`;
  return accepted
    ? `Back at ${name}: ${compared}. The uniform draw is below: accepted, and all above it.`
    : `Back at ${name}: ${compared}. The uniform draw is not below: not kept.`;
}

function drawWords(token, kind, step, greedy) {
  const cut = step.emitted.length <= step.path.length ? " The text ended before it." : "";
  if (kind === "plain") return greedy ? `The target’s likeliest token is ${token}.${cut}` : `The target draws ${token} from its own distribution.${cut}`;
  if (kind === "bonus") return `The draft is accepted to its end, so the target’s next distribution gives one token more: ${token}.${cut}`;
  const distribution = step.procedure === "walk" ? "It is the target’s own token" : "It is drawn from what the target’s distribution has left";
  return `The correction is ${token}. ${distribution}.${cut}`;
}

const capital = (words) => words[0].toUpperCase() + words.slice(1);

/**
 * What the rule of 2022 and 2023 would have done with the same guesses, distributions and uniforms: from the first guess on, keep it
 * while the uniform draw is below p / q; at the first refusal draw from the residual. It judges chains; of a tree, the branch
 * of eldest children. Guesses that were not drawn have q = 1.
 *
 * @param {object} step
 * @param {(node: number, depth: number) => number} [uniformOf] gives uniform draws where the file has none
 * @returns {{judged: {node: number, token: number, p: number, q: number, chance: number, uniform: number,
 *   accepted: boolean}[], accepted: number, kind: "correction"|"bonus", residual: [number, number][]|null,
 *   branch: boolean}} residual: of the refused guess, its likeliest tokens
 */
export function classic(step, uniformOf) {
  const children = childrenOf(step);
  const judged = [];
  let refused = null;
  for (let node = children[0][0], depth = 1; node !== undefined && refused === null; node = children[node + 1][0], depth++) {
    const { p, q: drawn, uniform: given } = step.nodes[node];
    const q = drawn ?? 1;
    const chance = q > 0 ? Math.min(p / q, 1) : 0;
    const uniform = given ?? uniformOf?.(node, depth) ?? null;
    // A chance of 0 or 1 needs no uniform draw
    const accepted = chance > 0 && (chance >= 1 || (uniform !== null && uniform < chance));
    judged.push({ node, token: step.tokens[node], p, q, chance, uniform, accepted });
    if (!accepted) refused = node;
  }
  return {
    judged,
    accepted: judged.length - (refused === null ? 0 : 1),
    kind: refused === null ? "bonus" : "correction",
    residual: refused === null ? null : residualOf(step, refused),
    branch: !isChain(step),
  };
}

/** The residual of the classic rule at a node: as recorded, or for a point mass p without the guess. */
function residualOf(step, node) {
  if (step.nodes[node].residual) return step.nodes[node].residual;
  const distribution = step.distributions[step.parents[node] + 1].p;
  const left = 1 - (entryOf(distribution, step.tokens[node]) ?? 0);
  if (left <= 0) return distribution;
  return distribution.filter(([token]) => token !== step.tokens[node]).map(([token, p]) => [token, p / left]);
}
