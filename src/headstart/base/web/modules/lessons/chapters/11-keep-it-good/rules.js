// Text whose acceptance changes, and rules for K on it: the same luck for each.

import { changingAlpha, cost, decode, fixedK, simpleK } from "hs/algorithm/adaptive";
import { bestK } from "hs/algorithm/speed";

export const TOKENS = 200;
export const C = 0.1;
export const FIXED = [2, 3, 4, 5, 6, 8];
const TEXTS = 60;
const [EASY, HARD, STAY] = [0.95, 0.2, 0.98];

/** Acceptance by position of one text. */
export const text = (seed) => changingAlpha({ easy: EASY, hard: HARD, stay: STAY, seed, length: TOKENS });

/** One text written with a rule. */
export const run = (choose, seed) => decode({ alphas: text(seed), choose, seed: seed + 100 });

/** What a run cost in calls of the target, guesses at C each. */
export const time = (one) => cost(one, C);

/** Means over many texts: calls of the target, guesses, time. */
export function means(choose) {
  const runs = Array.from({ length: TEXTS }, (_, seed) => run(choose, seed));
  const mean = (of) => runs.reduce((sum, one) => sum + of(one), 0) / TEXTS;
  return { calls: mean((one) => one.targetCalls), drafted: mean((one) => one.drafted), time: mean(time) };
}

/** The rule of the practice exercise. */
export const PRACTICE = { up: 0.8, down: 0.5, rounds: 5, least: 2, most: 10 };

/** A rule that begins within its limits. */
export const ruleOf = (settings) => simpleK({ ...settings, start: Math.min(Math.max(5, settings.least), settings.most) });

let fixedMeans = null;
/** Each fixed length and the practice rule over many texts; worked out once. */
export function rivals() {
  fixedMeans ??= [
    ...FIXED.map((k) => ({ name: `K = ${k}`, fixed: true, ...means(fixedK(k)) })),
    { name: "the practice rule", fixed: false, ...means(ruleOf(PRACTICE)) },
  ];
  return fixedMeans;
}

/** The best K at each position, for one who knows the acceptance there. */
export const oracle = (seed) => text(seed).map((alpha) => bestK(alpha, C, null, 16).k);
