// Lines and points over two axes, with rings on points and rules across, each with its words.

import { fill, h, svg } from "hs/base/dom";
import { linesOf, scaleOf, thinned, ticksOf, written } from "hs/figures/charts/scale";
import { sized } from "hs/figures/sized";

const COLOURS = ["p", "q", "r", "good", "bad", "soft"];
const DASHES = ["", "7 4", "2 4", "10 3 2 3", "5 2", "1 3"];
const MARGIN = { top: 32, right: 16, bottom: 44, left: 48 };

/**
 * @typedef {import("hs/figures/charts/scale").Axis} Axis
 * @typedef {{name: string, points: [number, number, string?][], dash?: boolean|string, mark?: boolean, colour?: string,
 *   dots?: boolean, beads?: boolean, band?: [number, number, number][]}} Series
 *   `dash` sets a line apart without colour; `mark` makes it thicker; `dots` draws the points, not the line, `beads` draws
 *   both; `band` is the area between a low and a high; a point may have words of its own; NaN breaks a line
 * @param {{x: Axis, y: Axis, series: Series[], ring?: [number, number], rule?: {x?: number, y?: number, label?: string},
 *   marks?: {x: number, y: number, text: string}[], diagonal?: boolean, height?: number}} options `rule` may be a list
 * @returns {{element, set, places}} `places` are the points as they are drawn, in px of the drawing, with their words
 */
export function lineChart({ x, y, series, ring, rule, marks, diagonal, height = 280 }) {
  const now = { x, y, series, ring, rule, marks, diagonal };
  const legend = h("ul.chart-legend", { "aria-hidden": "true" });
  let places = [];
  const drawing = sized(height, (width, tall) => {
    const frame = frameOf(now, width, tall);
    places = now.series.flatMap((each) => placesOf(each, now, frame));
    return draw(now, frame);
  });
  const element = h("div.chart", {}, legend, drawing.element);
  const set = (changes) => {
    Object.assign(now, changes);
    fill(legend, keysOf(now.series));
    drawing.redraw();
  };
  set({});
  return { element, set, drawing: drawing.element, places: () => places };
}

export const colourOf = ({ colour }, i) => `var(--${colour ?? COLOURS[i % COLOURS.length]})`;
const dashOf = ({ dash }, i) => (typeof dash === "string" ? dash : dash ? "7 4" : dash === false ? "" : DASHES[(i + Math.floor(i / COLOURS.length)) % DASHES.length]);

function keysOf(series) {
  return series.map((each, i) => each.name && h("li", {}, svg("svg", { width: 28, height: 12, "aria-hidden": "true" },
    each.dots ? dot(14, 6, each, i)
      : svg("line", { x1: 0, x2: 28, y1: 6, y2: 6, stroke: colourOf(each, i), "stroke-width": 2.5, "stroke-dasharray": dashOf(each, i) })), each.name));
}

/** Where the axes are, and what leads from values to px. */
function frameOf({ x, y }, width, tall) {
  const yTicks = y.ticks ?? ticksOf(y);
  const left = Math.max(MARGIN.left, ...yTicks.map((tick) => 14 + 7.5 * written(y, tick).length));
  // an axis without a label needs no room for one
  const [x0, x1, y0, y1] = [left, width - MARGIN.right, tall - MARGIN.bottom + (x.label ? 0 : 18), MARGIN.top - (y.label ? 0 : 20)];
  const up = scaleOf(y, y0, y1);
  const [low, high] = [Math.min(y.min, y.max), Math.max(y.min, y.max)];
  return { x0, x1, y0, y1, tall, yTicks, at: scaleOf(x, x0, x1), up: (value) => up(Math.max(low, Math.min(high, value))) };
}

const insideOf = ({ x }) => ([a, b]) => a >= x.min - 1e-9 && a <= x.max + 1e-9 && Number.isFinite(b);

function placesOf({ name, points }, { x, y, ...now }, { at, up }) {
  return points.filter(insideOf({ x, ...now })).map(([a, b, words]) => ({
    x: at(a), y: up(b), words: [words, name, `${x.words ?? x.label} ${written({}, a)}`, `${y.words ?? y.label} ${Number(b.toPrecision(4))}`].filter(Boolean),
  }));
}

function draw(now, frame) {
  const { x, y, series, ring, rule, marks, diagonal } = now;
  const { x0, x1, y0, y1, tall, at, up, yTicks } = frame;
  const rules = [rule ?? []].flat().map((each) => ruleOf(each, frame));
  const both = [Math.max(x.min, y.min), Math.min(x.max, y.max)];
  return [
    ...yTicks.flatMap((tick) => [
      svg("line.grid-line", { x1: x0, x2: x1, y1: up(tick), y2: up(tick) }),
      svg("text.soft", { x: x0 - 8, y: up(tick) + 4, "text-anchor": "end" }, written(y, tick)),
    ]),
    svg("line.axis", { x1: x0, x2: x1, y1: y0, y2: y0 }),
    ...thinned(x.ticks ?? ticksOf(x), at, 44).map((tick) => svg("text.soft", { x: at(tick), y: y0 + 18, "text-anchor": "middle" }, written(x, tick))),
    svg("text.soft", { x: x1, y: tall - 4, "text-anchor": "end" }, x.label),
    svg("text.soft", { x: 0, y: 12 }, y.label),
    diagonal && both[0] < both[1] && svg("line.rule", { x1: at(both[0]), y1: up(both[0]), x2: at(both[1]), y2: up(both[1]) }),
    ...rules.map(([line]) => line),
    ...series.map((each, i) => bandOf(each, i, frame)),
    ...series.flatMap((each, i) => seriesOf(each, i, now, frame)),
    ring && svg("circle.ring", { cx: at(ring[0]), cy: up(ring[1]), r: 8 }),
    ...rules.map(([, words]) => words), // above the lines, which would cross them out
    ...(marks ?? []).flatMap((mark) => markOf(mark, at(mark.x), up(mark.y), (x0 + x1) / 2, (y0 + y1) / 2)),
  ];
}

const joined = (points) => points.map((point) => point.map((v) => v.toFixed(1)).join(",")).join(" ");

function bandOf({ band, colour }, i, { at, up }) {
  const known = (band ?? []).filter((each) => each.every(Number.isFinite));
  if (!known.length) return null;
  const [low, high] = [1, 2].map((which) => known.map((each) => [at(each[0]), up(each[which])]));
  return svg("polygon", { points: joined([...low, ...high.reverse()]), fill: colourOf({ colour }, i), "fill-opacity": 0.18 });
}

function seriesOf(each, i, now, { at, up }) {
  const inside = insideOf(now);
  const places = (points) => points.map(([a, b]) => [at(a), up(b)]);
  const dots = () => places(each.points.filter(inside)).map(([a, b]) => dot(a, b, each, i));
  if (each.dots) return dots();
  // a line breaks where a value is not known; points beside the axis are left out without a break
  const runs = [[]];
  for (const point of each.points) {
    if (!Number.isFinite(point[1])) runs.push([]);
    else if (inside(point)) runs.at(-1).push(point);
  }
  return [...runs.filter((run) => run.length || runs.length === 1).map((run) => svg("polyline", { points: joined(places(run)), fill: "none", stroke: colourOf(each, i),
    "stroke-width": each.mark ? 3.5 : 2.25, "stroke-dasharray": dashOf(each, i), "stroke-linejoin": "round" })), ...(each.beads ? dots() : [])];
}

const SHAPES = [null, "M-4-4h8v8h-8z", "M0-6L6 0L0 6L-6 0z", "M0-6L6 5H-6z", "M-5-2h3v-3h4v3h3v4h-3v3h-4v-3h-3z", "M0 6L6-5H-6z"];

/** Points of each series have a shape of their own. */
function dot(x, y, { colour }, i) {
  const look = { fill: colourOf({ colour }, i), class: "dot" };
  const shape = SHAPES[i % SHAPES.length];
  return shape ? svg("path", { ...look, d: shape, transform: `translate(${x.toFixed(1)} ${y.toFixed(1)})` }) : svg("circle", { ...look, cx: x, cy: y, r: 4 });
}

/** A ring and its words, on the side that has more room. */
export function markOf({ text }, x, y, middleX, middleY) {
  const [right, above] = [x <= middleX, y >= middleY];
  const lines = linesOf(text);
  const top = above ? y - 12 - 16 * (lines.length - 1) : y + 22;
  return [svg("circle.ring", { cx: x, cy: y, r: 7 }), ...lines.map((line, i) =>
    svg("text.rule-label", { x: x + (right ? 10 : -10), y: top + 16 * i, "text-anchor": right ? "start" : "end" }, line))];
}

function ruleOf({ x, y, label }, { at, up, x0, x1, y0, y1 }) {
  const place = x !== undefined ? { x1: at(x), x2: at(x), y1: y0, y2: y1 } : { x1: x0, x2: x1, y1: up(y), y2: up(y) };
  const right = x !== undefined && at(x) > (x0 + x1) / 2;
  const words = x !== undefined ? { x: at(x) + (right ? -6 : 6), y: y1 + 12, "text-anchor": right ? "end" : "start" }
    : { x: x1, y: up(y) - 6, "text-anchor": "end" };
  return [svg("line.rule", place), label && svg("text.rule-label", words, label)];
}
