// Requests whose acceptance falls at some time, and the detector that watches them.

import { detect, lowerBound } from "hs/algorithm/drift";
import { RandomState } from "hs/algorithm/randomstate";

export const LENGTH = 160;
export const ALARM = 1000;
const [MEAN, SPREAD, REFERENCE] = [0.8, 0.15, 2000];
const DROPS = [0.12, 0.16, 0.2, 0.25];

const request = (rng, mean) => Math.min(1, Math.max(0, mean + SPREAD * rng.gauss()));

let bound = null;
/** What acceptance may be claimed to be at least: a lower bound of its mean over past requests, at 1%. */
export function claimed() {
  if (bound === null) {
    const rng = new RandomState(77);
    bound = lowerBound(Array.from({ length: REFERENCE }, () => request(rng, MEAN)), 0.01);
  }
  return bound;
}

/**
 * A stream of requests. fall: the index of the first one after the change; null where nothing changes.
 * @returns {{xs: number[], fall: number|null, drop: number, detected: number|null, evidence: number[]}} `detected` is the
 *   index of the request at which the detector raises its alarm
 */
export function stream(seed, { always = false } = {}) {
  const rng = new RandomState(1000 + seed);
  const falls = always || rng.random() < 0.75;
  const fall = 30 + Math.floor(rng.random() * 50);
  const drop = DROPS[Math.floor(rng.random() * DROPS.length)];
  const xs = Array.from({ length: LENGTH }, (_, i) => request(rng, falls && i >= fall ? MEAN - drop : MEAN));
  const { evidence, at } = detect(xs, { m: claimed(), alarm: ALARM });
  return { xs, fall: falls ? fall : null, drop: falls ? drop : 0, detected: at < 0 ? null : at, evidence };
}

/** What a press after `seen` requests was worth: {kind: "early"|"late"|"good", delay}. */
export function judge({ fall, detected }, seen) {
  if (fall === null || seen <= fall) return { kind: "early", delay: NaN };
  const delay = seen - fall;
  const theirs = detected === null ? Infinity : detected + 1 - fall;
  return { kind: delay <= 1.5 * theirs ? "good" : "late", delay };
}
