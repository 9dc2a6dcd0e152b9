// A map of numbers over two axes: cells coloured by value, and the line where they turn from loss to gain.

import { h, svg } from "hs/base/dom";
import { markOf } from "hs/figures/charts/line";
import { thinned, written } from "hs/figures/charts/scale";
import { sized } from "hs/figures/sized";

const [LEFT, RIGHT, TOP, BOTTOM] = [52, 8, 8, 26];

/** How strong the colour of a cell is, from 0 to 1, on a scale of ratios: four times as fast and a quarter are full. */
export const strength = (value) => Math.min(1, Math.abs(Math.log(Math.max(value, 1e-9))) / Math.log(4));

/**
 * @param {{x: {label: string, values: number[]}, y: {label: string, values: number[]}, z: string, values: number[][],
 *   middle?: number, marks?: {x: number, y: number, text: string}[], height?: number}} options
 *   `values` by row, the first of which is at the bottom; `middle` is where loss turns to gain, and has no colour
 */
export function colourMap({ x, y, z, values, middle, marks = [], height = 340 }) {
  let places = [];
  const drawing = sized(height, (width, tall) => {
    const [wide, high] = [(width - LEFT - RIGHT) / x.values.length, (tall - TOP - BOTTOM) / y.values.length];
    const at = (column) => LEFT + (column + 0.5) * wide;
    const up = (row) => tall - BOTTOM - (row + 0.5) * high;
    places = values.flatMap((line, row) => line.map((value, column) => ({
      x: at(column), y: up(row), words: [`${z} ${Number(value.toPrecision(3))}`, `${x.label} ${written({}, x.values[column])}`, `${y.label} ${written({}, y.values[row])}`],
    })));
    return [
      ...values.flatMap((line, row) => line.map((value, column) => cellOf(value, { x: at(column) - wide / 2, y: up(row) - high / 2, width: wide, height: high }))),
      ...namesOf(y.values, up, 26).map((row) => svg("text.soft", { x: LEFT - 8, y: up(row) + 4, "text-anchor": "end" }, written({}, y.values[row]))),
      ...namesOf(x.values, at, 44).map((column) => svg("text.soft", { x: at(column), y: tall - BOTTOM + 18, "text-anchor": "middle" }, written({}, x.values[column]))),
      ...turning(values, middle).map((line) => svg("polyline.map-border", { points: line.map(([column, row]) => `${at(column).toFixed(1)},${up(row).toFixed(1)}`).join(" ") })),
      ...marks.flatMap((mark) => markOf(mark, at(between(x.values, mark.x)), up(between(y.values, mark.y)), (LEFT + width) / 2, tall / 2)),
    ];
  });
  const finite = values.flat().filter(Number.isFinite);
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const cellOf = (value, place) => {
    if (!Number.isFinite(value)) return null;
    const share = middle === undefined ? (value - least) / (most - least || 1) : strength(value / middle);
    return svg(`rect.map-cell.${middle === undefined || value > middle ? "faster" : "slower"}`, { ...place, "fill-opacity": share.toFixed(3) });
  };
  const element = h("div.chart", {}, legendOf(z, middle, least, most), drawing.element);
  return { element, drawing: drawing.element, places: () => places, stride: x.values.length };
}

function legendOf(z, middle, least, most) {
  const [low, high] = [least, most].map((value) => Number(value.toPrecision(3)));
  if (!Number.isFinite(low)) return null;
  const keys = middle === undefined ? [[`${z}: ${low} is pale, ${high} full colour`, "faster"]]
    : [[`below ${middle}`, "slower", low < middle], [`above ${middle}`, "faster", high > middle]].filter(([, , there]) => there);
  return h("ul.chart-legend", { "aria-hidden": "true" }, keys.map(([words, look]) => h("li", {}, h(`span.map-key.${look}`), words)),
    middle !== undefined && h("li", `${z} from ${low} to ${high}; full colour at ${4 * middle} and at ${middle / 4}`));
}

const namesOf = (values, at, gap) => thinned(values.map((_, i) => i), at, gap);

/** The place of a value among the middles of the cells, as a fraction of their numbers. */
function between(values, value) {
  const after = values.findIndex((each) => each >= value);
  if (after <= 0) return after < 0 ? values.length - 1 : 0;
  return after - 1 + (value - values[after - 1]) / (values[after] - values[after - 1]);
}

/** Lines of [column, row] along which the values pass `middle` within their columns; a column that is `middle` everywhere
 *  is no place where anything turns. */
function turning(values, middle) {
  if (middle === undefined) return [];
  const lines = [[]];
  for (let column = 0; column < values[0].length; column++) {
    const row = values.findIndex((line, i) => i > 0 && (values[i - 1][column] - middle) * (line[column] - middle) <= 0 && values[i - 1][column] !== line[column]);
    if (row < 0) lines.push([]);
    else lines.at(-1).push([column, row - 1 + (middle - values[row - 1][column]) / (values[row][column] - values[row - 1][column])]);
  }
  return lines.filter((line) => line.length > 1);
}
