// A thousand pairs of distributions whose agreement can be set, and what is kept of a draft's guesses, exactly.
//
// The pairs are those of the published dial: a target's logits, noise, and a draft whose logits are a mixture of both.

import { overlap, softmax } from "hs/algorithm/distributions";
import { dialPair } from "hs/algorithm/toy";

export const COUNT = 1000;

let made;

/** [{p, noise}]: logits of every target, and of a draft that knows nothing of it; made once. */
function logits() {
  made ??= Array.from({ length: COUNT }, (_, trial) => {
    const { p, q } = dialPair(0, trial);
    return { p: p.map(Math.log), noise: q.map(Math.log) };
  });
  return made;
}

const mixed = ({ p, noise }, level) => p.map((x, i) => level * x + (1 - level) * noise[i]);

/** The two distributions of one pair. */
export function pairAt(level, trial, temperature = 1) {
  const pair = logits()[trial];
  return { p: softmax(pair.p, temperature), q: softmax(mixed(pair, level), temperature) };
}

/** The mean of `of(p logits, q logits)` over all pairs. */
function mean(level, of) {
  return logits().reduce((sum, pair) => sum + of(pair.p, mixed(pair, level)), 0) / COUNT;
}

/** Mean alpha of drafts that draw their guesses; both models at a temperature, the draft's own if it is given. */
export function drawnAlpha(level, temperature = 1, draftTemperature = temperature) {
  return mean(level, (p, q) => overlap(softmax(p, temperature), softmax(q, draftTemperature)));
}

/** Mean alpha of drafts that always copy out their likeliest token: p of that token. */
export function copiedAlpha(level, temperature = 1) {
  return mean(level, (p, q) => softmax(p, temperature)[q.indexOf(Math.max(...q))]);
}

/** Logits rounded to so many bits: whole multiples of a step that fits the greatest of them. */
export function rounded(values, bits) {
  const middle = values.reduce((a, b) => a + b, 0) / values.length;
  const most = Math.max(...values.map((x) => Math.abs(x - middle)));
  const steps = 2 ** (bits - 1) - 1;
  return values.map((x) => (Math.round(((x - middle) / most) * steps) / steps) * most);
}

/** Mean alpha of drafts that draw, with logits of so many bits. */
export function roundedAlpha(level, bits) {
  return mean(level, (p, q) => overlap(softmax(p), softmax(rounded(q, bits))));
}
