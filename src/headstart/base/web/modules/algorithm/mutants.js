// Verifiers with one fault each, as other programs and tutorials have had them. They are judges, so that `enumerate`
// gives the exact distribution of what they emit.

import { arithmeticOf } from "hs/algorithm/arithmetic";
import { residual } from "hs/algorithm/distributions";

/**
 * The classic rule made of parts, each of which can be got wrong.
 *
 * keeps(round, i, oracle): whether guess i is kept; refused(round, i): the distribution of the token in its place, or null for
 * none; finished(round): the distribution after no refusal, or null; joined(kept, last): what is emitted.
 */
export function verifier(parts = {}) {
  const { keeps, refused, finished, joined } = { ...RIGHT, ...parts };
  return (draft, p, q, oracle) => {
    const round = { tokens: draft.tokens, p, q };
    const kept = [];
    for (let i = 0; i < draft.tokens.length; i++) {
      if (!keeps(round, i, oracle)) return joined(kept, drawn(oracle, refused(round, i)), "refused");
      kept.push(draft.tokens[i]);
    }
    return joined(kept, drawn(oracle, finished(round)), "finished");
  };
}

const drawn = (oracle, distribution) => (distribution === null ? [] : [oracle.draw(distribution)]);

function ratio({ tokens, p, q }, i, asked = tokens[i]) {
  const a = arithmeticOf(p[0]);
  return a.isZero(q[i][asked]) ? a.one : a.min(a.over(p[i][tokens[i]], q[i][asked]), a.one);
}

const RIGHT = {
  keeps: (round, i, oracle) => oracle.accept(ratio(round, i)),
  refused: ({ p, q }, i) => residual(p[i], q[i]),
  finished: ({ p, tokens }) => p[tokens.length],
  joined: (kept, last) => [...kept, ...last],
};

function likeliest(distribution) {
  const a = arithmeticOf(distribution);
  return distribution.reduce((best, x, i) => (a.less(distribution[best], x) ? i : best), 0);
}

/** By name; each differs from the classic rule in one place. */
export const MUTANTS = Object.freeze({
  /** After a refusal nothing is drawn, and after no refusal neither. */
  noResidual: verifier({ refused: () => null, finished: () => null }),
  /** After a refusal the token is drawn from p itself. */
  fromTarget: verifier({ refused: ({ p }, i) => p[i] }),
  /** The correction is written before the guesses that were kept. */
  scrambled: verifier({ joined: (kept, last, end) => (end === "refused" ? [...last, ...kept] : [...kept, ...last]) }),
  /** Every round with a refusal breaks down. */
  crash: verifier({ joined: (kept, last, end) => (end === "refused" ? null : [...kept, ...last]) }),
  /** After a refusal the token is drawn from the row after the refused guess. */
  rowAfter: verifier({ refused: ({ p }, i) => p[i + 1] }),
  /** The residual is taken with the row after the refused guess. */
  residualRowAfter: verifier({ refused: ({ p, q }, i) => residual(p[i + 1], q[i]) }),
  /** The residual is taken the wrong way round. */
  residualUpsideDown: verifier({ refused: ({ p, q }, i) => residual(q[i], p[i]) }),
  /** A guess is kept if it is the target's likeliest token, whatever the temperature. */
  greedyAcceptance: verifier({
    keeps: ({ tokens, p }, i) => tokens[i] === likeliest(p[i]),
    refused: ({ p }, i) => p[i],
  }),
  /** q is looked up at the next guess instead of at the one that is judged. */
  otherToken: verifier({
    keeps: (round, i, oracle) => oracle.accept(ratio(round, i, round.tokens[(i + 1) % round.tokens.length])),
  }),
  /** A refusal does not end the round: later guesses are judged all the same. */
  goesOn: (draft, p, q, oracle) => {
    const round = { tokens: draft.tokens, p, q };
    const kept = draft.tokens.map((token, i) => (RIGHT.keeps(round, i, oracle) ? token : oracle.draw(residual(p[i], q[i]))));
    return [...kept, oracle.draw(p[draft.tokens.length])];
  },
  /** Everything is kept with the chance p/q of the last guess only. */
  lastOnly: (draft, p, q, oracle) => {
    const last = draft.tokens.length - 1;
    const round = { tokens: draft.tokens, p, q };
    const before = draft.tokens.slice(0, last);
    if (!RIGHT.keeps(round, last, oracle)) return [...before, oracle.draw(residual(p[last], q[last]))];
    return [...draft.tokens, oracle.draw(p[last + 1])];
  },
});

/** No fault at all, made of the same parts. */
export const RIGHT_VERIFIER = verifier();
