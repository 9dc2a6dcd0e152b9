// Counts or shares as columns; a bar across each says what was expected.

import { fill, h } from "hs/base/dom";

/**
 * @param {{bins: {label: string, value: number, expected?: number}[], height?: number, top?: number,
 *   format?: (value: number) => string, names?: [string, string]}} options `names` are those of value and expected
 */
export function histogram({ bins, height = 160, top, format = (value) => String(Number(value.toPrecision(3))), names = ["counted", "expected"] }) {
  const now = { bins, top };
  const plot = h("div.hist-plot", { style: { "--height": `${height}px` } });
  const legend = h("ul.chart-legend");
  const element = h("div.hist", { "aria-hidden": "true" }, legend, plot);
  const set = (changes) => {
    Object.assign(now, changes);
    const high = now.top ?? Math.max(1e-9, ...now.bins.flatMap(({ value, expected = 0 }) => [value, expected]));
    const y = (value) => `${Math.min(1, value / high) * height}px`;
    fill(plot, now.bins.map(({ label, value, expected }) => h("div.hist-bin", {},
      h("div.hist-area", {}, h("div.hist-bar", { style: { height: y(value) } }),
        expected !== undefined && h("div.hist-expected", { style: { bottom: y(expected) } })),
      h("span.hist-label", label), h("span.hist-value", format(value)))));
    fill(legend, now.bins.some(({ expected }) => expected !== undefined) &&
      [h("li", {}, h("span.hist-key"), names[0]), h("li", {}, h("span.hist-key.expected"), names[1])]);
  };
  set({});
  return { element, set };
}
