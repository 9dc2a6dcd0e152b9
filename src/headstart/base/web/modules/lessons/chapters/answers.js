// Reading what was answered in a field, and judging several fields one by one.

import { h } from "hs/base/dom";
import { numberOf } from "hs/lessons/fields";

/** The number in a field of any kind; NaN where there is none. */
export function numberIn(value) {
  if (typeof value === "string") return numberOf(value);
  return value?.toNumber ? value.toNumber() : Number(value ?? NaN);
}

/**
 * A check that takes each field alone.
 * @param {object} judges by field: (number) => "" where it is right, else a sentence that helps.
 * @param {string|Node} praise what is said when all are right.
 */
export function each(judges, praise) {
  return (values) => {
    const found = Object.entries(judges).map(([name, judge]) => {
      const number = numberIn(values[name]);
      return [name, Number.isFinite(number) ? judge(number) : "Fill in every field with a number."];
    });
    const wrong = found.filter(([, words]) => words);
    return {
      ok: wrong.length === 0,
      say: wrong.length ? sentences([...new Set(wrong.map(([, words]) => words))]) : praise,
      fields: Object.fromEntries(found.map(([name, words]) => [name, words ? "bad" : "good"])),
    };
  };
}

/** One sentence, or a list of several. */
const sentences = (all) => (all.length > 1 ? h("ul", {}, all.map((each) => h("li", each))) : all[0]);

/** Whether an answer is the value, as near as two decimals (or `tolerance`) tell. */
export const near = (answer, value, tolerance = 0.0051) => Math.abs(answer - value) <= tolerance;

/** The first of [wrong value, sentence] that the answer is near to, else the sentence for everything else. */
export function slip(answer, known, otherwise, tolerance = 0.0051) {
  return known.find(([value]) => near(answer, value, tolerance))?.[1] ?? otherwise;
}
