// Three questions about a trace, made from its numbers; and what the reader's answers were, for the certificate.

import { h } from "hs/base/dom";
import { counted, fixed, percent, visible } from "hs/base/format";
import { deepest } from "hs/trace/what-if";
import { acceptedOf, judged, summary } from "hs/trace/rounds";
import { exercise } from "hs/lessons/exercise";
import { progress } from "hs/lessons/progress";

export const IDS = ["12.1", "12.2", "12.3"];
const KEY = "answers 12";
const STRETCH = 5; // rounds

/** What was answered rightly, by exercise: {words, trace}. */
export const answered = () => progress.get(KEY) ?? {};

const keep = (id, words, trace) => progress.set(KEY, { ...answered(), [id]: { words, trace } });

/** The request of a trace that has most rounds with drafts; null where nothing was drafted. */
export function asked(trace) {
  const drafted = (request) => request.steps.filter((step) => step.tokens.length).length;
  const best = [...trace.requests].sort((a, b) => drafted(b) - drafted(a))[0];
  return best && deepest(best) > 0 ? best : null;
}

/** Three exercises about a request. name: of the trace, for the certificate. */
export function questions(request, name) {
  const found = summary(request);
  return [tokensPerForward(request, found, name), conditional(found, name), lost(request, found, name)];
}

/**
 * A few rounds in a row whose average is not that of the whole run, which is beside it in large figures.
 *
 * @returns {{first: number, last: number, tokens: number, forwards: number, accepted: number}} the rounds as they are
 *   numbered in the strip
 */
export function stretchOf(request, found) {
  const steps = judged(request).filter((step) => step.emitted.length);
  const length = Math.min(STRETCH, steps.length);
  const count = (some, pick) => some.reduce((total, step) => total + pick(step), 0);
  const stretches = steps.slice(0, steps.length - length + 1).map((first, i) => {
    const some = steps.slice(i, i + length);
    const tokens = count(some, (step) => step.emitted.length);
    return { first: request.steps.indexOf(first) + 1, last: request.steps.indexOf(some.at(-1)) + 1, tokens, forwards: length, accepted: count(some, acceptedOf) };
  });
  const far = ({ tokens, forwards }) => Math.abs(tokens / forwards - found.tokensPerForward);
  return stretches.reduce((best, each) => (far(each) > far(best) ? each : best));
}

function tokensPerForward(request, found, name) {
  const { first, last, tokens, forwards, accepted } = stretchOf(request, found);
  const right = tokens / forwards;
  const where = first === last ? `round ${first}` : `rounds ${first} to ${last}`;
  return exercise({
    id: IDS[0],
    title: "Tokens per forward",
    ask: `How many tokens did one forward of the target give in ${where}, on average? To one decimal place. Count from the strip of rounds, or from its table.`,
    fields: [{ name: "tokens", label: "Tokens per forward", kind: "number" }],
    check: ({ tokens: given }) => {
      if (Math.abs(given - right) <= 0.051) {
        keep(IDS[0], `${fixed(right)} tokens per forward in ${where}`, name);
        return { ok: true, say: `${tokens} tokens over ${forwards} forwards: ${fixed(right)}. Plain decoding has 1, and the whole run ${fixed(found.tokensPerForward)}.` };
      }
      if (Math.abs(given - accepted / forwards) <= 0.051) return { ok: false, say: "That counts accepted guesses only. Each forward gives one token more: a correction or a bonus." };
      if (Math.abs(given - found.tokensPerForward) <= 0.051) return { ok: false, say: `That is the whole run. Look at ${where} alone.` };
      return { ok: false, say: `Not that. Divide the tokens of ${where} by ${counted(forwards, "forward")}: each round is one.` };
    },
    hints: [`${counted(tokens, "token")} came in ${where}.`, `These are ${counted(forwards, "forward")}.`],
    solution: () => `${tokens} / ${forwards} = ${fixed(right)}.`,
    answer: { tokens: fixed(right, 2) },
  });
}

function conditional(found, name) {
  const depth = Math.min(2, found.conditional.length);
  const { tested, accepted, share } = found.conditional[depth - 1];
  return exercise({
    id: IDS[1],
    title: `Conditional acceptance at depth ${depth}`,
    ask: `Of the guesses at depth ${depth} whose predecessors were all accepted, which share was accepted? As a percentage; two points more or less will do.`,
    fields: [{ name: "share", label: "Share", kind: "number", unit: "%" }],
    check: ({ share: given }) => {
      const percentGiven = given <= 1 && share > 0.02 ? 100 * given : given;
      if (Math.abs(percentGiven - 100 * share) <= 2) {
        keep(IDS[1], `${percent(share)} conditional acceptance at depth ${depth}`, name);
        return { ok: true, say: `${accepted} of ${tested}: ${percent(share)}. Of all guesses it would be ${percent(found.acceptedOfDrafted)}: that figure mixes the depths and counts guesses that were never judged.` };
      }
      if (Math.abs(percentGiven - 100 * found.acceptedOfDrafted) <= 2) return { ok: false, say: "That is accepted of drafted, over all depths. Look only at this depth, and only where everything before it was accepted." };
      return { ok: false, say: "Not that. The table “Acceptance by depth” has the counts." };
    },
    hints: [`A guess at depth ${depth} is tested only where the guess${depth > 1 ? " before it was" : "es before it were"} accepted.`, `It was tested ${counted(tested, "time")}.`],
    solution: () => `${accepted} of ${tested} is ${percent(share)}.`,
    answer: { share: fixed(100 * share, 1) },
  });
}

function lost(request, found, name) {
  const most = found.lost[0]?.lost ?? 0;
  const right = found.lost.filter((each) => each.lost === most).map((each) => each.i + 1);
  const words = (each) => `${counted(each.lost, "level")} of its draft came to nothing${each.token === null ? "" : `: the target did not say “${visible(request.text(each.token))}” but “${visible(request.text(each.wanted))}”`}.`;
  return exercise({
    id: IDS[2],
    title: "Where most was lost",
    ask: "In which round did most levels of a draft come to nothing? If several lost as many, any of them; if nothing was lost, 0.",
    fields: [{ name: "round", label: "Round", kind: "whole" }],
    check: ({ round }) => {
      if (most === 0 && round === 0) {
        keep(IDS[2], "no round lost anything", name);
        return { ok: true, say: "Right: every draft was accepted to its end." };
      }
      if (right.includes(round)) {
        keep(IDS[2], `most was lost in round ${round}`, name);
        return { ok: true, say: `Round ${round}: ${words(found.lost.find((each) => each.i + 1 === round))}` };
      }
      const other = found.lost.find((each) => each.i + 1 === round);
      return { ok: false, say: other ? `Round ${round} lost ${other.lost}; another one lost more.` : `Nothing of a draft was lost in round ${round}, if there is such a round.` };
    },
    hints: ["In the strip, look for rounds with a dotted token low down: an early refusal.", `The most that was lost in one round is ${counted(most, "level")}.`],
    solution: () => (most === 0 ? "No round lost anything: 0." : `Round ${right[0]}: ${words(found.lost[0])}`),
    answer: { round: most === 0 ? 0 : right[0] },
  });
}

/** The questions' place where a trace has no drafts. */
export const nothingToAsk = () => h("p.note", "Nothing was drafted in this trace, so there is nothing to ask. Choose another one.");
