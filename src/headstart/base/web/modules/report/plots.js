// From what a report has to show (report/charts.py) to a chart that shows it.

import { barChart, colourMap, gantt, lineChart } from "hs/figures/charts";

/** Points from which on a chart of lines can be looked at in parts. */
const LONG = 60;
/** Points up to which each one is marked on its line. */
const FEW = 24;

/**
 * @param {"lines"|"bars"|"map"|"lanes"} kind
 * @returns {{element, drawing?, places?, set?, up?: string, across?: string, long?: number}} a chart, the words of its
 *   axes, which the page sets as text so that long ones wrap, and its points where they are enough to look closer
 */
export const plotOf = (kind, content) => ({ lines, bars, map, lanes })[kind](content);

function lines({ x, y, series, marks = [], rule, diagonal, log = {}, ticks, shares }) {
  const all = series.flatMap(({ points }) => points).filter(([, b]) => Number.isFinite(b) && !(log.y && b <= 0));
  const xs = all.map(([a]) => a).filter((a) => !log.x || a > 0);
  const bands = series.flatMap(({ band = [] }) => band.flatMap(([, low, high]) => [low, high])).filter((value) => Number.isFinite(value) && !(log.y && value <= 0));
  const ys = [...all.map(([, b]) => b), ...bands, ...marks.map((mark) => mark.y), ...(rule === undefined ? [] : [rule]), ...(ticks ? Object.values(ticks) : [])];
  const across = { label: "", words: x, log: log.x, ...padded(xs, log.x), ...ticksFor(xs, log.x) };
  const up = { label: "", words: y, log: log.y, ...(shares ? { min: 0, max: 1 } : padded(ys, log.y, { zero: !log.y })), ...named(ticks) };
  const chart = lineChart({
    x: across, y: up, diagonal, marks, height: 320, rule: rule === undefined ? undefined : { y: rule },
    series: series.map((each) => ({ ...each, name: series.length > 1 ? each.name : "", points: each.points.map(([a, b, ...words]) => [a, b ?? NaN, ...words]),
      beads: each.beads ?? each.points.length <= FEW })),
  });
  const most = Math.max(0, ...series.map(({ points }) => points.length));
  return { ...chart, up: y, across: x, axis: across, series, long: most >= LONG && !log.x && !diagonal ? most : 0 };
}

const counts = (xs) => xs.length > 0 && xs.every(Number.isInteger) && Math.max(...xs) - Math.min(...xs) <= 20;
const distinct = (xs) => [...new Set(xs)].sort((a, b) => a - b);
/** A logarithmic axis of few values names them; one that counts has no halves. */
function ticksFor(xs, log) {
  if (log) return distinct(xs).length <= FEW ? { ticks: distinct(xs) } : {};
  return counts(xs) ? { ticks: whole(xs) } : {};
}
const whole = (xs) => Array.from({ length: Math.max(...xs) - Math.min(...xs) + 1 }, (_, i) => Math.min(...xs) + i);
/** Ticks that have names: {"P50": 0.5}. */
function named(ticks) {
  if (!ticks) return {};
  const names = new Map(Object.entries(ticks).map(([name, value]) => [value, name]));
  return { ticks: [...names.keys()], format: (value) => names.get(value) ?? String(value) };
}

/** An axis around these values, with a little room; from 0 on where that is not far. */
function padded(values, log = false, { zero = false } = {}) {
  const [least, most] = values.length ? [Math.min(...values), Math.max(...values)] : [log ? 1 : 0, log ? 10 : 1];
  if (log) return { min: least / (least === most ? 2 : (most / least) ** 0.03), max: most * (least === most ? 2 : (most / least) ** 0.03) };
  // values that are nearly the same must not look as if they were not
  const span = Math.max(most - least, zero ? 0.1 * Math.max(Math.abs(least), Math.abs(most)) : 0) || Math.abs(most) || 1;
  const [low, high] = [(least + most - span) / 2, (least + most + span) / 2];
  return { min: zero && least >= 0 && least <= 0.35 * most ? 0 : low - 0.04 * span, max: high + 0.04 * span };
}

const bars = ({ names, series, stacked, rule, y, x }) => ({ ...barChart({ names, series, stacked, rule }), up: x ? `${y}, by ${x}` : y });

const map = ({ x, y, z, xs, ys, values, middle, marks }) => ({
  ...colourMap({ x: { label: x, values: xs }, y: { label: y, values: ys }, z, values: values.map((line) => line.map((value) => value ?? NaN)), middle, marks,
    height: Math.max(160, Math.min(360, 60 + 28 * ys.length)) }),
  up: y, across: x,
});

function lanes({ lanes: all, unit, names }) {
  return gantt({ lanes: all, unit, names });
}
