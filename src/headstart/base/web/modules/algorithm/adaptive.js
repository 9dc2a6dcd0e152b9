// Draft lengths that follow the text: the simple rule in circulation, and a text whose acceptance changes.

import { RandomState } from "hs/algorithm/randomstate";
import { roundCost } from "hs/algorithm/speed";

/** @typedef {{drafted: number, accepted: number}[]} History rounds, oldest first */

/** Always k guesses. */
export function fixedK(k) {
  return () => k;
}

/**
 * Over 80% of the last 5 rounds' guesses kept: one more. Under 50%: one fewer. Within 2 to 10. Twin of
 * headstart.learn.simulate.SimpleK.
 */
export function simpleK({ start = 5, least = 2, most = 10, rounds = 5, up = 0.8, down = 0.5 } = {}) {
  return (/** @type {History} */ history) => {
    if (history.length < rounds) return start;
    const last = history.slice(-rounds);
    const drafted = last.reduce((sum, each) => sum + each.drafted, 0);
    const accepted = last.reduce((sum, each) => sum + each.accepted, 0);
    const step = Number(accepted > up * drafted) - Number(accepted < down * drafted);
    return Math.min(Math.max(history.at(-1).drafted + step, least), most);
  };
}

/** alpha by position of a text that changes between easy and hard parts, staying in its part with a chance. */
export function changingAlpha({ easy = 0.95, hard = 0.3, stay = 0.98, seed = 0, length = 200 } = {}) {
  const rng = new RandomState(seed);
  let isEasy = true;
  return Array.from({ length }, () => {
    if (rng.random() >= stay) isEasy = !isEasy;
    return isEasy ? easy : hard;
  });
}

/**
 * Writes a text of `tokens` tokens in rounds. Whether a guess at a position would be kept is settled beforehand, by the
 * seed, so that different ways to choose K meet the same luck.
 *
 * @param {{alphas: number[], tokens?: number, choose: (history: History) => number, seed?: number}} setup the last of
 *   the alphas holds for every later position
 */
export function decode({ alphas, tokens = alphas.length, choose, seed = 0 }) {
  const rng = new RandomState(seed);
  const most = 64;
  const luck = Array.from({ length: tokens + most }, () => rng.random());
  const kept = luck.map((u, at) => u < alphas[Math.min(at, alphas.length - 1)]);
  const rounds = [];
  for (let at = 0; at < tokens; at += rounds.at(-1).accepted + 1) {
    const drafted = choose(rounds);
    let accepted = 0;
    while (accepted < drafted && kept[at + accepted]) accepted += 1;
    rounds.push({ at, drafted, accepted });
  }
  const total = (key) => rounds.reduce((sum, each) => sum + each[key], 0);
  return { rounds, tokens, targetCalls: rounds.length, drafted: total("drafted"), accepted: total("accepted") };
}

/** What a run cost, in plain steps; without speculation it would have cost one for each token. */
export function cost(run, c, v = null) {
  return run.rounds.reduce((sum, { drafted }) => sum + roundCost(drafted, c, v), 0);
}
