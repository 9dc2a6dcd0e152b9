// NumPy's legacy generator, the same numbers for the same seed: what the published toy was run with. It also serves
// wherever a page needs many random numbers that can be repeated. Mersenne Twister (Matsumoto, Nishimura 1998).

const N = 624;
const M = 397;

/** numpy.random.RandomState(seed), as far as the lessons need it. */
export class RandomState {
  #state = new Uint32Array(N);
  #at = N;
  #spare = null;

  /** @param {number} seed a whole number below 2**32 */
  constructor(seed) {
    this.#state[0] = seed >>> 0;
    for (let i = 1; i < N; i++) {
      const last = this.#state[i - 1];
      this.#state[i] = Math.imul(1812433253, last ^ (last >>> 30)) + i;
    }
  }

  /** One number in [0, 1). */
  random() {
    const high = this.#next() >>> 5;
    const low = this.#next() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }

  /** An index with the chances of a distribution: choice(len(distribution), p=distribution). */
  choice(distribution) {
    return pick(distribution, this.random());
  }

  /** So many numbers of the standard normal distribution. */
  randn(count) {
    return Array.from({ length: count }, () => this.gauss());
  }

  /** One number of the standard normal distribution, by the polar method; they come in pairs. */
  gauss() {
    if (this.#spare !== null) {
      const kept = this.#spare;
      this.#spare = null;
      return kept;
    }
    let x, y, r;
    do {
      x = 2 * this.random() - 1;
      y = 2 * this.random() - 1;
      r = x * x + y * y;
    } while (r >= 1 || r === 0);
    const scale = Math.sqrt((-2 * Math.log(r)) / r);
    this.#spare = scale * x;
    return scale * y;
  }

  #next() {
    if (this.#at === N) this.#twist();
    let y = this.#state[this.#at++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  #twist() {
    const state = this.#state;
    for (let i = 0; i < N; i++) {
      const y = (state[i] & 0x80000000) | (state[(i + 1) % N] & 0x7fffffff);
      state[i] = state[(i + M) % N] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.#at = 0;
  }
}

/** The index at which the running sum of a distribution first exceeds u. */
export function pick(distribution, u) {
  let total = 0;
  const sums = distribution.map((x) => (total += x));
  const found = sums.findIndex((each) => each / total > u);
  return found < 0 ? distribution.length - 1 : found;
}
