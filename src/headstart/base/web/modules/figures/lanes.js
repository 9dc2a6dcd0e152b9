// Two lanes of time, one below the other: what the target did, and what the drafter did meanwhile.

import { h, svg } from "hs/base/dom";
import { seconds } from "hs/base/format";
import { hatchOf } from "hs/figures/strip";
import { sized } from "hs/figures/sized";

const [LEFT, TOP, LANE, GAP, FOOT] = [66, 22, 26, 10, 26];
const HEIGHT = TOP + 2 * LANE + GAP + FOOT;
const ROWS = { target: TOP, drafter: TOP + LANE + GAP };
const [LEAST_MARK, LEAST_NUMBER] = [16, 26];
let number = 0;

const LEGEND = [
  ["plan", "scheduling and pacing"], ["wait", "the engine waits for a draft"], ["verify", "the target’s forward"],
  ["sample", "probabilities and the rule"], ["commit", "keeping what was accepted"],
  ["draft", "drafting for what may come"], ["now", "drafting what is waited for"],
];

/** What the colours and signs of the lanes mean. */
export const lanesLegend = () =>
  h("ul.legend.lanes-legend", { "aria-label": "What the parts of the lanes are" },
    LEGEND.map(([kind, words]) => h("li", h(`span.swatch.${kind}`, { "aria-hidden": "true" }), ` ${words}`)),
    h("li", h("span.lane-sign.ready", { "aria-hidden": "true" }, "✓"), " the draft was ready"),
    h("li", h("span.lane-sign.late", { "aria-hidden": "true" }, "✗"), " it was not"));

/**
 * @param {{label: string, onPick?: (index: number) => void}} options label: what the picture says, in words; onPick: a
 *   round was pressed. The picture is not reached by keyboard: whoever uses it has another way to choose a round.
 * @returns {{element: HTMLElement, set: (changes: {rounds?: object[], at?: number, shown?: number, label?: string}) => void}}
 *   rounds: of `lanesOf`; at: the chosen one's place; shown: how many rounds stand around it.
 */
export function lanes({ label, onPick }) {
  const hatch = `lanes-hatch-${++number}`;
  const state = { rounds: [], at: 0, shown: 5, edges: [] };
  const drawing = sized(HEIGHT, (width) => draw(state, width, hatch));
  const element = h("div.lanes", { role: "img", "aria-label": label }, drawing.element);
  if (onPick) {
    drawing.element.addEventListener("click", (event) => {
      const x = event.clientX - drawing.element.getBoundingClientRect().left;
      const found = state.edges.find(({ from, to }) => x >= from && x < to);
      if (found) onPick(found.index);
    });
  }
  const set = (changes) => {
    Object.assign(state, changes);
    if (changes.label !== undefined) element.setAttribute("aria-label", changes.label);
    drawing.redraw();
  };
  return { element, set };
}

/** The rounds that stand around the chosen one, and the time that they take. */
export function windowOf(rounds, at, shown) {
  const first = Math.max(0, Math.min(at - Math.floor(shown / 2), rounds.length - shown));
  const some = rounds.slice(first, first + shown);
  const last = some.at(-1);
  const next = rounds[first + some.length];
  return { some, from: some[0].from, to: next ? next.from : Math.max(last.to, ...last.drafter.map(({ to }) => to)) };
}

function draw(state, width, hatch) {
  state.edges = [];
  if (state.rounds.length === 0) return [];
  const { some, from, to } = windowOf(state.rounds, state.at, state.shown);
  const scale = (width - LEFT - 1) / (to - from || 1);
  const x = (time) => LEFT + scale * (Math.min(to, Math.max(from, time)) - from);
  state.edges = some.map(({ index }, i) => ({ index, from: x(some[i].from), to: i + 1 < some.length ? x(some[i + 1].from) : width }));
  const drafted = state.rounds.flatMap(({ drafter }) => drafter).filter((each) => each.to > from && each.from < to);
  return [
    hatchOf(hatch),
    ...some.map((round, i) => backOf(round, state, state.edges[i])),
    ...Object.entries(ROWS).map(([name, y]) => svg("text.lane-name", { x: 0, y: y + LANE / 2 + 5 }, name)),
    ...some.flatMap(({ target }) => target).map((each) => block(each, x, ROWS.target)),
    ...drafted.map((each) => block(each, x, ROWS.drafter, hatch)),
    ...some.map((round, i) => signOf(round, state.edges[i])),
    ...rulerOf(scale, width),
  ];
}

const backOf = ({ index }, state, { from, to }) =>
  svg(index === state.rounds[state.at]?.index ? "rect.lane-round.now" : "rect.lane-round", { x: from, y: 1, width: Math.max(0, to - from - 1), height: HEIGHT - FOOT + 2, rx: 3 });

function block({ kind, from, to }, x, y, hatch) {
  const [left, right] = [x(from), x(to)];
  const fill = kind === "ahead" ? { style: `fill: url(#${hatch})` } : {};
  return svg(`rect.lane-part.${kind}`, { x: left, y, width: Math.max(0.5, right - left), height: LANE, ...fill });
}

/** The round's number, and whether its draft was ready, above the two lanes. */
function signOf({ i, ready }, { from, to }) {
  const group = svg("g");
  const room = to - from;
  if (ready !== null && room >= LEAST_MARK) group.append(svg(`text.lane-sign.${ready ? "ready" : "late"}`, { x: from + 3, y: 16 }, ready ? "✓" : "✗"));
  if (room >= LEAST_NUMBER + LEAST_MARK) group.append(svg("text.lane-number", { x: from + 20, y: 16 }, String(i + 1)));
  return group;
}

/** A bar that says how long so much is: of 1, 2 or 5 times a power of ten, the longest that is not too wide. */
function rulerOf(scale, width) {
  const most = Math.min(160, (width - LEFT) / 2) / scale;
  const power = 10 ** Math.floor(Math.log10(most));
  const length = [5, 2, 1].map((each) => each * power).find((each) => each <= most);
  if (!length) return [];
  const [y, right] = [HEIGHT - 8, LEFT + scale * length];
  return [svg("path.lane-ruler", { d: `M${LEFT} ${y - 4}v8M${LEFT} ${y}H${right}M${right} ${y - 4}v8` }), svg("text.lane-number", { x: right + 6, y: y + 4 }, seconds(length))];
}
