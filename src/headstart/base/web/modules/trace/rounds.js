// What the steps of a request say: where every token came from, what each round gave, and what it all adds up to.

import { aheadOf } from "hs/trace/ahead";

/** Whether a step judged something; the others only read a part of the prompt. */
export const isJudged = (step) => step.procedure !== "read";

/** The steps of a request that judged something. */
export const judged = (request) => request.steps.filter(isJudged);

/** [node + 1]: the nodes below a node, in drafting order; [0]: those below x0. */
export function childrenOf(step) {
  const below = Array.from({ length: step.tokens.length + 1 }, () => []);
  step.parents.forEach((parent, node) => below[parent + 1].push(node));
  return below;
}

/** [node]: 1 for a child of x0, 2 for its children, and so on. */
export function depthsOf(step) {
  const depths = [];
  for (const parent of step.parents) depths.push(parent < 0 ? 1 : depths[parent] + 1);
  return depths;
}

/** The deepest level of a step's draft; 0 without one. */
export const depthOf = (step) => Math.max(0, ...depthsOf(step));

/** Whether each guess follows the one before it. */
export const isChain = (step) => step.parents.every((parent, node) => parent === node - 1);

/** How many of the emitted tokens were guessed; a stop may have cut the accepted path short. */
export const acceptedOf = (step) => Math.min(step.path.length, step.emitted.length);

/** The tokens from x0's child down to a node. */
export function pathTo(step, node) {
  const path = [];
  for (let at = node; at >= 0; at = step.parents[at]) path.unshift(at);
  return path;
}

/** What a step's tokens came to: "plain" without a draft, else how it ended. */
export const kindOf = (step) => step.end?.kind ?? "read";

/**
 * Every emitted token of a request in order, with where it came from. step: index into request.steps. at: place within
 * the step. node: of the draft; null for the token after the path. p, q, uniform draw and so on: as in the file, null where
 * there are none.
 */
export function tokensOf(request) {
  return request.steps.flatMap((step, index) => tokensOfStep(request, step, index));
}

/** The same for one step. */
export function tokensOfStep(request, step, index) {
  return step.emitted.map((token, at) => {
    const node = at < step.path.length ? step.path[at] : null;
    const line = node === null ? null : step.nodes[node];
    const known = (name) => line?.[name] ?? null;
    const distribution = step.distributions[(at === 0 ? -1 : step.path[at - 1]) + 1];
    return {
      token,
      text: request.text(token),
      origin: node === null ? kindOf(step) : "accepted",
      step: index,
      at,
      node,
      position: step.position + at,
      p: known("p") ?? entryOf(distribution?.p, token),
      q: known("q"),
      model: known("model") ?? entryOf(distribution?.model, token),
      uniform: known("uniform"),
      weight: known("weight"),
      drawn: known("drawn"),
    };
  });
}

/** The probability that a list of [token, probability] gives a token; null where the token is not among them. */
export const entryOf = (entries, token) => entries?.find(([each]) => each === token)?.[1] ?? null;

/** What a strip of rounds shows. step: index into request.steps. */
export function roundsOf(request) {
  return request.steps
    .map((step, index) => ({
      step: index,
      i: step.i,
      seconds: step.seconds,
      total: totalSeconds(step.seconds),
      emitted: step.emitted.length,
      drafted: step.tokens.length,
      depth: depthOf(step),
      accepted: acceptedOf(step),
      kind: isJudged(step) ? kindOf(step) : "read",
      source: step.source,
      batch: step.batch,
    }));
}

export const totalSeconds = ({ plan, draft, verify, sample, commit }) => plan + draft + verify + sample + commit;

/** Conditional acceptance by depth, of [depth of the draft, accepted] pairs: a depth was tested if the draft reached it
 * and everything before it was accepted. */
export function conditionalOf(rounds) {
  const counts = [];
  for (const [depth, accepted] of rounds) {
    for (let place = 0; place < Math.min(accepted + 1, depth); place++) {
      counts[place] ??= { depth: place + 1, tested: 0, accepted: 0 };
      counts[place].tested += 1;
      counts[place].accepted += place < accepted ? 1 : 0;
    }
  }
  return counts.map((each) => ({ ...each, share: each.accepted / each.tested }));
}

/** What one request, or several, add up to; the counts are those of `Stats`. */
export function summary(requests) {
  const list = [requests].flat();
  const steps = list.flatMap((request) => judged(request).filter((step) => step.emitted.length));
  const count = (pick) => steps.reduce((total, step) => total + pick(step), 0);
  const tokens = count((step) => step.emitted.length);
  const drafted = count((step) => step.tokens.length);
  const accepted = count(acceptedOf);
  const conditional = conditionalOf(steps.map((step) => [depthOf(step), step.path.length]));
  const [tests, kept] = ["tested", "accepted"].map((name) => conditional.reduce((sum, each) => sum + each[name], 0));
  return {
    tokens,
    forwards: steps.length,
    tokensPerForward: steps.length ? tokens / steps.length : 0,
    drafted,
    accepted,
    acceptedOfDrafted: drafted ? accepted / drafted : NaN,
    conditional,
    judged: tests,
    kept,
    alpha: tests ? kept / tests : NaN,
    sources: bySource(steps),
    plainRounds: steps.filter((step) => step.tokens.length === 0).length,
    seconds: secondsOf(list.flatMap((request) => request.steps)),
    ahead: aheadOf(steps),
    lost: list.flatMap(lostOf).sort((a, b) => b.lost - a.lost || a.step - b.step),
  };
}

function bySource(steps) {
  const names = [...new Set(steps.map((step) => step.source))];
  return names.map((source) => {
    const mine = steps.filter((step) => step.source === source);
    const count = (pick) => mine.reduce((total, step) => total + pick(step), 0);
    const tokens = count((step) => step.emitted.length);
    return {
      source,
      rounds: mine.length,
      drafted: count((step) => step.tokens.length),
      accepted: count(acceptedOf),
      refused: count((step) => (step.path.length < depthOf(step) ? 1 : 0)),
      tokens,
      tokensPerForward: tokens / mine.length,
      conditional: conditionalOf(mine.map((step) => [depthOf(step), step.path.length])),
    };
  });
}

function secondsOf(steps) {
  const parts = { plan: 0, draft: 0, verify: 0, sample: 0, commit: 0 };
  for (const step of steps) for (const part of Object.keys(parts)) parts[part] += step.seconds[part];
  return { ...parts, total: totalSeconds(parts) };
}

/** The rounds whose draft was not accepted to its deepest level. lost: levels from the refused guess on; node and token:
 * that guess, of several siblings the first (null where the path ended at a leaf and another branch went deeper);
 * wanted: the token that came instead. */
export function lostOf(request) {
  return request.steps.flatMap((step, index) => {
    if (!isJudged(step) || step.path.length >= depthOf(step)) return [];
    const node = childrenOf(step)[(step.path.at(-1) ?? -1) + 1][0] ?? null;
    return {
      step: index,
      i: step.i,
      lost: depthOf(step) - step.path.length,
      depth: step.path.length + 1,
      node,
      token: node === null ? null : step.tokens[node],
      wanted: step.end.token,
      source: step.source,
    };
  });
}

/** The draft of a step as a tree that can be drawn. */
export function treeNodes(request, step) {
  return step.tokens.map((token, node) => {
    const { p, q, state } = step.nodes[node];
    return { text: request.text(token), parent: step.parents[node], state, p, q };
  });
}

/** The token before a step's first, x0: what the draft hangs from. */
export function rootToken(request, index) {
  for (let at = index - 1; at >= 0; at--) if (request.steps[at].emitted.length) return request.steps[at].emitted.at(-1);
  return request.before.at(-1) ?? request.promptTokens.at(-1);
}
