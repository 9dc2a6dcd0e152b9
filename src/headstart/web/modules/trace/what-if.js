// What a run would have been with drafts of at most K levels, without running it again. Twin of headstart.trace.what_if.
//
// Greedy and point-mass chains give the same text for every K, so their rounds can be cut anew: where k tokens are
// drafted instead of more, an accepted stretch of m tokens and the one after it come in ceil((m + 1) / (k + 1)) rounds.
// What is not known is whether a draft that was accepted whole would have gone on to be right; both answers are counted.
// Anything else is an estimate from the conditional acceptance by depth.

import { acceptedOf, conditionalOf, depthOf, isChain, judged } from "hs/trace/rounds";

/** @typedef {{source: string, depth: number, accepted: number, tokens: number}} Round */

/** The rounds of a request that emitted something. @returns {Round[]} */
export const cuttable = (request) =>
  judged(request)
    .filter((step) => step.emitted.length)
    .map((step) => ({
      source: step.source,
      depth: depthOf(step),
      accepted: acceptedOf(step),
      tokens: step.emitted.length,
    }));

/** The deepest draft of a request. */
export const deepest = (request) => Math.max(0, ...cuttable(request).map((each) => each.depth));

/**
 * @returns {{k: number, deepest: number, tokens: number, forwards: number, least: number, most: number,
 *   tokensPerForward: number, exact: boolean, how: "as recorded"|"plain"|"recut"|"by depth"}}
 */
export function whatIf(request, k) {
  const rounds = cuttable(request);
  const most = Math.max(0, ...rounds.map((each) => each.depth));
  const tokens = rounds.reduce((total, each) => total + each.tokens, 0);
  const answer = (how, least, greatest, forwards, exact) => ({
    k, deepest: most, tokens, forwards, least, most: greatest, exact, how,
    tokensPerForward: forwards ? tokens / forwards : 0,
  });
  if (k >= most) return answer("as recorded", rounds.length, rounds.length, rounds.length, true);
  if (k <= 0) return answer("plain", tokens, tokens, tokens, true);
  const drafted = judged(request).filter((step) => step.tokens.length);
  if (drafted.every((step) => step.procedure === "walk" && isChain(step))) {
    const least = recut(rounds, k, { joined: true }).length;
    const greatest = recut(rounds, k, { joined: false }).length;
    const weight = wholeGoesOn(rounds);
    return answer("recut", least, greatest, (1 - weight) * greatest + weight * least, least === greatest);
  }
  const forwards = tokens / tokensByDepth(rounds, k);
  return answer("by depth", forwards, forwards, forwards, false);
}

/**
 * Rounds of chains as they would be with at most k tokens a draft. joined: a draft that was accepted whole would have
 * gone on to be right, so that its stretch and the next one's are one; otherwise wrong after its last token.
 * @param {Round[]} rounds @returns {Round[]}
 */
export function recut(rounds, k, { joined }) {
  return (joined ? join(rounds, k) : rounds).flatMap((stretch) => cut(stretch, k));
}

/** How often a draft that was accepted whole would have been right about one more token, from the acceptance over the
 * second half of the places. */
export function wholeGoesOn(rounds) {
  const drafted = rounds.filter((each) => each.depth);
  const most = Math.max(0, ...drafted.map((each) => each.depth));
  let [tested, kept] = [0, 0];
  for (const { depth, accepted } of drafted) {
    for (let place = Math.floor(most / 2); place < Math.min(accepted + 1, depth); place++) {
      tested += 1;
      kept += place < accepted ? 1 : 0;
    }
  }
  return tested ? kept / tested : 0;
}

/** Tokens per forward with drafts of at most k levels, from the conditional acceptance by depth. */
function tokensByDepth(rounds, k) {
  const drafted = rounds.filter((each) => each.depth);
  const acceptance = conditionalOf(drafted.map((each) => [each.depth, each.accepted]));
  let [expected, reached] = [1, 1];
  for (let place = 0; place < Math.min(k, acceptance.length); place++) {
    reached *= acceptance[place].share;
    expected += reached;
  }
  const share = drafted.length / rounds.length;
  return 1 - share + share * expected;
}

function join(rounds, k) {
  const found = [];
  let open = false;
  for (const each of rounds) {
    const last = found.at(-1);
    if (open && each.depth && each.source === last.source) {
      found[found.length - 1] = {
        source: last.source,
        depth: Math.max(last.depth, each.depth),
        accepted: last.accepted + 1 + each.accepted,
        tokens: last.tokens + each.tokens,
      };
    } else found.push(each);
    open = each.depth > k && each.accepted === each.depth;
  }
  return found;
}

function cut(stretch, k) {
  const draft = Math.min(k, stretch.depth);
  const pieces = [];
  let { tokens, accepted } = stretch;
  while (tokens > 0) {
    const taken = Math.min(draft, accepted);
    const emitted = Math.min(tokens, taken + 1);
    pieces.push({ source: draft ? stretch.source : "", depth: draft, accepted: taken, tokens: emitted });
    tokens -= emitted;
    accepted = Math.max(0, accepted - emitted);
  }
  return pieces;
}
