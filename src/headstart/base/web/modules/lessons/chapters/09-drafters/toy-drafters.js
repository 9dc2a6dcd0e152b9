// Small true drafters on the ten words: each guesses as its kind does, and the walk judges with the target's own words.

import { rejoined } from "hs/lessons/chapters/09-drafters/pieces";
import { Noise, Purpose } from "hs/algorithm/noise";
import { makeDraft, walk } from "hs/algorithm/rules";
import { WORDS, drafter, target, tokensOf } from "hs/algorithm/toy";

const SEED = 7;
const ROUNDS = 7;
const SHARPNESS = 10;
const START = tokensOf("the cat sat on the mat");
const AGAIN = tokensOf("the dog sat on the mat the dog ran on the red mat the dog sat on the red mat the cat sat on the red mat a cat ran");
const CIRCLE = tokensOf("the cat sat on a red mat");

const best = (distribution, count = 1) => distribution.map((_, i) => i).sort((a, b) => distribution[b] - distribution[a]).slice(0, count);
const certain = (token) => WORDS.map((_, i) => (i === token ? 1 : 0));
const noise = new Noise(SEED);

/** Targets to guess for: the toy itself, and two that say what such drafters are good at. */
const TOY = {
  prompt: START,
  distribution: target,
  own: (distribution, position) => noise.draw(distribution.map((x) => x ** SHARPNESS), position, Purpose.TOKEN),
  how: "the toy target, which speaks at temperature 1/10",
};
const RETOLD = {
  prompt: START,
  distribution: (context) => certain(AGAIN[context.length - START.length] ?? 0),
  own: (distribution) => best(distribution)[0],
  how: "a target that tells the sentence again and again with a word changed, as in an edit",
};
const CIRCLING = {
  prompt: CIRCLE,
  distribution: (context) => certain(CIRCLE[(CIRCLE.indexOf(context.at(-1)) + 1) % CIRCLE.length]),
  own: (distribution) => best(distribution)[0],
  how: "a target that goes round in a circle",
};

/**
 * A run of a drafter: rounds with a tree, what became of each node, and a remark.
 * @param {(context: number[], memory: object) => {tokens: number[], parents: number[], says: string}} draftOf
 */
export function illustrate(draftOf, world = TOY) {
  const rounds = [];
  const memory = {};
  let context = [...world.prompt];
  for (let i = 0; i < ROUNDS; i++) {
    const { tokens, parents, says } = draftOf(context, memory);
    const draft = makeDraft(tokens, parents);
    const distributions = [context, ...tokens.map((_, node) => [...context, ...draft.path(node).map((each) => tokens[each])])].map(world.distribution);
    const at = context.length;
    const verdict = walk(draft, distributions, (distribution, depth) => world.own(distribution, at + depth));
    rounds.push({ root: WORDS[context.at(-1)], nodes: nodesOf(draft, verdict), path: verdict.path, emitted: verdict.emitted.map((token) => WORDS[token]),
      accepted: verdict.accepted, kind: verdict.kind, says });
    context = [...context, ...verdict.emitted];
  }
  return { prompt: world.prompt.map((token) => WORDS[token]), rounds, how: world.how };
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

/** Word by word from a distribution of its own. */
function stepwise(distributionOf, count) {
  return (context) => {
    const tokens = [];
    for (let i = 0; i < count; i++) tokens.push(best(distributionOf([...context, ...tokens]))[0]);
    return tokens;
  };
}

/** Part of the way from the small model's distribution to the target's: what a drafter knows that looks into the target. */
const near = (share) => (context) => {
  const rough = drafter(context);
  return target(context).map((x, i) => share * x + (1 - share) * rough[i]);
};

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
    return chainOf(tokens, matched.length ? `“${words}” was in the text before. ${name} copies what followed it then.` : "Nothing like this was in the text before: no guess, and no cost.");
  };
}

/** The distribution of the word `ahead` places on, when the words between are not known: what a perfect head would learn. */
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
  const distribution = WORDS.map(() => 0);
  for (const [key, chance] of contexts) target([...context, ...(key ? key.split(",").map(Number) : [])]).forEach((x, token) => (distribution[token] += chance * x));
  return distribution;
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
  const distribution = near(0.8);
  const [tokens, parents, chances] = [[], [], []];
  const wordsTo = (node) => (node < 0 ? [] : [...wordsTo(parents[node]), tokens[node]]);
  const candidates = new Map();
  const open = (node, chance) => {
    const found = distribution([...context, ...wordsTo(node)]);
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
  return { tokens, parents, says: "The small net saw the target’s hidden state, so it is sure at some places and not at others. It grows the tree where it is surest." };
}

/** Jacobi: guesses for the next places are corrected all at once, again and again; what came up is kept as a pool. */
function lookahead(context, memory) {
  memory.window ??= [1, 4, 2, 5].map((i) => context[i]);
  memory.pool ??= new Map();
  const found = memory.pool.get(context.at(-1)) ?? [];
  // the same forward corrects the whole window for later rounds; every row sees the old guesses before it
  const old = [context.at(-1), ...memory.window];
  const fresh = old.map((_, i) => best(CIRCLING.distribution([...context, ...memory.window.slice(0, i)]))[0]);
  for (let i = 0; i + 1 < fresh.length; i++) memory.pool.set(old[i], fresh.slice(i, i + 3));
  memory.window = fresh.slice(1);
  return chainOf(found, found.length ? "The pool holds words that an earlier forward made on the side. Those that followed the last word there are the guesses." : "The pool has nothing that begins with the last word yet.");
}

/** The families that can be shown on the toy. */
export const ILLUSTRATIONS = {
  draft: () => illustrate((context) => chainOf(stepwise(drafter, 4)(context), "The small model says word after word. It saw the whole text, but it knows less than the target.")),
  ngram: () => illustrate(copying("The look-up"), RETOLD),
  suffix: () => illustrate(copying("The suffix look-up"), RETOLD),
  medusa: () => illustrate(medusa),
  eagle: () => illustrate(eagle),
  lookahead: () => illustrate(lookahead, CIRCLING),
  "early-exit": () => illustrate((context) => chainOf(stepwise(near(0.5), 3)(context), "The first layers of the target guess; the rest of its layers only check. No second model, but every guess costs those layers.")),
  list: () =>
    illustrate((context) => {
      const { matched, tokens } = copied(context, 2);
      if (tokens.length) return chainOf(tokens, `“${matched.map((token) => WORDS[token]).join(" ")}” was there before: the look-up guesses.`);
      return chainOf(stepwise(drafter, 3)(context), "Nothing to copy here: the small model guesses.");
    }, RETOLD),
  translated: () =>
    illustrate((context) => {
      const tokens = stepwise(drafter, 3)(context);
      return chainOf(tokens, `The small model cuts words in another way. It said ${rejoined(tokens.map((token) => WORDS[token]))}; the text was split again into the target’s own words.`);
    }),
};
