// Seeded noise as a pure function of (seed, position, purpose, lane): the numbers that the engine uses, computed again.
// Twin of headstart.rule.noise, SplitMix64 (Steele, Lea, Flood 2014) on 64-bit integers.

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;
const MIX1 = 0xbf58476d1ce4e5b9n;
const MIX2 = 0x94d049bb133111ebn;

/** TOKEN decides what the target emits at a position; ACCEPT and DRAFT belong to one round. */
export const Purpose = Object.freeze({ TOKEN: 1, ACCEPT: 2, DRAFT: 3 });

/** The noise of one request. */
export class Noise {
  /** @param {string|bigint|number} seed a whole number; as a text or a BigInt where it exceeds 2**53 */
  constructor(seed) {
    this.seed = BigInt(seed);
  }

  /** One number in (0, 1); `index` numbers the draws that share a position, purpose and lane. */
  uniform(position, purpose, lane = 0, index = 0) {
    return unit(mix((this.#key(position, purpose, lane) + (BigInt(index) + 1n) * GOLDEN) & MASK));
  }

  /** Exponential(1) noise for each of `size` tokens, or only for `tokens` (the same numbers, picked). */
  exponentials(position, purpose, lane, size, tokens = Array.from({ length: size }, (_, i) => i)) {
    const key = this.#key(position, purpose, lane);
    return tokens.map((token) => -Math.log(unit(mix((key + (BigInt(token) + 1n) * GOLDEN) & MASK))));
  }

  /** Draws a token from weights that need not add up to 1: the greatest weight over noise wins. */
  draw(distribution, position, purpose, lane = 0) {
    const support = distribution.map((_, i) => i).filter((i) => distribution[i] > 0);
    if (support.length === 1) return support[0];
    const noise = this.exponentials(position, purpose, lane, distribution.length, support);
    return support[race(support.map((token) => distribution[token]), noise)];
  }

  #key(position, purpose, lane) {
    let key = mix((this.seed + GOLDEN) & MASK);
    for (const part of [position, purpose, lane]) key = mix((key + (BigInt(part) + 1n) * GOLDEN) & MASK);
    return key;
  }
}

/** The token that wins the race: argmax of weight / noise has the distribution of the weights. */
export function race(weights, noise) {
  let best = 0;
  for (let i = 1; i < weights.length; i++) {
    if (weights[i] / noise[i] > weights[best] / noise[best]) best = i;
  }
  return best;
}

function mix(z) {
  z = ((z ^ (z >> 30n)) * MIX1) & MASK;
  z = ((z ^ (z >> 27n)) * MIX2) & MASK;
  return z ^ (z >> 31n);
}

function unit(bits) {
  return (Number(bits >> 11n) + 0.5) * 2 ** -53;
}
