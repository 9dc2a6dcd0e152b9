// Tokens per round, and speedup over the baseline. Twin of headstart.theory.rounds and headstart.theory.speed.
//
// alpha: chance that a guess is kept. K: guesses a round. c: one draft step over one plain step. v(n): a forward of n
// rows over one of 1 row; null for 1 whatever the width, a mapping {rows: cost}, or a function.

/** E(alpha, K) = 1 + alpha + ... + alpha^K: tokens per round. */
export function expectedTokens(alpha, k) {
  check("alpha", alpha, 0, 1);
  checkWhole("k", k);
  if (k === 0) return 1;
  if (alpha === 1) return k + 1;
  // 1 - alpha^(K+1) loses its digits as alpha nears 1; expm1 and log1p keep them.
  return -Math.expm1((k + 1) * Math.log1p(-(1 - alpha))) / (1 - alpha);
}

/** E = 1 + a_1 + a_1 a_2 + ... where acceptance differs by position; the last value holds for every later one. */
export function expectedTokensByPosition(acceptance, k = acceptance.length) {
  let reached = 1;
  let tokens = 1;
  for (let i = 0; i < k; i++) {
    reached *= acceptance[Math.min(i, acceptance.length - 1)];
    tokens += reached;
  }
  return tokens;
}

/** The chances that 0, 1, ..., K guesses of a round are kept. */
export function acceptedLengths(alpha, k) {
  return Array.from({ length: k + 1 }, (_, i) => alpha ** i * (i < k ? 1 - alpha : 1));
}

/** 1 / (1 - alpha): what tokens per round stay below for every K. */
export function ceiling(alpha) {
  check("alpha", alpha, 0, 1);
  return 1 / (1 - alpha);
}

/** v(rows) / v(1). */
export function verifyCost(v, rows) {
  if (v === null || v === undefined) return 1;
  if (typeof v === "function") return v(rows) / v(1);
  const known = Object.keys(v).map(Number).sort((a, b) => a - b);
  if (known[0] !== 1) throw new RangeError("v has no cost for 1 row");
  const last = known.length - 1;
  if (rows >= known[last]) {
    const slope = last ? (v[known[last]] - v[known[last - 1]]) / (known[last] - known[last - 1]) : 0;
    return (v[known[last]] + slope * (rows - known[last])) / v[1];
  }
  const high = known.findIndex((n) => n > rows);
  const [from, to] = [known[high - 1], known[high]];
  return (v[from] + ((v[to] - v[from]) / (to - from)) * (rows - from)) / v[1];
}

/** v(K+1)/v(1) + cK: what a round costs, in plain steps. */
export function roundCost(k, c, v = null) {
  return verifyCost(v, k + 1) + c * k;
}

/** E(alpha, K) over what the round costs. */
export function speedup(alpha, k, c, v = null) {
  return expectedTokens(alpha, k) / roundCost(k, c, v);
}

/** `speedup` with conditional acceptances by position. */
export function speedupByPosition(acceptance, k, c, v = null) {
  return expectedTokensByPosition(acceptance, k) / roundCost(k, c, v);
}

/** The acceptance below which plain decoding is faster; NaN where no draft pays, 0 where any does. */
export function breakEvenAlpha(k, c, v = null) {
  const cost = roundCost(k, c, v);
  if (cost > k + 1) return NaN;
  if (cost <= 1) return 0;
  if (cost === k + 1) return 1;
  let [low, high] = [0, 1];
  for (let i = 0; i < 64; i++) {
    const middle = (low + high) / 2;
    if (expectedTokens(middle, k) >= cost) high = middle;
    else low = middle;
  }
  return high;
}

/** The draft length from 0 to `most` with the greatest speedup, the shortest of several; 0 means: do not speculate. */
export function bestK(acceptance, c, v = null, most = 16) {
  const gain = (k) => (Array.isArray(acceptance) ? speedupByPosition : speedup)(acceptance, k, c, v);
  const gains = Array.from({ length: most + 1 }, (_, k) => gain(k));
  const greatest = Math.max(...gains);
  const k = gains.findIndex((each) => each >= greatest * (1 - 1e-12));
  return { k, speedup: gains[k] };
}

/** Speedups by alpha and K. */
export function alphaKTable(alphas, ks, c, v = null) {
  return alphas.map((alpha) => ks.map((k) => speedup(alpha, k, c, v)));
}

/** Speedups by alpha and c. */
export function alphaCTable(alphas, cs, k, v = null) {
  return alphas.map((alpha) => cs.map((c) => speedup(alpha, k, c, v)));
}

function check(name, value, low, high) {
  if (!(value >= low && value <= high)) throw new RangeError(`${name} must be a number of ${low} to ${high}`);
}

function checkWhole(name, value) {
  if (!(Number.isInteger(value) && value >= 0)) throw new RangeError(`${name} must be a whole number of at least 0`);
}
