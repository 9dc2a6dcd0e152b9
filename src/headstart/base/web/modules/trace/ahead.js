// Drafting ahead: how often a draft was ready when it was asked for, and what target and drafter did at the same time.

import { counted, seconds } from "hs/base/format";

/** Whether any draft of a request was made by a drafter that drafts ahead, in a trace that says when. */
export const draftsAhead = (request) => request.steps.some((step) => step.ahead && typeof step.at === "number");

/** Seconds that the engine waited for a step's draft. */
export const waitedOf = ({ asked, answered }) => answered - asked;

/**
 * What drafting ahead gave; the counts are those of `AheadStats`. Null where nothing was drafted ahead.
 * @param {object[]} steps those that judged something
 * @returns {{drafts: number, hits: number, misses: number, waits: number, secondsOnHits: number, secondsOnMisses: number,
 *   hitRate: number, byDepth: {depth: number, rounds: number, hits: number}[]}|null}
 */
export function aheadOf(steps) {
  const all = steps.map((step) => step.ahead).filter(Boolean);
  if (all.length === 0) return null;
  const known = all.filter((each) => each.branches > 0);
  const [hits, misses] = [known.filter((each) => each.hit), known.filter((each) => !each.hit)];
  const waited = (list) => list.reduce((total, each) => total + waitedOf(each), 0);
  const byDepth = [];
  for (const { node, depth, hit } of known) {
    if (node === null) continue;
    while (byDepth.length <= depth) byDepth.push({ depth: byDepth.length, rounds: 0, hits: 0 });
    byDepth[depth].rounds += 1;
    byDepth[depth].hits += hit ? 1 : 0;
  }
  return {
    drafts: all.length,
    hits: hits.length,
    misses: misses.length,
    waits: known.filter((each) => each.end !== null && each.end > each.asked).length,
    secondsOnHits: waited(hits),
    secondsOnMisses: waited(misses),
    hitRate: known.length ? hits.length / known.length : NaN,
    byDepth,
  };
}

/**
 * What was done when: of each step, in seconds from the beginning of the recording.
 *
 * target: its parts in order; "wait" is the time until the draft was there. drafter: "ahead" while it drafted for what
 * the round *before* might come to, "now" while the engine waited for this step's draft. ready: whether that was ready;
 * null where nothing was foreseen.
 * @returns {{index: number, i: number, from: number, to: number, ready: boolean|null, target: Stretch[], drafter: Stretch[]}[]}
 * @typedef {{kind: string, from: number, to: number}} Stretch
 */
export function lanesOf(request) {
  const found = request.steps.map((step, index) => {
    const { plan, draft, verify, sample, commit } = step.seconds;
    const ahead = step.ahead ?? null;
    const target = inOrder(step.at, [["plan", plan], ["wait", draft], ["verify", verify], ["sample", sample], ["commit", commit]]);
    const drafter = [];
    if (ahead && ahead.begin !== null) drafter.push({ kind: "ahead", from: step.at + ahead.begin, to: step.at + ahead.end });
    if (ahead) drafter.push({ kind: "now", from: step.at + ahead.asked, to: step.at + ahead.answered });
    const to = step.at + plan + draft + verify + sample + commit;
    return { index, i: step.i, from: step.at, to, ready: ahead?.branches > 0 ? ahead.hit : null, target, drafter };
  });
  // The drafter goes on before the engine has noticed that a draft is there
  found.forEach(({ drafter }, index) => {
    const now = drafter.find(({ kind }) => kind === "now");
    const next = found[index + 1]?.drafter.find(({ kind }) => kind === "ahead");
    if (now && next) now.to = Math.max(now.from, Math.min(now.to, next.from));
  });
  return found;
}

function inOrder(at, parts) {
  let from = at;
  return parts.map(([kind, length]) => {
    const stretch = { kind, from, to: from + length };
    from = stretch.to;
    return stretch;
  });
}

/** How a step's draft came about, in words; "" where nothing was drafted ahead. */
export function preparedInWords({ ahead }) {
  if (!ahead) return "";
  const waited = seconds(waitedOf(ahead));
  if (!(ahead.branches > 0)) return `No round was foreseen before this draft; the engine waited ${waited} for it.`;
  const outcomes = `${counted(ahead.branches, "outcome")} foreseen in ${counted(ahead.forwards, "forward")}`;
  const came = cameOf(ahead);
  return ahead.hit
    ? `Its draft was ready: ${came}, which was one of ${outcomes}. The engine waited ${waited}.`
    : `Its draft was not ready: ${came}, which was none of ${outcomes}. It was made then, and the engine waited ${waited}.`;
}

function cameOf({ node, depth, rank }) {
  if (node === null) return "the round before went on in a way that no draft had";
  const token = rank === null ? "a token that the drafter did not rank" : rank === 0 ? "the drafter’s likeliest token" : `place ${rank + 1} of the drafter’s likeliest tokens`;
  return `the round before ended after ${counted(depth, "accepted guess", "accepted guesses")} with ${token}`;
}
