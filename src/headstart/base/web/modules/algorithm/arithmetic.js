// Two arithmetics, doubles and exact fractions, so that every rule is written once. A distribution is an array of either.

import { Fraction, fraction } from "hs/algorithm/rational";

/** Doubles. */
export const NUMBERS = Object.freeze({
  zero: 0,
  one: 1,
  of: (value) => (value instanceof Fraction ? value.toNumber() : Number(value)),
  plus: (a, b) => a + b,
  minus: (a, b) => a - b,
  times: (a, b) => a * b,
  over: (a, b) => a / b,
  less: (a, b) => a < b,
  min: (a, b) => (b < a ? b : a),
  max: (a, b) => (b > a ? b : a),
  isZero: (a) => a === 0,
  toNumber: (a) => a,
});

/** Exact fractions. */
export const FRACTIONS = Object.freeze({
  zero: new Fraction(0n),
  one: new Fraction(1n),
  of: (value) => fraction(value),
  plus: (a, b) => a.plus(b),
  minus: (a, b) => a.minus(b),
  times: (a, b) => a.times(b),
  over: (a, b) => a.over(b),
  less: (a, b) => a.less(b),
  min: (a, b) => (b.less(a) ? b : a),
  max: (a, b) => (a.less(b) ? b : a),
  isZero: (a) => a.isZero(),
  toNumber: (a) => a.toNumber(),
});

/** The arithmetic that a distribution's entries, or one value, belong to. */
export function arithmeticOf(values) {
  return (Array.isArray(values) ? values[0] : values) instanceof Fraction ? FRACTIONS : NUMBERS;
}

export function sum(values) {
  const a = arithmeticOf(values);
  return values.reduce(a.plus, a.zero);
}

/** The weights over their sum; they must not all be 0. */
export function normalised(weights) {
  const a = arithmeticOf(weights);
  const total = sum(weights);
  if (a.isZero(total)) throw new RangeError("weights that are all 0 make no distribution");
  return weights.map((weight) => a.over(weight, total));
}

/** Fractions of numbers, or of texts as `parse` reads them. */
export function fractions(values) {
  return values.map((value) => fraction(value));
}

/** The doubles nearest to a distribution's entries. */
export function numbersOf(distribution) {
  const a = arithmeticOf(distribution);
  return distribution.map(a.toNumber);
}
