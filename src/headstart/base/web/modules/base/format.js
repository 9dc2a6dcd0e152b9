// Numbers, times and tokens as text, the same everywhere.

/** A number with so many digits after the point: 0.25 -> "0.25". A minus is a real one. */
export const fixed = (value, digits = 2) => (Number.isFinite(value) ? value.toFixed(digits).replace("-", "−") : "–");

/** A share as a percentage: 0.25 -> "25%". */
export const percent = (value, digits = 0) => (Number.isFinite(value) ? `${fixed(100 * value, digits)}%` : "–");

/** A probability: two significant digits where it is small, never a bare 0 for what is possible. */
export function probability(value) {
  if (value === 0 || value === 1) return String(value);
  if (value < 0.001) return "<.001";
  if (value > 0.999) return ">.999";
  return value.toFixed(value < 0.1 ? 3 : 2).replace(/^0/, "");
}

/** Seconds in the unit that reads best: 0.0031 -> "3.1 ms". */
export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value === 0) return "0 ms";
  if (value < 0.00095) return `${(1e6 * value).toFixed(0)} µs`;
  if (value < 0.95) return `${(1e3 * value).toFixed(value < 0.0095 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 9.5 ? 2 : 1)} s`;
}

/** A whole number with commas between thousands, as in the texts. */
export const whole = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",").replace("-", "−");

/** A day in words, which no line breaks in two: "2026-11-21" -> "21 November 2026"; what is no day stays. */
export function day(text) {
  const [, year, month, date] = /^(\d{4})-(\d\d)-(\d\d)/.exec(text) ?? [];
  const name = MONTHS[Number(month) - 1];
  return name ? `${Number(date)} ${name} ${year}` : text;
}
const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"];

/** A token's text with its white space made visible: " the" -> "·the", a line break -> "⏎", a tab -> "⇥". */
export const visible = (text) =>
  text === "" ? "∅" : text.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥").replaceAll("\r", "␍");

/** "1 token", "3 tokens". */
export const counted = (count, noun, plural = `${noun}s`) => `${whole(count)} ${count === 1 ? noun : plural}`;

/** "a, b and c". */
export const listed = (items) => (items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`);
