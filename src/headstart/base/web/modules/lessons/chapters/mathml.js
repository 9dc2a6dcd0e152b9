// MathML in few words, for the chapters that calculate: fraction(row("1"), row("1 − ", "α")) and the like.

import { math } from "hs/base/dom";

const OPERATORS = /^[=+−·×/(),…<>≤≥∑]+$/;

/** One symbol: a number, an operator or a name, by what it looks like. */
function symbol(text) {
  if (/^[\d.]+$/.test(text)) return math("mn", text);
  // Parentheses of text height: some browsers stretch them to the height of their neighbours' limits.
  return OPERATORS.test(text) ? math("mo", { stretchy: /[()]/.test(text) ? "false" : undefined }, text) : math("mi", text);
}

const nodeOf = (part) => (typeof part === "string" ? symbol(part) : part);

/** Symbols and nodes side by side; a text is cut at its spaces. */
export const row = (...parts) =>
  math("mrow", {}, parts.flatMap((part) => (typeof part === "string" ? part.split(" ").filter(Boolean) : [part])).map(nodeOf));

export const fraction = (over, under) => math("mfrac", {}, row(over), row(under));

export const power = (base, exponent) => math("msup", {}, row(base), row(exponent));

export const below = (base, index) => math("msub", {}, row(base), row(index));

/** A whole formula. */
export const display = (...parts) => math("math", { display: "block" }, row(...parts));
