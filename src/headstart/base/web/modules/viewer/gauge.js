// A coin on the line from 0 to 1, and the weight that it is compared with: below it keeps, beyond it does not.

import { h } from "hs/base/dom";
import { probability } from "hs/base/format";

/** @param {{coin: number|null, weight: number, accepted: boolean, name?: string}} options name: of the weight */
export function gauge({ coin, weight, accepted, name = "weight" }) {
  const words = `${name} ${probability(weight)}${coin === null ? "" : `, coin ${probability(coin)}`}: ${accepted ? "kept" : "not kept"}`;
  return h(
    "div.gauge",
    { role: "img", "aria-label": words },
    h("div.gauge-line", {}, h("span.gauge-weight", { style: { width: `${100 * weight}%` } }), coin !== null && h(`span.gauge-coin.${accepted ? "kept" : "lost"}`, { style: { left: `${100 * coin}%` } })),
    h("span.gauge-words", { "aria-hidden": "true" }, h("span", `${name} ${probability(weight)}`), coin !== null && h("span", `coin ${probability(coin)}`), h(`strong.${accepted ? "kept" : "lost"}`, accepted ? "✓ kept" : "✗ not kept")),
  );
}
