// One draft and one set of uniform draws, judged by the rule of 2023 and by block verification, side by side.

import { append, fill, h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { fractions } from "hs/algorithm/arithmetic";
import { fraction } from "hs/algorithm/rational";
import { blockRule, chain, chainRule, uniforms } from "hs/algorithm/rules";
import { slider } from "hs/figures/controls";
import { SMALL, short } from "hs/lessons/chapters/04-nothing-changes/two-distributions";

const WORDS = SMALL.words;
const P = fractions(SMALL.p);
const Q = fractions(SMALL.q);
/** In place of a draw: the bonus stays a distribution in this picture. */
const NOTHING = () => -1;

/** Both verdicts on a draft of the small example with given uniform draws. */
export function bothRules(tokens, numbers) {
  const draft = chain(tokens);
  const [p, q] = [[...tokens, 0].map(() => P), tokens.map(() => Q)];
  const accept = uniforms(numbers.map((u) => fraction(u)));
  return { classic: chainRule(draft, p, q, accept, NOTHING), block: blockRule(draft, p, q, accept, NOTHING) };
}

/**
 * The table of both rules, with a slider for each uniform draw.
 *
 * @param {number[]} tokens the draft @param {number[]} start the uniform draws to begin with
 * @returns {{element: HTMLElement, uniforms: {value: number}[], verdicts: () => object, show: (until: number) => void}}
 *   `show` hides what comes after a step: 0 draft, 1 classic, 2 weights, 3 block
 */
export function twoRules(tokens, start, onChange = () => {}) {
  const numbers = start.map((u) => signal(u));
  const table = h("table.two-rules");
  const sliders = numbers.map((u, i) =>
    slider({ label: `u ${i + 1}, ${WORDS[tokens[i]]}`, value: u, min: 0.05, max: 0.95, step: 0.05, format: (x) => fixed(x, 2) }),
  );
  let until = 3;
  const verdicts = () => bothRules(tokens, numbers.map((u) => u.value.toFixed(2)));
  const draw = () => {
    fill(table, rowsOf(tokens, numbers.map((u) => u.value), verdicts()));
    for (const row of table.querySelectorAll("[data-step]")) row.classList.toggle("veiled", Number(row.dataset.step) > until);
    onChange();
  };
  watch(numbers, draw);
  const show = (step) => {
    until = step;
    draw();
  };
  return { element: h("div", {}, h("div.scroll.bare", {}, table), h("div.uniform-sliders", {}, sliders)), uniforms: numbers, verdicts, show };
}

function rowsOf(tokens, numbers, { classic, block }) {
  const judged = new Map(classic.steps.map((step) => [step.node, step]));
  const looked = new Map(block.steps.map((step) => [step.node, step]));
  const ratio = (token) => short(P[token].over(Q[token]));
  const mark = (step, other) => (step ? h(step.accepted ? "span.yes" : "span.no", step.accepted ? "✓" : "✗") : h("span.soft", other));
  const each = (make) => tokens.map((token, i) => append(h("td"), make(token, i)));
  const row = (step, name, cells) => h("tr", { data: { step } }, append(h("th", { scope: "row" }), name), cells);
  const group = (step, words) => h("tr.group", { data: { step } }, h("th", { scope: "rowgroup", colspan: tokens.length + 1 }, words));
  const result = (step, verdict) => [
    row(step, "comes out", each((token, i) => h(`span.tok.${i < verdict.accepted ? "accepted" : "refused"}`, WORDS[token]))),
    h("tr", { data: { step } }, h("th", { scope: "row" }, "and then"), h("td", { colspan: tokens.length }, `a ${verdict.kind} from [${verdict.distribution.map(short).join(", ")}]`)),
  ];
  return [
    h("thead", {}, h("tr", {}, h("th"), tokens.map((token, i) => h("th", { scope: "col" }, `guess ${i + 1}`)))),
    h("tbody", {}, row(0, "the guess", each((token) => h("strong", WORDS[token]))), row(0, "p/q", each(ratio)), row(0, "uniform draw u", each((_, i) => fixed(numbers[i], 2)))),
    h(
      "tbody",
      {},
      group(1, "The rule of 2023, from the left: the first refusal ends it"),
      row(1, "kept if u is below", each((token) => short(fraction(1).less(P[token].over(Q[token])) ? fraction(1) : P[token].over(Q[token])))),
      row(1, "so", each((_, i) => mark(judged.get(i), "–"))),
      result(1, classic),
    ),
    h(
      "tbody",
      {},
      group(2, "Block verification: weights from the left, uniform draws from the right"),
      row(2, "weight π", each((_, i) => short(block.weights[i + 1]))),
      row(3, "kept if u is below", each((_, i) => short(block.chances[i + 1]))),
      row(3, "so", each((_, i) => mark(looked.get(i), i < block.accepted ? "with it" : "–"))),
      result(3, block),
    ),
  ];
}
