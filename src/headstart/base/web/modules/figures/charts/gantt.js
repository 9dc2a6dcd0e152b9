// Lanes of time: who is busy from when to when, and with what. Kinds differ by colour and by pattern.

import { fill, h, svg } from "hs/base/dom";
import { sized } from "hs/figures/sized";
import { ticksOf } from "hs/figures/charts/scale";

const LANE = 36;
const NAME = 26;
let number = 0;

/** Looks that are hatched, each in its own colour, as in the legend. */
const HATCHED = ["draft", "prefill", "miss"];
/** Kinds that have a look of their own; others take the look of "other". */
export const KINDS = ["draft", "verify", "distribution", "commit", "plain", "prefill", "wait", "hit", "miss", "other"];

/**
 * @param {{lanes: {name: string, blocks: {from: number, to: number, kind: string, label?: string, words?: string[]}[]}[], unit: string,
 *   end?: number, legend?: boolean, names?: Record<string, string>}} options `end` is the time at the right edge; `names`
 *   are what the legend calls the kinds; `words` say what a block is to who points at it
 */
export function gantt({ lanes, unit, end, legend = true, names = {} }) {
  const now = { lanes, unit, end };
  const id = `gantt-${++number}`;
  const keys = h("ul.chart-legend", { "aria-hidden": "true" });
  const drawing = sized(() => now.lanes.length * (LANE + NAME) + 36, (width) => draw(now, width, id));
  const element = h("div.gantt", {}, keys, drawing.element);
  const set = (changes) => {
    Object.assign(now, changes);
    const kinds = [...new Set(now.lanes.flatMap(({ blocks }) => blocks.map(({ kind }) => kind)))];
    fill(keys, legend && kinds.map((kind) => h("li", {}, h(`span.gantt-key.${lookOf(kind)}`), names[kind] ?? kind)));
    drawing.redraw();
  };
  set({});
  const places = () => {
    const x = acrossOf(now, drawing.element.clientWidth);
    return now.lanes.flatMap(({ blocks }, i) => blocks.map(({ from, to, words }) => ({ x: x((from + to) / 2), y: i * (LANE + NAME) + NAME + LANE / 2, words: words ?? [] })));
  };
  return { element, set, drawing: drawing.element, places };
}

const lastOf = ({ lanes, end }) => end ?? Math.max(1e-9, ...lanes.flatMap(({ blocks }) => blocks.map(({ to }) => to)));
const acrossOf = (now, width) => (time) => (time / lastOf(now)) * (width - 2) + 1;

const lookOf = (kind) => (KINDS.includes(kind) ? kind : "other");

function draw(now, width, id) {
  const { lanes, unit } = now;
  const [last, x] = [lastOf(now), acrossOf(now, width)];
  const bottom = lanes.length * (LANE + NAME) + 8;
  return [
    svg("defs", {}, HATCHED.map((look) => svg("pattern", { id: `${id}-${look}`, width: 7, height: 7, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      svg(`line.hatch-line.${look}`, { x1: 0, x2: 0, y1: 0, y2: 7 })))),
    ...lanes.flatMap(({ name, blocks }, i) => {
      const y = i * (LANE + NAME);
      return [
        svg("text.soft", { x: 0, y: y + 20 }, name),
        svg("line.grid-line", { x1: 0, x2: width, y1: y + NAME + LANE, y2: y + NAME + LANE }),
        ...blocks.flatMap((block) => blockOf(block, x, y + NAME, id)),
      ];
    }),
    ...ticksOf({ min: 0, max: last }, Math.max(2, Math.floor(width / 110))).filter((tick) => x(tick) < width - 24 - 7 * unit.length).map((tick) =>
      svg("text.soft", { x: x(tick), y: bottom + 18, "text-anchor": tick === 0 ? "start" : "middle" }, tick)),
    svg("text.soft", { x: width, y: bottom + 18, "text-anchor": "end" }, unit),
  ];
}

function blockOf({ from, to, kind, label }, x, y, id) {
  const wide = Math.max(1.5, x(to) - x(from) - 1);
  const place = { x: x(from), y: y + 3, width: wide, height: LANE - 6, rx: Math.min(4, wide / 2) };
  const look = lookOf(kind);
  return [
    svg(`rect.block.${look}`, place),
    HATCHED.includes(look) && svg("rect", { ...place, fill: `url(#${id}-${look})` }),
    label && wide > 7.5 * label.length + 8 && svg("text.block-label", { x: x(from) + wide / 2, y: y + LANE / 2 + 5, "text-anchor": "middle" }, label),
  ];
}
