// What a traced request would have taken with other draft lengths. Twin of headstart.learn.what_if.recorded.
//
// With shorter chains nothing need be run again. At temperature 0 the text stays the same whatever is drafted, and what
// a draft model guesses at a place depends on the text before it alone: the same guesses, cut shorter, are accepted and
// refused as they were. One thing no trace knows: whether a draft that was accepted whole would have been right about
// one token more. Where that matters, the counts are known between two bounds. Everything else is an estimate.

import { conditionalOf, depthOf, isChain, judged, totalSeconds } from "hs/trace/rounds";

/** Kinds of drafters whose guess at a place is a function of the text before it. */
const BY_TEXT_ALONE = ["draft", "early-exit"];
const MAX_TOKENS = 256; // of Sampling, where a request says nothing else

/** @typedef {{source: string, nodes: number, accepted: number, tokens: number}} Stretch */
/** @typedef {{forwards: number, drafted: number, accepted: number}} Counts */

const emitting = (request) => judged(request).filter((step) => step.emitted.length);
const allChains = (request) => request.steps.every(isChain);

/** The deepest draft of a request. */
export const deepest = (request) => Math.max(0, ...judged(request).map(depthOf));

/**
 * A request with at most k drafted tokens (levels, of trees) in a step.
 *
 * @returns {{k: number, label: "exact"|"between"|"estimate", why: string, tokens: number, fewest: Counts, most: Counts,
 *   seconds: number|null, tokensPerForward: [number, number], recorded: boolean}} tokensPerForward: with the most
 *   forwards, and with the fewest. recorded: no draft was longer than k, so these are the counts of the run itself.
 */
export function whatIf(trace, request, k) {
  const steps = emitting(request);
  const tokens = steps.reduce((total, step) => total + step.emitted.length, 0);
  const longest = deepest(request);
  const answer = (label, why, fewest, most, seconds) => ({
    k, label, why, tokens, fewest, most, seconds,
    tokensPerForward: [tokens / most.forwards, tokens / fewest.forwards],
    recorded: k === longest,
  });
  if (steps.length === 0) {
    const nothing = { forwards: 0, drafted: 0, accepted: 0 };
    return { ...answer("exact", "no token was emitted", nothing, nothing, null), tokensPerForward: [0, 0] };
  }
  const why = onlyAnEstimate(trace, request, k);
  if (k > longest || (why && !allChains(request))) {
    const about = byAcceptance(request, k);
    return answer("estimate", why, about, about, secondsOf(request, about));
  }
  const rounds = steps.map((step) => ({ source: step.source, nodes: step.tokens.length, accepted: step.path.length, tokens: step.emitted.length }));
  const room = roomOf(trace, request);
  const most = counted(recut(rounds, k, { joined: false }), room);
  const fewest = counted(recut(rounds, k, { joined: true }), room);
  const middle = between(fewest, most);
  const seconds = secondsOf(request, middle);
  if (why) return answer("estimate", why, middle, middle, seconds);
  if (Object.keys(most).every((name) => most[name] === fewest[name])) {
    return answer("exact", "at temperature 0 the text and the guesses are the same; only their cut differs", most, most, seconds);
  }
  return answer("between", "no trace knows whether a draft that was accepted whole would have been right about one token more", fewest, most, seconds);
}

/** Why the counts cannot be replayed; "" where they can. */
function onlyAnEstimate(trace, request, k) {
  const sources = new Set(judged(request).filter((step) => step.tokens.length).map((step) => step.source));
  const kinds = new Map((trace.header?.drafters ?? []).map(({ name, kind }) => [name, kind]));
  if (sources.size === 0) return k === 0 ? "" : "nothing was drafted";
  if (k === 0) return request.greedy ? "" : "sampled: without drafts the text would be another, of the same distribution";
  if (!request.greedy) return "sampled: with other drafts the text would be another, of the same distribution";
  if (!allChains(request)) return "trees: a smaller one is not a part of a larger one";
  if (k > deepest(request)) return "longer drafts than were made";
  if (sources.size > 1 || kinds.size > 1) return "several drafters: which of them would have drafted is not known";
  if ([...sources].some((source) => !BY_TEXT_ALONE.includes(kinds.get(source)))) return "this drafter, begun at another place, may guess otherwise";
  return "";
}

/** Tokens that could still be emitted when the recording began. */
function roomOf(trace, request) {
  const limit = (request.sampling.max_tokens ?? MAX_TOKENS) - request.before.length;
  const context = trace.header?.engine?.max_length ?? Infinity;
  return Math.min(limit, context - request.promptTokens.length - request.before.length);
}

/** No draft is longer than what may still be emitted, less the token that comes in any case. */
function counted(rounds, room) {
  const found = { forwards: rounds.length, drafted: 0, accepted: 0 };
  let emitted = 0;
  for (const one of rounds) {
    found.drafted += Math.max(0, Math.min(one.nodes, room - emitted - 1));
    found.accepted += Math.min(one.accepted, one.tokens);
    emitted += one.tokens;
  }
  return found;
}

const between = (a, b) => ({ forwards: (a.forwards + b.forwards) / 2, drafted: (a.drafted + b.drafted) / 2, accepted: (a.accepted + b.accepted) / 2 });

/** From the conditional acceptance by depth; the last one known stands for all that are deeper. */
function byAcceptance(request, k) {
  const steps = emitting(request);
  const acceptance = conditionalOf(judged(request).filter((step) => step.tokens.length).map((step) => [depthOf(step), step.path.length]));
  if (acceptance.length === 0) return { forwards: steps.length, drafted: 0, accepted: 0 };
  const plain = judged(request).filter((step) => step.tokens.length === 0).length;
  const inDrafts = steps.reduce((total, step) => total + step.emitted.length, 0) - plain;
  let [expected, reached] = [1, 1];
  for (let place = 0; place < k; place++) {
    reached *= acceptance[Math.min(place, acceptance.length - 1)].share;
    expected += reached;
  }
  const rounds = inDrafts / expected;
  return { forwards: rounds + plain, drafted: rounds * k, accepted: inDrafts - rounds };
}

/** About so long, from the mean times of the recorded parts; null where nothing was drafted, or in a batch. */
function secondsOf(request, counts) {
  const steps = emitting(request);
  const nodes = steps.reduce((total, step) => total + step.tokens.length, 0);
  if (!nodes || steps.some((step) => step.batch > 1)) return null;
  const drafting = steps.reduce((total, step) => total + step.seconds.draft, 0);
  const others = steps.reduce((total, step) => total + totalSeconds(step.seconds), 0) - drafting;
  return (counts.forwards * others) / steps.length + (counts.drafted * drafting) / nodes;
}

/**
 * The rounds of chains as they would be with at most k tokens a draft. joined: a draft that was accepted whole would
 * have gone on to be right, so that its stretch and the next one's are one; otherwise wrong after its last token.
 * @param {Stretch[]} rounds @returns {Stretch[]}
 */
export function recut(rounds, k, { joined }) {
  return (joined ? join(rounds, k) : rounds).flatMap((stretch) => cut(stretch, k));
}

function join(rounds, k) {
  const found = [];
  let open = false;
  for (const one of rounds) {
    const last = found.at(-1);
    if (open && one.nodes && one.source === last.source) {
      found[found.length - 1] = {
        source: last.source,
        nodes: Math.max(last.nodes, one.nodes),
        accepted: last.accepted + 1 + one.accepted,
        tokens: last.tokens + one.tokens,
      };
    } else found.push(one);
    open = one.nodes > k && one.accepted === one.nodes;
  }
  return found;
}

function cut(stretch, k) {
  const draft = Math.min(k, stretch.nodes);
  const pieces = [];
  let { tokens, accepted } = stretch;
  while (tokens > 0) {
    const taken = Math.min(draft, accepted);
    const emitted = Math.min(tokens, taken + 1);
    pieces.push({ source: draft ? stretch.source : "", nodes: draft, accepted: taken, tokens: emitted });
    tokens -= emitted;
    accepted = Math.max(0, accepted - emitted);
  }
  return pieces;
}
