// Why so much was guessed in a round, or nothing, in the words that pacing gives.

import { judged } from "hs/trace/rounds";

const NONE = /^K=0[:,] /;
const LOOKED_AT = 5; // rounds: single trials, and single rounds without a guess, decide nothing

/** Why a step guessed what it did. */
export function budgetInWords(step) {
  const reason = step.budget?.reason ?? "";
  if (!reason || step.tokens.length || step.budget.nodes === 0) return reason;
  const names = Object.entries(step.budget.max_nodes ?? {}).filter(([, most]) => most > 0).map(([name]) => name);
  const who = names.join(" and ") || "the drafter";
  const found = names.length && names.every((name) => COPIES.includes(name)) ? "found nothing to copy" : "had no guess";
  return `${who} ${found} (it might have guessed up to ${step.budget.nodes})`;
}

const COPIES = ["ngram", "suffix", "prediction"];

/** Why hardly anything is guessed in the newest rounds, in a sentence; empty where something is. */
export function notGuessing(request) {
  const newest = judged(request).slice(-LOOKED_AT);
  const none = newest.filter((step) => step.budget?.nodes === 0 && NONE.test(step.budget.reason));
  return none.length > newest.length / 2 ? `Not guessing now: ${none.at(-1).budget.reason.replace(NONE, "")}.` : "";
}
