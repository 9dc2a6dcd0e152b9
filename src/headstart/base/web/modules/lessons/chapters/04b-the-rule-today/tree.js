// A small tree of guesses, judged step by step: by traversal where its guesses were drawn, by the walk where not.

import { append, fill, h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { fractions, numbersOf } from "hs/algorithm/arithmetic";
import { Noise, Purpose } from "hs/algorithm/noise";
import { fraction } from "hs/algorithm/rational";
import { uniformOf, uniforms, makeDraft, traverse, walk } from "hs/algorithm/rules";
import { button, choice } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { draftTree } from "hs/figures/tree";
import { SMALL, short } from "hs/lessons/chapters/04-nothing-changes/two-distributions";

const WORDS = SMALL.words;
const P = fractions(SMALL.p);
const Q = fractions(SMALL.q);
/** The distribution of a second child once its elder sibling, cat, has been drawn: cat struck out. */
const Q_WITHOUT_CAT = fractions(["1/2", "0", "1/2"]);

/** Two guesses after the text, and one after each of them. */
const DRAFT = makeDraft([1, 0, 1, 1], [-1, -1, 0, 1]);
const DRAFTED = [Q, Q_WITHOUT_CAT, Q, Q];
const ROWS = [P, ...DRAFT.tokens.map(() => P)];
const START = 8;

const named = (node) => (node < 0 ? "the text so far" : `“${pathWords(node)}”`);
const pathWords = (node) => DRAFT.path(node).map((each) => WORDS[DRAFT.tokens[each]]).join(" ");
const distributionText = (distribution) => `[${distribution.map(short).join(", ")}]`;

/** The steps of a rule on the tree with the noise of a seed: {words, node, states, path}. */
export function stepsOf(rule, seed) {
  const noise = new Noise(seed);
  const draw = (distribution, depth) => noise.draw(numbersOf(distribution), depth, Purpose.TOKEN);
  if (rule === "walk") return walkSteps(walk(DRAFT, ROWS, draw));
  const numbers = DRAFT.depths.map((depth, node) => uniformOf(noise, 0, depth, node));
  const accept = uniforms(numbers.map((u) => fraction(u.toFixed(6))));
  return traverseSteps(traverse(DRAFT, ROWS, DRAFTED, accept, draw), numbers);
}

function traverseSteps(verdict, numbers) {
  const states = DRAFT.tokens.map(() => "");
  const found = [];
  const add = (node, words, path = []) => found.push({ node, words, states: [...states], path });
  const below = (node) => DRAFT.tokens.map((_, i) => i).filter((i) => DRAFT.path(i).includes(node));
  for (const step of verdict.steps) {
    const { event, node, weight } = step;
    if (event === "enter" && node < 0) add(node, "Begin at the text so far, with weight 1. Its children come first.");
    else if (event === "enter") add(node, `Go to ${named(node)}: its weight is its parent’s times p/q, at most 1: ${short(weight)}.`);
    else if (event === "uniform") {
      const u = fixed(numbers[node], 2);
      const turn = DRAFT.children[node + 1].length ? `What follows ${named(node)} has had its turn.` : `No guess follows ${named(node)}.`;
      for (const each of below(node)) states[each] = step.accepted ? states[each] : each === node ? "refused" : "beyond";
      if (step.accepted) add(node, `${turn} Its uniform draw is ${u}, below its weight ${short(weight)}: it is kept, with all before it.`, DRAFT.path(node));
      else if (weight.isZero()) add(node, `Nothing of ${named(node)} is left: weight 0. It is refused without a uniform draw.`);
      else add(node, `${turn} Its uniform draw is ${u}, not below its weight ${short(weight)}: refused.`);
    } else if (event === "subtract") {
      const left = step.total.isZero() ? "nothing remains" : `what remains is ${distributionText(step.distribution)}, with weight ${short(weight)}`;
      add(node, `${named(step.child)} is refused. At ${named(node)}, what its distribution q covered is taken away from weight × p; ${left}.`);
    } else {
      for (const each of DRAFT.path(node)) states[each] = "accepted";
      add(node, `The last word is drawn from ${distributionText(step.distribution)}: “${WORDS[step.token]}”. Out comes “${verdict.emitted.map((token) => WORDS[token]).join(" ")}”.`, DRAFT.path(node));
    }
  }
  return found;
}

function walkSteps(verdict) {
  const states = DRAFT.tokens.map(() => "");
  const found = [{ node: -1, words: "The guesses were not drawn, so there is nothing to weigh. The target draws its own word at each place and looks whether a guess bears it.", states: [...states], path: [] }];
  for (const { node, token, child } of verdict.steps) {
    if (child !== null) {
      states[child] = "accepted";
      found.push({ node: child, words: `After ${named(node)} the target draws “${WORDS[token]}”. A guess says the same: go there.`, states: [...states], path: DRAFT.path(child) });
    } else {
      for (const each of DRAFT.children[node + 1]) states[each] = "refused";
      const why = DRAFT.children[node + 1].length ? "No guess there says so" : "There are no guesses further on";
      found.push({ node, words: `After ${named(node)} the target draws “${WORDS[token]}”. ${why}: it is the last word. Out comes “${verdict.emitted.map((each) => WORDS[each]).join(" ")}”.`, states: [...states], path: DRAFT.path(node) });
    }
  }
  return found;
}

/** The figure. */
export function treeFigure() {
  const rule = signal("traverse");
  const seed = signal(START);
  let steps = stepsOf(rule.value, seed.value);
  let at = steps.length - 1;
  const nodesNow = () => DRAFT.tokens.map((token, i) => ({ text: WORDS[token], parent: DRAFT.parents[i], state: steps[at].states[i], p: P[token].toNumber(), q: DRAFTED[i][token].toNumber() }));
  const tree = draftTree({ nodes: nodesNow(), path: [], root: "…", label: "Four guesses" });
  const words = h("p.step-words");
  const show = (i) => {
    at = Math.min(i, steps.length - 1);
    tree.set({ nodes: nodesNow(), path: steps[at].path, lit: DRAFT.path(steps[at].node), selected: steps[at].node });
    fill(words, steps[at].words);
  };
  const frame = figure({
    label: "A tree of four guesses, judged step by step",
    title: true,
    body: h("div", {}, tree.element, words),
    steps: { count: () => steps.length, show, words: (i) => steps[i].words, first: steps.length - 1 },
    controls: [
      choice({ label: "The guesses were", value: rule, options: [["traverse", "drawn from q"], ["walk", "not drawn (the likeliest)"]] }),
      button("Other uniform draws", () => (seed.value += 1), { quiet: true }),
    ],
    caption: append(h("span"), "p = [1/2, 3/10, 1/5] and q = [1/5, 3/5, 1/5] everywhere, for “the”, “cat” and “sat”; the bars in each box are p and q of its word. The second guess after the text was drawn from q without its elder sibling “cat”: [1/2, 0, 1/2]."),
    table: () => ({ columns: ["step", "what happens"], rows: steps.map((step, i) => [String(i + 1), step.words]) }),
  });
  watch([rule, seed], () => {
    steps = stepsOf(rule.value, seed.value);
    frame.go(steps.length - 1);
    frame.update();
  });
  return frame.element;
}
