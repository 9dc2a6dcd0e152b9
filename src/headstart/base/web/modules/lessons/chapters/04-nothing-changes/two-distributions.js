// Two distributions over a few words that the reader changes: values in twentieths, so that every fraction stays readable.

import { FRACTIONS, sum } from "hs/algorithm/arithmetic";
import { fraction, parse } from "hs/algorithm/rational";

/** The parts that a distribution is cut into when it is dragged. */
export const PARTS = 20;

/** The words of the chapters' small example, and its two distributions: the published exercise. */
export const SMALL = Object.freeze({
  words: ["the", "cat", "sat"],
  p: ["1/2", "3/10", "1/5"],
  q: ["1/5", "3/5", "1/5"],
});

/**
 * The distribution with entry `index` at `value`; the others share the rest in their old proportions, rounded to twentieths.
 *
 * @param {import("hs/algorithm/rational").Fraction[]} distribution @param {number} index @param {number} parts how many twentieths, 0 to 20
 */
export function withValue(distribution, index, parts) {
  const kept = Math.max(0, Math.min(PARTS, Math.round(parts)));
  const rest = PARTS - kept;
  const others = distribution.map((x, i) => (i === index ? 0 : x.toNumber()));
  const total = others.reduce((a, b) => a + b, 0);
  const shares = others.map((x, i) => (i === index ? 0 : total ? (x / total) * rest : rest / (distribution.length - 1)));
  const given = shares.map((share) => Math.floor(share + 1e-9));
  const order = shares.map((_, i) => i).filter((i) => i !== index);
  order.sort((i, j) => shares[j] - given[j] - (shares[i] - given[i]) || i - j);
  let owed = rest - given.reduce((a, b) => a + b, 0);
  for (const i of order) {
    if (owed <= 0) break;
    given[i] += 1;
    owed -= 1;
  }
  given[index] = kept;
  return given.map((count) => fraction(count, PARTS));
}

/** How many twentieths an entry has, rounded. */
export const partsOf = (value) => Math.round(value.toNumber() * PARTS);

/** A fraction in words for a screen reader: "3 of 10", "none", "all". */
export function spoken(value) {
  if (value.isZero()) return "none";
  return value.d === 1n ? String(value.n) : `${value.n} of ${value.d}`;
}

/** "3/10", "−1/5", or "0". @param {import("hs/algorithm/rational").Fraction} value */
export const short = (value) => String(value).replace("-", "−");

/** Three texts as a distribution; what adds up to something else than 1 is refused. */
export function distributionOf(texts) {
  const distribution = texts.map((text) => parse(text));
  if (distribution.some((x) => x.less(FRACTIONS.zero))) throw new RangeError("A chance cannot be below 0");
  const total = sum(distribution);
  if (!total.equals(FRACTIONS.one)) throw new RangeError(`The chances of a distribution add up to 1; ${texts.join(" + ")} is ${short(total)}`);
  return distribution;
}
