// Lines over two axes, with a ring on one point and a rule across, each with its words.

import { fill, h, svg } from "hs/base/dom";
import { sized } from "hs/figures/sized";

const COLOURS = ["p", "q", "r", "good", "bad", "soft"];
const DASHES = ["", "7 4", "2 4", "10 3 2 3", "5 2", "1 3"];
const MARGIN = { top: 32, right: 16, bottom: 44, left: 48 };

/**
 * @typedef {{label: string, min: number, max: number, ticks?: number[], log?: boolean, format?: (x: number) => string}} Axis
 * @typedef {{name: string, points: [number, number][], dash?: boolean|string, mark?: boolean, colour?: string, dots?: boolean}} Series
 *   `dash` sets a line apart without colour; `mark` makes it thicker; `dots` draws the points, not the line
 * @param {{x: Axis, y: Axis, series: Series[], ring?: [number, number], rule?: {x?: number, y?: number, label?: string},
 *   height?: number}} options `rule` may be a list
 */
export function lineChart({ x, y, series, ring, rule, height = 280 }) {
  const now = { x, y, series, ring, rule };
  const legend = h("ul.chart-legend", { "aria-hidden": "true" });
  const drawing = sized(height, (width, tall) => draw(now, width, tall));
  const element = h("div.chart", {}, legend, drawing.element);
  const set = (changes) => {
    Object.assign(now, changes);
    fill(legend, keysOf(now.series));
    drawing.redraw();
  };
  set({});
  return { element, set };
}

const colourOf = ({ colour }, i) => `var(--${colour ?? COLOURS[i % COLOURS.length]})`;
const dashOf = ({ dash }, i) => (typeof dash === "string" ? dash : dash ? "7 4" : dash === false ? "" : DASHES[i % DASHES.length]);

function keysOf(series) {
  return series.map((each, i) => each.name && h("li", {}, svg("svg", { width: 28, height: 12, "aria-hidden": "true" },
    each.dots ? svg("circle", { cx: 14, cy: 6, r: 4, fill: colourOf(each, i) })
      : svg("line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colourOf(each, i), "stroke-width": 2.5, "stroke-dasharray": dashOf(each, i) })), each.name));
}

function draw({ x, y, series, ring, rule }, width, tall) {
  const [x0, x1, y0, y1] = [MARGIN.left, width - MARGIN.right, tall - MARGIN.bottom, MARGIN.top];
  const scale = (axis, from, to) => {
    const f = axis.log ? Math.log : (value) => value;
    return (value) => from + ((f(value) - f(axis.min)) / (f(axis.max) - f(axis.min))) * (to - from);
  };
  const [at, up] = [scale(x, x0, x1), scale(y, y0, y1)];
  const inside = ([a, b]) => a >= x.min - 1e-9 && a <= x.max + 1e-9 && Number.isFinite(b);
  const clampY = (value) => Math.max(Math.min(y.min, y.max), Math.min(Math.max(y.min, y.max), value));
  const xTicks = thinned(x.ticks ?? ticksOf(x), at, 44);
  return [
    ...(y.ticks ?? ticksOf(y)).flatMap((tick) => [
      svg("line.grid-line", { x1: x0, x2: x1, y1: up(tick), y2: up(tick) }),
      svg("text.soft", { x: x0 - 8, y: up(tick) + 4, "text-anchor": "end" }, text(y, tick)),
    ]),
    svg("line.axis", { x1: x0, x2: x1, y1: y0, y2: y0 }),
    ...xTicks.map((tick) => svg("text.soft", { x: at(tick), y: y0 + 18, "text-anchor": "middle" }, text(x, tick))),
    svg("text.soft", { x: x1, y: tall - 4, "text-anchor": "end" }, x.label),
    svg("text.soft", { x: 0, y: 12 }, y.label),
    ...[rule ?? []].flat().flatMap((each) => ruleOf(each, { at, up, x0, x1, y0, y1 })),
    ...series.flatMap((each, i) => {
      const points = each.points.filter(inside).map(([a, b]) => [at(a), up(clampY(b))]);
      if (each.dots) return points.map(([a, b]) => svg("circle", { cx: a, cy: b, r: 4, fill: colourOf(each, i) }));
      return [svg("polyline", { points: points.map((point) => point.map((v) => v.toFixed(1)).join(",")).join(" "), fill: "none",
        stroke: colourOf(each, i), "stroke-width": each.mark ? 3.5 : 2.25, "stroke-dasharray": dashOf(each, i), "stroke-linejoin": "round" })];
    }),
    ring && svg("circle.ring", { cx: at(ring[0]), cy: up(clampY(ring[1])), r: 8 }),
  ];
}

function ruleOf({ x, y, label }, { at, up, x0, x1, y0, y1 }) {
  const place = x !== undefined ? { x1: at(x), x2: at(x), y1: y0, y2: y1 } : { x1: x0, x2: x1, y1: up(y), y2: up(y) };
  const right = x !== undefined && at(x) > (x0 + x1) / 2;
  const words = x !== undefined ? { x: at(x) + (right ? -6 : 6), y: y1 + 12, "text-anchor": right ? "end" : "start" }
    : { x: x1, y: up(y) - 6, "text-anchor": "end" };
  return [svg("line.rule", place), label && svg("text.rule-label", words, label)];
}

const text = (axis, value) => (axis.format ?? ((each) => String(Number(each.toPrecision(6)))))(value);

/** Round steps of 1, 2 or 5 between the ends of an axis; powers of ten where it is logarithmic. */
export function ticksOf({ min, max, log }, about = 5) {
  if (log) {
    const first = Math.ceil(Math.log10(min) - 1e-9);
    return Array.from({ length: Math.floor(Math.log10(max) + 1e-9) - first + 1 }, (_, i) => 10 ** (first + i));
  }
  const raw = (max - min) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const first = Math.ceil(min / step - 1e-9);
  return Array.from({ length: Math.floor(max / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Ticks with so many px between neighbours. */
function thinned(ticks, at, gap) {
  const kept = [];
  for (const tick of ticks) if (!kept.length || Math.abs(at(tick) - at(kept.at(-1))) >= gap * 0.8) kept.push(tick);
  return kept;
}
