// The round that goes with the reader: one sentence in four steps, and the step that a chapter is about stands out.

import { h } from "hs/base/dom";
import { percent, probability } from "hs/base/format";
import { RandomState } from "hs/algorithm/randomstate";
import { WORDS, round, tokensOf, words } from "hs/algorithm/toy";

/** The seed with which the ten-word models of chapter 3 play it. */
export const SEED = 18951;
/** After "the cat" the draft guesses "sat on the a"; the target keeps three of these and writes "dog". */
export const ROUND = round(tokensOf("the cat"), 4, new RandomState(SEED));

const last = ROUND.judged.at(-1);
/** The guess that is refused: its p and q, the limit p/q, how often it would be kept, and what the die showed. */
export const REFUSED = { word: WORDS[last.token], p: probability(last.p[last.token]), q: probability(last.q[last.token]), limit: probability(last.chance), share: percent(last.chance), die: probability(last.u) };

const token = (kind, id) => h(`span.tok.${kind}`, WORDS[id]);
const spaced = (parts) => parts.flatMap((part, i) => (i ? [" ", part] : [part]));
const context = () => h("span.tok.prompt", words(ROUND.context));

const STEPS = [
  ["draft", "Draft", () => ["A small model guesses: ", ...spaced([context(), ...ROUND.drafted.map((guess) => token("guessed", guess.token))])]],
  ["verify", "Verify", () => ["The large model reads ", h("span.mono", words([ROUND.context.at(-1), ...ROUND.drafted.map((guess) => guess.token)])), " in one pass."]],
  ["accept", "Accept", () => spaced(ROUND.judged.flatMap((each) => [token(each.accepted ? "accepted" : "refused", each.token), each.accepted ? "✓" : "✗"]))],
  ["commit", "Commit", () => spaced([context(), ...ROUND.emitted.map((id, i) => token(i < ROUND.accepted ? "accepted" : ROUND.end.kind, id))])],
];
/** The names of the steps. */
export const ALL = STEPS.map(([name]) => name);

/** @param {{at: string[], says: string}} options at: the steps that stand out; says: what of them the chapter is about. */
export const roundBeside = ({ at, says }) =>
  h("aside.round-beside", { "aria-label": "Where this chapter is in the round" },
    h("ol", {}, STEPS.map(([name, title, shown]) =>
      h(at.includes(name) ? "li.now" : "li", { "aria-current": at.includes(name) ? "step" : undefined }, h("strong", title), h("span", {}, shown())))),
    h("p", says));
