// Rounds in a row: below, the time of each, split by what it was spent on; above, the tokens that it gave.

import { append, h, svg } from "hs/base/dom";
import { counted, percent, seconds } from "hs/base/format";

const PARTS = [
  ["plan", "scheduling and pacing"], ["draft", "drafting"], ["verify", "the target’s forward"], ["sample", "probabilities and the rule"],
  ["commit", "keeping what was accepted"],
];
const KINDS = { correction: "then a correction", bonus: "then a bonus", plain: "one token without a draft", read: "a part of the prompt was read" };
const [TOKENS, TIME, GAP, LEAST] = [44, 28, 2, 5];
let number = 0;

/** What the colours of the strip mean. */
export const stripLegend = () =>
  h("ul.legend.strip-legend", { "aria-label": "What the parts of a round are" }, PARTS.map(([part, words]) =>
    h("li", h(`span.swatch.${part}`, { "aria-hidden": "true" }), ` ${words}`)));

/** The pattern of what a drafter does, by the id that it is filled with. */
export const hatchOf = (id) =>
  svg("defs", {}, svg("pattern", { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch-back", width: 5, height: 5 }), svg("rect", { class: "hatch-line", width: 2, height: 5 })));

/** A round in words. */
export function roundWords(round, index) {
  const guesses = round.drafted ? `${counted(round.drafted, "guess", "guesses")}, ${round.accepted ?? Math.max(0, round.emitted - 1)} accepted, ` : "";
  const tokens = round.kind === "read" ? "" : `: ${counted(round.emitted, "token")}`;
  return `Round ${index + 1}: ${guesses}${KINDS[round.kind]}${tokens}, ${seconds(totalOf(round))}`;
}

/** Where the time of all rounds went. */
export function timeWords(rounds) {
  const all = rounds.reduce((sum, round) => sum + totalOf(round), 0);
  const [first, second] = PARTS.map(([part, words]) => [rounds.reduce((sum, round) => sum + round.seconds[part], 0) / all, words]).sort(([a], [b]) => b - a);
  const longest = rounds.reduce((best, round, i) => (totalOf(round) > totalOf(rounds[best]) ? i : best), 0);
  return `${counted(rounds.length, "round")} in ${seconds(all)}: ${percent(first[0])} of the time went to ${first[1]}, ${percent(second[0])} to ${second[1]}. The longest, round ${longest + 1}, took ${seconds(totalOf(rounds[longest]))}.`;
}

const totalOf = ({ seconds: { plan, draft, verify, sample, commit } }) => plan + draft + verify + sample + commit;

/**
 * @param {object} options
 * @param {{seconds: {plan: number, draft: number, verify: number, sample: number, commit: number}, emitted: number, drafted: number,
 *   accepted?: number, kind: "correction"|"bonus"|"plain"|"read"}[]} options.rounds
 * @param {number} options.at the chosen round.
 * @param {(index: number) => void} [options.onPick] a round was chosen, by pointer or by the arrow keys.
 * @returns {{element: HTMLElement, set: (changes: {rounds?: object[], at?: number}) => void}}
 */
export function roundStrip({ rounds = [], at = 0, onPick }) {
  const hatch = `hatch-${++number}`;
  const holder = h("div.strip-rounds");
  const element = h("div.round-strip", onPick ? { role: "slider", tabindex: "0", "aria-label": "Rounds", "aria-valuemin": "1" } : { role: "img" }, holder);
  const state = { rounds, at };
  let edges = [];

  function draw() {
    const room = element.clientWidth || 600;
    const whole = state.rounds.reduce((total, each) => total + totalOf(each), 0) || 1;
    const most = Math.max(1, ...state.rounds.map((each) => each.emitted));
    const width = Math.max(room, state.rounds.length * (LEAST + GAP));
    const share = (width - state.rounds.length * (LEAST + GAP)) / whole;
    edges = [];
    let x = 0;
    const blocks = state.rounds.map((round, index) => {
      const wide = LEAST + share * totalOf(round);
      const block = blockOf(round, index, x, wide, most);
      edges.push([x, x + wide]);
      x += wide + GAP;
      return block;
    });
    const picture = svg("svg", { width, height: TOKENS + TIME + 6, viewBox: `0 0 ${width} ${TOKENS + TIME + 6}`, "aria-hidden": "true" }, hatchOf(hatch), blocks);
    holder.replaceChildren(picture);
    mark();
  }

  function blockOf(round, index, x, wide, most) {
    const group = svg("g.strip-round", { class: index === state.at ? "now" : "", data: { index } });
    const unit = (TOKENS - 6) / most;
    const accepted = round.accepted ?? Math.max(0, round.emitted - 1);
    group.append(svg("rect.strip-back", { x: x - GAP / 2, y: 0, width: wide + GAP, height: TOKENS + TIME + 6 }));
    for (let token = 0; token < round.emitted; token++) {
      const origin = token < accepted ? "accepted" : round.kind;
      const height = Math.max(1.5, unit - 1.5);
      group.append(svg(`rect.strip-token.${origin}`, { x, y: TOKENS - (token + 1) * unit, width: wide, height, rx: Math.min(2, height / 2) }));
    }
    let from = x;
    for (const [part] of PARTS) {
      const length = (round.seconds[part] / (totalOf(round) || 1)) * wide;
      const fill = part === "draft" ? { style: `fill: url(#${hatch})` } : {};
      group.append(svg(`rect.strip-part.${part}`, { x: from, y: TOKENS + 3, width: length, height: TIME, ...fill }));
      from += length;
    }
    return group;
  }

  function mark() {
    for (const group of holder.querySelectorAll(".strip-round")) group.classList.toggle("now", Number(group.dataset.index) === state.at);
    const round = state.rounds[state.at];
    const words = round ? roundWords(round, state.at) : "No rounds";
    if (!onPick) return element.setAttribute("aria-label", `${counted(state.rounds.length, "round")}, their time and tokens`);
    element.setAttribute("aria-valuemax", String(Math.max(1, state.rounds.length)));
    element.setAttribute("aria-valuenow", String(state.at + 1));
    element.setAttribute("aria-valuetext", words);
    const edge = edges[state.at];
    if (edge && element.scrollWidth > element.clientWidth) {
      const [left, right] = [element.scrollLeft, element.scrollLeft + element.clientWidth];
      if (edge[0] < left || edge[1] > right) element.scrollLeft = edge[0] - element.clientWidth / 2;
    }
  }

  function pick(index) {
    const next = Math.max(0, Math.min(state.rounds.length - 1, index));
    state.at = next;
    mark();
    onPick(next);
  }

  if (onPick) {
    element.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const last = state.rounds.length - 1;
      const to = { ArrowRight: state.at + 1, ArrowUp: state.at + 1, ArrowLeft: state.at - 1, ArrowDown: state.at - 1,
        PageUp: state.at + 10, PageDown: state.at - 10, Home: 0, End: last }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      pick(to);
    });
    holder.addEventListener("click", (event) => {
      const x = event.clientX - holder.getBoundingClientRect().left;
      const index = edges.findIndex(([, right]) => x <= right + GAP);
      if (index >= 0) pick(index);
    });
  }

  new ResizeObserver(draw).observe(element);
  const set = (changes) => {
    const again = changes.rounds !== undefined;
    Object.assign(state, changes);
    if (again) draw();
    else mark();
  };
  append(element);
  draw();
  return { element, set };
}
