// Exact distributions by enumeration: every outcome of a random procedure, with its chance. With fractions the answer is a proof.
//
// A procedure is a function of an oracle. It asks it to accept with a chance or to draw a token, and the enumeration gives every answer in turn.
// A *judge* is a verifier: (draft, p, q, oracle) -> the tokens that the round emits, or null where it breaks down.

import { arithmeticOf, sum } from "hs/algorithm/arithmetic";
import { blockRule, chain, chainRule, traverse, walk } from "hs/algorithm/rules";

class Undecided extends Error {
  constructor(options) {
    super("the script has no answer");
    this.options = options;
  }
}

/** Answers from a script; past its end it stops the run and says which answers there are. */
class Oracle {
  #script;
  #next = 0;

  constructor(script) {
    this.#script = script;
    this.accept = (chance) => {
      const a = arithmeticOf(chance);
      return this.#ask([[true, chance], [false, a.minus(a.one, chance)]]);
    };
    this.draw = (distribution) => {
      const a = arithmeticOf(distribution);
      const total = sum(distribution);
      return this.#ask(distribution.map((weight, token) => [token, a.over(weight, total)]));
    };
  }

  #ask(options) {
    const possible = options.filter(([, chance]) => arithmeticOf(chance).less(arithmeticOf(chance).zero, chance));
    if (possible.length === 1) return possible[0][0];
    if (this.#next === this.#script.length) throw new Undecided(possible);
    return this.#script[this.#next++];
  }
}

/**
 * Every outcome of a procedure with its chance; outcomes that print alike are one.
 *
 * @param {(oracle: {accept: (chance: any) => boolean, draw: (distribution: Array) => number}) => any} procedure
 * @param {any} one a number or a fraction: what the chances are to be
 * @returns {{value: any, chance: any}[]} in order of first appearance
 */
export function outcomes(procedure, one) {
  const a = arithmeticOf(one);
  const found = new Map();
  const pending = [{ script: [], chance: a.one }];
  while (pending.length) {
    const { script, chance } = pending.pop();
    try {
      const value = procedure(new Oracle(script));
      const key = JSON.stringify(value);
      const before = found.get(key)?.chance ?? a.zero;
      found.set(key, { value, chance: a.plus(before, chance) });
    } catch (branch) {
      if (!(branch instanceof Undecided)) throw branch;
      const next = branch.options.map(([answer, weight]) => ({
        script: [...script, answer],
        chance: a.times(chance, weight),
      }));
      pending.push(...next.reverse());
    }
  }
  return [...found.values()];
}

const judged = (rule) => (draft, p, q, oracle) => rule(draft, p, q, oracle.accept, oracle.draw).emitted;

/** The right verifiers. */
export const JUDGES = Object.freeze({
  chain: judged(chainRule),
  block: judged(blockRule),
  traverse: judged(traverse),
  walk: (draft, p, q, oracle) => walk(draft, p, oracle.draw).emitted,
});

/** @typedef {{p: (context: number[]) => Array, q: (context: number[]) => Array, k: number, judge?: Function}} Setup */

/** One round on an oracle: k guesses drawn from q, then judged. @param {Setup} setup */
export function playRound({ p, q, k, judge = JUDGES.chain }, context, oracle) {
  const tokens = [];
  const distributions = [];
  const rows = [p(context)];
  for (let i = 0; i < k; i++) {
    const before = [...context, ...tokens];
    distributions.push(q(before));
    tokens.push(oracle.draw(distributions[i]));
    rows.push(p([...before, tokens[i]]));
  }
  const emitted = judge(chain(tokens), rows, distributions, oracle);
  return { drafted: tokens, emitted };
}

/** What one round emits: [{tokens, chance}], tokens null where the verifier broke down. @param {Setup} setup */
export function roundDistribution(setup, context = []) {
  const found = outcomes((oracle) => playRound(setup, context, oracle).emitted, setup.p(context)[0]);
  return found.map(({ value, chance }) => ({ tokens: value, chance }));
}

/** The exact mean of a number that a round gives, value({drafted, emitted}). @param {Setup} setup */
export function expectation(setup, value, context = []) {
  const one = setup.p(context)[0];
  const a = arithmeticOf(one);
  const found = outcomes((oracle) => playRound(setup, context, oracle), one);
  return sum(found.map((each) => a.times(each.chance, a.of(value(each.value)))));
}

/**
 * The distribution of the first `length` tokens of a text made of rounds. A round that emits nothing, or breaks down, is played
 * again, so the distribution is that of the texts there are.
 *
 * @param {Setup} setup @returns {{tokens: number[], chance: any}[]} in the order of the tokens
 */
export function textDistribution(setup, length) {
  const a = arithmeticOf(setup.p([])[0]);
  const found = new Map();
  const rounds = new Map(); // by context: what a round that emits something emits
  const grow = (context, chance) => {
    if (context.length >= length) {
      const tokens = context.slice(0, length);
      const key = tokens.join();
      found.set(key, { tokens, chance: a.plus(found.get(key)?.chance ?? a.zero, chance) });
      return;
    }
    const key = context.join();
    if (!rounds.has(key)) rounds.set(key, speaking(a, roundDistribution(setup, context)));
    for (const each of rounds.get(key)) grow([...context, ...each.tokens], a.times(chance, each.chance));
  };
  grow([], a.one);
  return ordered([...found.values()]);
}

function speaking(a, round) {
  const kept = round.filter(({ tokens }) => tokens?.length);
  if (!kept.length) throw new RangeError("no round of this verifier emits anything");
  const total = sum(kept.map(({ chance }) => chance));
  return kept.map(({ tokens, chance }) => ({ tokens, chance: a.over(chance, total) }));
}

/** The distribution of the next `length` tokens of the target alone. */
export function joint(p, length) {
  const a = arithmeticOf(p([])[0]);
  let grown = [{ tokens: [], chance: a.one }];
  for (let i = 0; i < length; i++) {
    grown = grown.flatMap(({ tokens, chance }) =>
      p(tokens)
        .map((weight, token) => ({ tokens: [...tokens, token], chance: a.times(chance, weight) }))
        .filter((each) => !a.isZero(each.chance)),
    );
  }
  return ordered(grown);
}

/** The total variation between two distributions of texts, as `textDistribution` and `joint` give them. */
export function distance(one, other) {
  const a = arithmeticOf(one[0].chance);
  const gaps = new Map(one.map(({ tokens, chance }) => [tokens.join(), chance]));
  for (const { tokens, chance } of other) {
    const key = tokens.join();
    gaps.set(key, a.minus(gaps.get(key) ?? a.zero, chance));
  }
  return sum([...gaps.values()].map((gap) => a.max(gap, a.zero)));
}

/** The distribution [V] of the first token, where every context has the same distributions p and q and a round makes one guess. */
export function emittedDistribution(p, q, judge = JUDGES.chain, k = 1) {
  const a = arithmeticOf(p);
  const distribution = p.map(() => a.zero);
  for (const { tokens, chance } of textDistribution({ p: () => p, q: () => q, k, judge }, 1)) distribution[tokens[0]] = chance;
  return distribution;
}

function ordered(texts) {
  return texts.sort((x, y) => {
    const at = x.tokens.findIndex((token, i) => token !== y.tokens[i]);
    return at < 0 ? 0 : x.tokens[at] - y.tokens[at];
  });
}
