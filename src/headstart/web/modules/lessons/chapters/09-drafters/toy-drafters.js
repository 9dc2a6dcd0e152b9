// Small true drafters on the ten words: each guesses as its kind does, and the walk judges with the target's own words.

import { rejoined } from "hs/lessons/chapters/09-drafters/pieces";
import { Noise, Purpose } from "hs/algorithm/noise";
import { makeDraft, walk } from "hs/algorithm/rules";
import { WORDS, drafter, target, tokensOf } from "hs/algorithm/toy";

const SEED = 7;
const ROUNDS = 6;
const START = tokensOf("the cat sat on the mat");

const best = (law, count = 1) => law.map((_, i) => i).sort((a, b) => law[b] - law[a]).slice(0, count);

/** What the target says next: its own token at a position, the same whatever is drafted. */
const noise = new Noise(SEED);
const own = (law, position) => noise.draw(law.map((x) => x ** 3), position, Purpose.TOKEN);

/**
 * A recorded-looking run of a drafter on the toy: rounds with a tree, what became of each node, and a remark.
 * @param {(context: number[], memory: object) => {tokens: number[], parents: number[], says: string}} draftOf
 */
export function illustrate(draftOf) {
  const rounds = [];
  const memory = {};
  let context = [...START];
  for (let i = 0; i < ROUNDS; i++) {
    const { tokens, parents, says } = draftOf(context, memory);
    const draft = makeDraft(tokens, parents);
    const laws = [target(context), ...tokens.map((_, node) => target([...context, ...draft.path(node).map((each) => tokens[each])]))];
    const verdict = walk(draft, laws, (law, depth) => own(law, context.length + depth));
    rounds.push({ root: WORDS[context.at(-1)], nodes: nodesOf(draft, verdict), path: verdict.path, emitted: verdict.emitted.map((token) => WORDS[token]),
      accepted: verdict.accepted, kind: verdict.kind, says });
    context = [...context, ...verdict.emitted];
  }
  return { prompt: START.map((token) => WORDS[token]), rounds };
}

function nodesOf(draft, verdict) {
  const stood = new Set([-1, ...verdict.path]);
  return draft.tokens.map((token, node) => ({
    text: WORDS[token],
    parent: draft.parents[node],
    state: verdict.path.includes(node) ? "accepted" : stood.has(draft.parents[node]) ? "refused" : "beyond",
  }));
}

const chainOf = (tokens, says) => ({ tokens, parents: tokens.map((_, i) => i - 1), says });

/** Word by word from a law of its own. */
function stepwise(lawOf, count) {
  return (context) => {
    const tokens = [];
    for (let i = 0; i < count; i++) tokens.push(best(lawOf([...context, ...tokens]))[0]);
    return tokens;
  };
}

/** Part of the way from a flat law to the target's. */
const near = (share) => (context) => target(context).map((x) => share * x + (1 - share) / WORDS.length);

/** The longest end of the text that came before, and what followed it then. */
export function copied(context, least = 1, most = 4) {
  for (let length = Math.min(5, context.length - 1); length >= least; length--) {
    const end = context.slice(-length).join();
    for (let at = context.length - length - 1; at >= 0; at--) {
      if (context.slice(at, at + length).join() === end) return { matched: context.slice(-length), tokens: context.slice(at + length, at + length + most) };
    }
  }
  return { matched: [], tokens: [] };
}

function copying(name) {
  return (context) => {
    const { matched, tokens } = copied(context);
    const words = matched.map((token) => WORDS[token]).join(" ");
    return chainOf(tokens, matched.length ? `“${words}” stood in the text before. ${name} copies what followed it then.` : "Nothing like this stood in the text before: no guess, and no cost.");
  };
}

/** The law of the word `ahead` places on, when the words between are not known: what a perfect head would learn. */
function marginal(context, ahead) {
  let contexts = new Map([["", 1]]);
  for (let i = 0; i < ahead; i++) {
    const next = new Map();
    for (const [key, chance] of contexts) {
      const more = key ? key.split(",").map(Number) : [];
      target([...context, ...more]).forEach((x, token) => {
        const grown = [...more, token].join();
        next.set(grown, (next.get(grown) ?? 0) + chance * x);
      });
    }
    contexts = next;
  }
  const law = WORDS.map(() => 0);
  for (const [key, chance] of contexts) target([...context, ...(key ? key.split(",").map(Number) : [])]).forEach((x, token) => (law[token] += chance * x));
  return law;
}

/** Every pair of the heads' best words: a tree in which all branches have the same words below them. */
function medusa(context) {
  const heads = [best(marginal(context, 0), 2), best(marginal(context, 1), 2), best(marginal(context, 2), 1)];
  const [tokens, parents] = [[], []];
  let open = [-1];
  for (const words of heads) {
    open = open.flatMap((parent) => words.map((token) => (tokens.push(token), parents.push(parent), tokens.length - 1)));
  }
  return { tokens, parents, says: "Three heads guess the next three places at once. None of them knows what the others said, so every word of one is tried after every word of the one before." };
}

/** A tree that grows where it is surest. */
function eagle(context) {
  const law = near(0.8);
  const [tokens, parents, chances] = [[], [], []];
  const wordsTo = (node) => (node < 0 ? [] : [...wordsTo(parents[node]), tokens[node]]);
  const candidates = new Map();
  const open = (node, chance) => {
    const found = law([...context, ...wordsTo(node)]);
    for (const token of best(found, 2)) candidates.set(`${node},${token}`, { node, token, chance: chance * found[token] });
  };
  open(-1, 1);
  while (tokens.length < 7) {
    const [key, { node, token, chance }] = [...candidates].reduce((a, b) => (b[1].chance > a[1].chance ? b : a));
    candidates.delete(key);
    tokens.push(token);
    parents.push(node);
    chances.push(chance);
    open(tokens.length - 1, chance);
  }
  return { tokens, parents, says: "The small net saw the target's hidden state, so it is sure at some places and not at others. It grows the tree where it is surest." };
}

/** Jacobi: guesses for the next places are corrected all at once, again and again; what came up is kept as a pool. */
function lookahead(context, memory) {
  memory.window ??= [0, 1, 2, 3].map((i) => (context.at(-1) + 3 * i) % WORDS.length);
  memory.pool ??= new Map();
  // one forward corrects the whole window; every row sees the old guesses before it
  const seen = [context.at(-1), ...memory.window];
  memory.window = memory.window.map((_, i) => best(target([...context, ...memory.window.slice(0, i)]))[0]);
  for (let i = 0; i + 2 < seen.length; i++) memory.pool.set(seen[i], [memory.window[i], best(target([...context, ...seen.slice(1, i + 1), memory.window[i]]))[0]]);
  const found = memory.pool.get(context.at(-1)) ?? [];
  return chainOf(found, found.length ? "The pool holds words that an earlier forward made on the side. Those that begin with the last word are the guesses." : "The pool has nothing that begins with the last word yet.");
}

/** The families that can be shown on the toy. */
export const ILLUSTRATIONS = {
  draft: () => illustrate((context) => chainOf(stepwise(drafter, 4)(context), "The small model says word after word. It saw the whole text, but it knows less than the target.")),
  ngram: () => illustrate(copying("The look-up")),
  suffix: () => illustrate(copying("The suffix tree")),
  medusa: () => illustrate(medusa),
  eagle: () => illustrate(eagle),
  lookahead: () => illustrate(lookahead),
  "early-exit": () => illustrate((context) => chainOf(stepwise(near(0.5), 3)(context), "The first layers of the target guess; the rest of its layers only check. No second model, but every guess costs those layers.")),
  list: () =>
    illustrate((context) => {
      const { matched, tokens } = copied(context, 2);
      if (tokens.length) return chainOf(tokens, `“${matched.map((token) => WORDS[token]).join(" ")}” stood there before: the look-up guesses.`);
      return chainOf(stepwise(drafter, 3)(context), "Nothing to copy here: the small model guesses.");
    }),
  translated: () =>
    illustrate((context) => {
      const tokens = stepwise(drafter, 3)(context);
      return chainOf(tokens, `The small model cuts words in another way. It said ${rejoined(tokens.map((token) => WORDS[token]))}; the text was cut anew into the target's own words.`);
    }),
};
