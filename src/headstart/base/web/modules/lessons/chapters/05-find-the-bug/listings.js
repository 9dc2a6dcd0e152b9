// Six listings with a fault each, as tutorials and engines have had them, in words of our own; and their fixed forms.
// Each comes with the verifier that it describes, so that its exact distribution can be worked out.

import { fractions } from "hs/algorithm/arithmetic";
import { JUDGES, distance, expectation, joint, roundDistribution, textDistribution } from "hs/algorithm/enumerate";
import { overlap } from "hs/algorithm/distributions";
import { MUTANTS, RIGHT_VERIFIER } from "hs/algorithm/mutants";

export const WORDS = ["the", "cat", "sat"];
export const P = fractions(["1/2", "3/10", "1/5"]);
export const Q = fractions(["1/5", "3/5", "1/5"]);
export const K = 2;

/** For the listing that mixes up rows, the target's distribution depends on the word before. */
const AFTER = [P, fractions(["1/5", "1/2", "3/10"]), fractions(["3/10", "1/5", "1/2"]), fractions(["3/5", "1/5", "1/5"])];
const sameEverywhere = () => P;
const byLastWord = (context) => AFTER[context.length ? context.at(-1) + 1 : 0];

const FIRST = ["guesses, q = draft(text, K)", "p = target(text, guesses)"];

/**
 * id: of the exercise; story: where it comes from; lines; faults: the lines that may be named; why: words for the right
 * answer; innocent: words for lines that look guilty; mended: the lines put right, and which of them changed; judge and
 * right: the verifiers; p: the target's distribution by context; kind: what the exact distribution is asked about.
 */
export const LISTINGS = [
  {
    id: "05.1",
    title: "One guess",
    story: "It judges a single guess, x. p is the target’s own distribution, so drawing from it can hardly be wrong, or can it? Good tutorials warn of this one.",
    lines: ["x = draw(q)", "chance = min(1, p[x] / q[x])", "if uniform() < chance:", "    return x", "else:", "    return draw(p)"],
    faults: [5],
    why: "After a refusal it draws from p itself. But a refusal is news: it only happens to words that q has too much of. Drawn from p, those words get a second chance that they have already had.",
    innocent: { 1: "That is the rule’s chance; the 1 is there because a ratio may exceed it.", 2: "A uniform draw below the chance keeps the guess. Strictly below is right: chance 0 must never pass." },
    mended: ["x = draw(q)", "chance = min(1, p[x] / q[x])", "if uniform() < chance:", "    return x", "else:", "    rest = above_zero(p - q)", "    return draw(rest / sum(rest))"],
    changed: [5, 6],
    judge: MUTANTS.fromTarget,
    hints: ["Follow a refused guess. What do you know about it?", "Look at the last line, and at chapter 4."],
  },
  {
    id: "05.2",
    title: "The short one",
    story: "Short and tidy, and it never writes a wrong guess.",
    lines: [...FIRST, "kept = []", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() < min(1, p[i][x] / q[i][x]):", "        kept += [x]", "    else:", "        leave the loop", "return text + kept"],
    faults: [8, 9],
    why: "Nothing is drawn after a refusal, so p never gets back what q kept from it; and nothing after a wholly accepted draft, though its distribution has been paid for. Where the first guess is refused, the text does not even advance.",
    innocent: { 5: "That is the right test.", 6: "A guess that passes is kept: that is right.", 7: "Something must happen after a refusal; look at what does." },
    mended: [...FIRST, "kept = []", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() < min(1, p[i][x] / q[i][x]):", "        kept += [x]", "    else:", "        return text + kept + [draw(residual(p[i], q[i]))]", "return text + kept + [draw(p[K])]"],
    changed: [8, 9],
    judge: MUTANTS.noResidual,
    hints: ["Ask what becomes of the text when the very first guess is refused.", "Two lines leave the loop without a word of the target. Either will do."],
  },
  {
    id: "05.3",
    title: "All on one screen",
    story: "Residual and bonus are there, and every word that it writes is a word it should write.",
    lines: [...FIRST, "n = 0", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() < min(1, p[i][x] / q[i][x]):", "        n += 1", "    else:", "        text += [draw(residual(p[i], q[i]))]", "        leave the loop", "text += guesses[first n]", "if n == K:", "    text += [draw(p[K])]"],
    faults: [8, 10],
    why: "The correction is written before the guesses that come before it. The words are right, their order is not.",
    innocent: { 11: "The bonus only follows a wholly accepted draft: that is right.", 12: "The bonus comes last, from the last distribution: that is right.", 5: "That is the right test." },
    mended: [...FIRST, "n = 0", "last = none", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() < min(1, p[i][x] / q[i][x]):", "        n += 1", "    else:", "        last = draw(residual(p[i], q[i]))", "        leave the loop", "if n == K:", "    last = draw(p[K])", "text += guesses[first n] + [last]"],
    changed: [3, 9, 12, 13],
    judge: MUTANTS.scrambled,
    hints: ["Let the second guess be refused, and write down the text that comes out.", "In which order are the correction and the kept guesses added?"],
  },
  {
    id: "05.4",
    title: "The one that stops",
    story: "The mathematics is flawless, and it runs well as long as all guesses are kept.",
    lines: ["guesses, q = draft(text, K)      # each guess is a row of one word", "p = target(text, guesses)", "n = 0", "while n < K and uniform() < p[n][guesses[n]] / q[n][guesses[n]]:", "    n += 1", "if n < K:", "    rest = residual(p[n], q[n])", "    last = draw_word(rest)        # a word", "else:", "    last = draw_row(p[K])         # a row of one word", "return join(text, guesses[first n], last)   # joins rows"],
    faults: [7],
    why: "Two branches give two shapes. After a refusal “last” is a word where a row is wanted, and joining fails. Only rounds without any refusal live.",
    innocent: { 3: "A chance above 1 is passed by every uniform draw, so the min may be left out.", 6: "That is the right distribution for the correction.", 9: "That one has the right shape.", 10: "Joining rows is right; one of them is none." },
    mended: ["guesses, q = draft(text, K)      # each guess is a row of one word", "p = target(text, guesses)", "n = 0", "while n < K and uniform() < p[n][guesses[n]] / q[n][guesses[n]]:", "    n += 1", "if n < K:", "    rest = residual(p[n], q[n])", "    last = draw_row(rest)         # a row of one word", "else:", "    last = draw_row(p[K])         # a row of one word", "return join(text, guesses[first n], last)   # joins rows"],
    changed: [7],
    judge: MUTANTS.crash,
    hints: ["The words after # say what each value is. Follow both branches to the last line.", "Which branch is taken after a refusal?"],
    also: "The published form asks the draft once more for a distribution that it has already computed: not wrong, but paid for. And its text keeps a guess at u ≤ p/q, its code at u < p/q: only the latter never keeps a word that p forbids.",
  },
  {
    id: "05.5",
    title: "The number under the run",
    story: "The text is right in every respect. The number that it prints about itself is not.",
    lines: ["rounds, kept, made = 0, 0, 0", "while the text is too short:", "    new = one_round(text, K)      # the guesses kept, and one word more", "    text += new", "    rounds += 1", "    kept += length(new)", "    made += K", "print(\"words a target call\", length(text) / rounds)", "print(\"acceptance\", kept / made)"],
    faults: [5],
    why: "The one word more is a correction or a bonus: the target’s own, and no accepted guess. Counted in, it can push the “acceptance” over 100%.",
    innocent: { 2: "A round gives the guesses kept and one word more: that is right.", 4: "One call of the target a round: that is right.", 6: "K guesses were made: that is right.", 7: "Words a call counts every word: that is right.", 8: "Kept over made is a fair figure, if both are what they are called." },
    mended: ["rounds, kept, made = 0, 0, 0", "while the text is too short:", "    new = one_round(text, K)      # the guesses kept, and one word more", "    text += new", "    rounds += 1", "    kept += length(new) - 1", "    made += K", "print(\"words a target call\", length(text) / rounds)", "print(\"acceptance\", kept / made)"],
    changed: [5],
    kind: "metric",
    judge: RIGHT_VERIFIER,
    hints: ["What does one_round give back if every guess is refused?", "Count the guesses kept in a round of K = 2 that comes back with three words."],
    also: "Published runs of 50 words printed 70.8%, 47.0% and 46.2%. Really 37.5%, 27.0% and 31.9% of the guesses made were kept, and 58.7%, 60.8% and 71.7% of those that were looked at, which is what α is about.",
  },
  {
    id: "05.6",
    title: "From an engine",
    story: "An engine that many people run had a fault of this kind. Here p depends on the word before, as in any real model.",
    lines: ["guesses, q = draft(text, K)", "p = target(text, guesses)         # p[i] is the distribution at the place of guess i", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() >= p[i][x] / q[i][x]:", "        rest = above_zero(p[i + 1] - q[i])", "        return text + guesses[first i] + [draw(rest / sum(rest))]", "return text + guesses + [draw(p[K])]"],
    faults: [5],
    why: "The residual takes p from the row after the refused guess: the distribution of what would follow the very word that was refused.",
    innocent: { 4: "Refused unless the uniform draw is below the ratio: that is right.", 6: "The kept guesses, then the correction: that is right.", 7: "After no refusal the bonus comes from the last distribution: that is right.", 1: "K + 1 distributions from one forward: that is right." },
    mended: ["guesses, q = draft(text, K)", "p = target(text, guesses)         # p[i] is the distribution at the place of guess i", "for i in 0 .. K-1:", "    x = guesses[i]", "    if uniform() >= p[i][x] / q[i][x]:", "        rest = above_zero(p[i] - q[i])", "        return text + guesses[first i] + [draw(rest / sum(rest))]", "return text + guesses + [draw(p[K])]"],
    changed: [5],
    judge: MUTANTS.residualRowAfter,
    p: byLastWord,
    hints: ["Which distribution belongs to the place of guess i? The comment says it.", "Compare the rows that the test and the residual use."],
  },
];

const setupOf = ({ p = sameEverywhere }, judge) => ({ p, q: () => Q, k: K, judge });

/**
 * What a verifier emits where a listing describes it: the exact distribution of the next word beside p, the distance there and
 * over texts of three words, and the share of rounds that break down or say nothing.
 */
export function exactDistribution(listing, judge) {
  const setup = setupOf(listing, judge);
  const first = textDistribution(setup, 1);
  const zero = P[0].minus(P[0]);
  const distribution = WORDS.map((_, word) => first.find(({ tokens }) => tokens[0] === word)?.chance ?? zero);
  const round = roundDistribution(setup);
  const share = (kind) => round.filter(kind).reduce((total, { chance }) => total.plus(chance), zero);
  return {
    distribution,
    p: setup.p([]),
    word: distance(first, joint(setup.p, 1)),
    text: distance(textDistribution(setup, 3), joint(setup.p, 3)),
    texts: joint(setup.p, 3).length,
    broken: share(({ tokens }) => tokens === null),
    silent: share(({ tokens }) => tokens?.length === 0),
  };
}

/** The exact means of the figure in question: as printed, and what is meant by it. */
export function exactMetric() {
  const setup = setupOf({}, JUDGES.chain);
  const kept = ({ drafted, emitted }) => {
    let n = 0;
    while (n < emitted.length - 1 && emitted[n] === drafted[n]) n += 1;
    return n;
  };
  const words = expectation(setup, ({ emitted }) => emitted.length);
  const guesses = expectation(setup, kept);
  const judged = expectation(setup, (round) => Math.min(kept(round) + 1, K));
  const made = words.over(words).plus(words.over(words)); // K = 2
  return { printed: words.over(made), kept: guesses.over(made), judged: guesses.over(judged), alpha: overlap(P, Q) };
}
