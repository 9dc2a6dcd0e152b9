// Lying bars: a row for each name, with one bar for each series, or one bar made of parts. The values stand beside them.

import { fill, h } from "hs/base/dom";
import { colourOf } from "hs/figures/charts/line";

/** An interval that ends beyond so many times the longest bar is cut at so many times it, so that the bars can be seen. */
const [DWARFED, CUT] = [4, 2.5];
const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "–");

/**
 * @param {{names: string[], series: {name: string, values: number[], ends?: [number, number][], colour?: string}[], stacked?: boolean,
 *   rule?: number}} options `ends` are those of each bar's interval; `rule` is a value to draw a dashed line at
 */
export function barChart({ names, series, stacked = false, rule }) {
  const legend = h("ul.chart-legend", { "aria-hidden": "true" }, series.length > 1 && series.map((each, i) => h("li", {}, h("span.bar-key", { class: lookOf(each, i), style: { "--hue": colourOf(each, i) } }), each.name)),
    rule !== undefined && h("li", {}, h("span.bar-key.rule"), `the line is ${short(rule)}`));
  const limit = stacked ? Math.max(...names.map((_, row) => sum(series, row)), 0) : limitOf(series, rule);
  const share = (value) => `${(100 * Math.max(0, Math.min(1, value / (limit || 1)))).toFixed(2)}%`;
  const rows = names.map((name, row) => h("div.bar-row", {}, h("div.bar-name", name),
    h("div.bar-lines", {}, stacked ? stackOf(series, row, share) : series.map((each, i) => barOf(each, i, row, share, limit, rule)))));
  return { element: h("div.bars", { "aria-hidden": "true" }, legend, rows) };
}

const lookOf = ({ colour }, i) => ((colour ? colour === "q" : i % 2) ? "hatched" : "");
const sum = (series, row) => series.reduce((total, { values }) => total + (values[row] || 0), 0);

function limitOf(series, rule) {
  const longest = Math.max(0, ...series.flatMap(({ values }) => values).filter(Number.isFinite));
  const farthest = Math.max(longest, ...series.flatMap(({ ends = [] }) => ends.map(([, high]) => high)).filter(Number.isFinite));
  return Math.max(rule ?? 0, longest > 0 && farthest > DWARFED * longest ? CUT * longest : farthest) * 1.02;
}

function barOf(each, i, row, share, limit, rule) {
  const { values, ends } = each;
  const [value, [low, high] = []] = [values[row], ends?.[row]];
  const known = Number.isFinite(low) && Number.isFinite(high);
  return h("div.bar-line", {},
    h("div.bar-track", {},
      h("div.bar-fill", { class: lookOf(each, i), style: { "--hue": colourOf(each, i), width: share(value || 0) } }),
      known && h("div.bar-whisker", { class: high > limit ? "cut" : "", style: { left: share(low), right: `calc(100% - ${share(high)})` } }),
      rule !== undefined && h("div.bar-rule", { style: { left: share(rule) } })),
    h("div.bar-value", {}, h("b", short(value)), known && h("span.soft", ` ${short(low)} to ${short(high)}`)));
}

function stackOf(series, row, share) {
  const parts = series.map((each, i) => ({ name: each.name, value: each.values[row] || 0, look: { class: lookOf(each, i), hue: colourOf(each, i) } })).filter(({ value }) => value > 0);
  return h("div.bar-line.stacked", {},
    h("div.bar-track", {}, parts.map(({ value, look }) => h("div.bar-fill", { class: look.class, style: { "--hue": look.hue, width: share(value) } }))),
    h("div.bar-value", {}, h("b", short(sum(series, row))), h("span.soft", ` ${parts.map(({ name, value }) => `${name}: ${short(value)}`).join(" · ")}`)));
}
