// The running example: ten words, a target and a draft whose distributions depend on the last three tokens. It is the toy of a
// published tutorial, and replays that tutorial's rounds and runs draw by draw.

import { overlap, residual, softmax } from "hs/algorithm/distributions";
import { RandomState, pick } from "hs/algorithm/randomstate";
import { DRAFT, TARGET } from "hs/algorithm/toy-table";

export const WORDS = ["the", "cat", "sat", "on", "mat", "dog", "ran", "big", "a", "red"];

/** The seed of everything that was published about the toy. */
export const SEED = 42;

/** What the tutorial printed for its runs of 50 tokens; `acceptance` counts corrections and bonuses as accepted. */
export const PRINTED = Object.freeze({
  3: { targetCalls: 24, draftCalls: 72, acceptance: 0.708, speedup: 2.08 },
  5: { targetCalls: 23, draftCalls: 115, acceptance: 0.47, speedup: 2.17 },
  7: { targetCalls: 17, draftCalls: 119, acceptance: 0.462, speedup: 2.94 },
});

/** Levels of agreement and the acceptance that the tutorial printed for them. */
export const DIAL = [[0, 0.529], [0.2, 0.629], [0.4, 0.718], [0.6, 0.818], [0.8, 0.917], [0.9, 0.964], [0.95, 0.984], [1, 1]];

const place = (context) => context.slice(-3).reduce((a, b) => a + b, 0);

/** p, the target's distribution after a context of token ids. */
export function target(context) {
  return TARGET[place(context)];
}

/** q, the draft's distribution after a context. */
export function drafter(context) {
  return DRAFT[place(context)];
}

/** The words of token ids, with spaces between. */
export function words(tokens) {
  return tokens.map((token) => WORDS[token]).join(" ");
}

/** The token ids of words. */
export function tokensOf(text) {
  return text.split(" ").map((word) => WORDS.indexOf(word));
}

/** Judges one guess with the next random numbers. */
function judge(token, p, q, rng) {
  const chance = Math.min(1, p[token] / q[token]);
  const u = rng.random();
  return { token, p, q, chance, u, accepted: u < chance };
}

function drawn(kind, distribution, rng) {
  const u = rng.random();
  return { kind, distribution, u, token: pick(distribution, u) };
}

/**
 * One round of the classic rule: gamma guesses, then their judging from left to right.
 *
 * @param {number[]} context @param {number} gamma @param {{random: () => number}} rng
 * @returns {{context: number[], drafted: {context: number[], q: number[], u: number, token: number}[],
 *   judged: {token: number, p: number[], q: number[], chance: number, u: number, accepted: boolean}[],
 *   end: {kind: "correction"|"bonus", distribution: number[], u: number, token: number}, emitted: number[], accepted: number}}
 */
export function round(context, gamma, rng) {
  const drafted = [];
  for (let i = 0; i < gamma; i++) {
    const before = [...context, ...drafted.map(({ token }) => token)];
    drafted.push({ context: before, q: drafter(before), ...without(drawn("guess", drafter(before), rng)) });
  }
  const judged = [];
  let end = null;
  for (const { token, context: before, q } of drafted) {
    const found = judge(token, target(before), q, rng);
    judged.push(found);
    if (!found.accepted) {
      end = drawn("correction", residual(found.p, q), rng);
      break;
    }
  }
  const kept = judged.filter(({ accepted }) => accepted).map(({ token }) => token);
  end ??= drawn("bonus", target([...context, ...kept]), rng);
  return { context, drafted, judged, end, emitted: [...kept, end.token], accepted: kept.length };
}

const without = ({ u, token }) => ({ u, token });

/** Rounds until there are `tokens` tokens; the text is cut there, the counts are not. */
export function run(context, tokens, gamma, rng) {
  const rounds = [];
  const text = [...context];
  while (text.length - context.length < tokens) {
    rounds.push(round([...text], gamma, rng));
    text.push(...rounds.at(-1).emitted);
  }
  return { rounds, tokens: text.slice(context.length, context.length + tokens), ...counts(rounds, tokens) };
}

/** Three acceptances of one run, which are often mixed up. */
function counts(rounds, tokens) {
  const total = (of) => rounds.reduce((sum, each) => sum + of(each), 0);
  const drafted = total((each) => each.drafted.length);
  const judged = total((each) => each.judged.length);
  const accepted = total((each) => each.accepted);
  const emitted = total((each) => each.emitted.length);
  return {
    targetCalls: rounds.length,
    draftCalls: drafted,
    judged,
    accepted,
    emitted,
    /** As printed: corrections and bonuses counted as accepted. */
    printed: emitted / drafted,
    /** Of the guesses made, those kept. */
    acceptedOfDrafted: accepted / drafted,
    /** Of the guesses that were looked at, those kept: an estimate of alpha. */
    conditional: accepted / judged,
    callsSaved: tokens / rounds.length,
  };
}

/** Plain sampling, one target call a token. */
export function sampled(context, tokens, rng) {
  return continued(context, tokens, (distribution) => rng.choice(distribution));
}

/** The likeliest token each time. */
export function greedy(context, tokens) {
  return continued(context, tokens, (distribution) => distribution.indexOf(Math.max(...distribution)));
}

function continued(context, tokens, choose) {
  const text = [...context];
  for (let i = 0; i < tokens; i++) text.push(choose(target(text)));
  return text.slice(context.length);
}

/** The published single guess after "the cat": sat, refused, cat in its place. */
export function singleToken() {
  const rng = new RandomState(SEED);
  const context = tokensOf("the cat");
  const guess = drawn("guess", drafter(context), rng);
  const found = judge(guess.token, target(context), drafter(context), rng);
  const end = found.accepted ? null : drawn("correction", residual(found.p, found.q), rng);
  return { context, guess, judged: found, end };
}

/** The published round after "the": cat a red big on; red is refused, and cat comes out in its place. */
export function recordedRound() {
  return round(tokensOf("the"), 5, new RandomState(SEED));
}

/** The published runs: 50 tokens after "the cat sat" with gamma 3, 5 or 7, each from the same seed. */
export function recordedRun(gamma, tokens = 50) {
  return run(tokensOf("the cat sat"), tokens, gamma, new RandomState(SEED));
}

/**
 * The published dial: 1,000 pairs of distributions whose logits agree to a degree, one guess each.
 *
 * @returns {{rate: number, overlap: number}} the share of guesses kept, and the mean of the exact chance
 */
export function dialAcceptance(level, trials = 1000) {
  let kept = 0;
  let exact = 0;
  for (let trial = 0; trial < trials; trial++) {
    const rng = new RandomState(trial);
    const { p, q } = dialPair(level, trial, rng);
    const token = rng.choice(q);
    if (rng.random() < Math.min(1, p[token] / q[token])) kept += 1;
    exact += overlap(p, q);
  }
  return { rate: kept / trials, overlap: exact / trials };
}

/** One pair of the dial: the target's distribution, and the distribution of a draft that agrees with it to the degree `level`. */
export function dialPair(level, trial, rng = new RandomState(trial)) {
  const logits = rng.randn(WORDS.length);
  logits[trial % WORDS.length] += 2;
  const noise = rng.randn(WORDS.length).map((x) => x * 0.5);
  return { p: softmax(logits), q: softmax(logits.map((x, i) => level * x + (1 - level) * noise[i])) };
}
