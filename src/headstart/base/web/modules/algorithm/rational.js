// Exact rational numbers on BigInt, so that a distribution which must be equal to another is equal to the last digit.

/** A fraction in lowest terms with a positive denominator; it never changes. */
export class Fraction {
  /** @param {bigint} n numerator @param {bigint} d denominator, not 0 */
  constructor(n, d = 1n) {
    if (d === 0n) throw new RangeError("a fraction needs a denominator other than 0");
    const sign = d < 0n ? -1n : 1n;
    const common = greatestCommonDivisor(n < 0n ? -n : n, d * sign);
    this.n = (n * sign) / common;
    this.d = (d * sign) / common;
  }

  plus(other) {
    return new Fraction(this.n * other.d + other.n * this.d, this.d * other.d);
  }

  minus(other) {
    return new Fraction(this.n * other.d - other.n * this.d, this.d * other.d);
  }

  times(other) {
    return new Fraction(this.n * other.n, this.d * other.d);
  }

  over(other) {
    return new Fraction(this.n * other.d, this.d * other.n);
  }

  /** Less than 0, 0 or more than 0, as in a sort. */
  compare(other) {
    const gap = this.n * other.d - other.n * this.d;
    return gap < 0n ? -1 : gap > 0n ? 1 : 0;
  }

  less(other) {
    return this.compare(other) < 0;
  }

  equals(other) {
    return this.n === other.n && this.d === other.d;
  }

  isZero() {
    return this.n === 0n;
  }

  /** The nearest double, ties to even. */
  toNumber() {
    if (this.n === 0n) return 0;
    const size = this.n < 0n ? -this.n : this.n;
    // 66 bits of the quotient and a last bit for "something remained" are enough to round once, at the end.
    const shift = 66 - (bits(size) - bits(this.d));
    const scaled = shift >= 0 ? size << BigInt(shift) : size;
    const divisor = shift >= 0 ? this.d : this.d << BigInt(-shift);
    const quotient = scaled / divisor;
    const rounded = Number((quotient << 1n) | (scaled % divisor === 0n ? 0n : 1n)) * 2 ** (-shift - 1);
    return this.n < 0n ? -rounded : rounded;
  }

  /** "3/14", or "2" for a whole number. */
  toString() {
    return this.d === 1n ? String(this.n) : `${this.n}/${this.d}`;
  }

  /** The decimal expansion, rounded half up to so many places. */
  toDecimal(places = 3) {
    const scale = 10n ** BigInt(places);
    const size = this.n < 0n ? -this.n : this.n;
    const digits = String((2n * size * scale + this.d) / (2n * this.d)).padStart(places + 1, "0");
    const whole = digits.slice(0, digits.length - places);
    const text = places ? `${whole}.${digits.slice(digits.length - places)}` : whole;
    return this.n < 0n ? `-${text}` : text;
  }
}

/**
 * A fraction from a whole number, a BigInt, a fraction, or anything that `parse` reads; a number such as 0.1 means the
 * decimal that it prints as, 1/10.
 */
export function fraction(value, denominator = 1n) {
  const top = toFraction(value);
  return denominator === 1n ? top : top.over(toFraction(denominator));
}

function toFraction(value) {
  if (value instanceof Fraction) return value;
  if (typeof value === "bigint") return new Fraction(value);
  if (typeof value === "number" && Number.isInteger(value)) return new Fraction(BigInt(value));
  return parse(String(value));
}

const DECIMAL = /^([+-]?)(\d*)(?:[.,](\d*))?(?:e([+-]?\d{1,3}))?(%?)$/i;

/**
 * Reads "0.25", ".3", "3/14", "25%", "1e-3".
 *
 * @throws {RangeError} with a plain sentence, where the text is not a number
 */
export function parse(text) {
  const parts = String(text).trim().split("/");
  if (parts.length === 2) {
    const bottom = decimal(parts[1].trim(), text);
    if (bottom.isZero()) throw new RangeError(`"${text}" divides by 0`);
    return decimal(parts[0].trim(), text).over(bottom);
  }
  return decimal(parts.length === 1 ? parts[0] : "", text);
}

function decimal(part, text) {
  const found = DECIMAL.exec(part);
  if (!found || !(found[2] || found[3])) {
    throw new RangeError(`"${text}" is not a number: write 0.25, 1/4 or 25%`);
  }
  const [, sign, whole, after = "", exponent = "0", percent] = found;
  const size = BigInt(whole + after || "0") * (sign === "-" ? -1n : 1n);
  const power = Number(exponent) - after.length - (percent ? 2 : 0);
  return power >= 0 ? new Fraction(size * 10n ** BigInt(power)) : new Fraction(size, 10n ** BigInt(-power));
}

function greatestCommonDivisor(a, b) {
  while (b) [a, b] = [b, a % b];
  return a || 1n;
}

function bits(positive) {
  return positive.toString(2).length;
}
