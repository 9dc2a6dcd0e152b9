// A uniform draw on the line from 0 to 1, and the weight that it is compared with: below it keeps, beyond it does not.

import { h } from "hs/base/dom";
import { probability } from "hs/base/format";

/** @param {{uniform: number|null, weight: number, accepted: boolean, name?: string}} options name: of the weight */
export function gauge({ uniform, weight, accepted, name = "weight" }) {
  const words = `${name} ${probability(weight)}${uniform === null ? "" : `, uniform draw ${probability(uniform)}`}: ${accepted ? "kept" : "not kept"}`;
  return h(
    "div.gauge",
    { role: "img", "aria-label": words },
    h("div.gauge-line", {}, h("span.gauge-weight", { style: { width: `${100 * weight}%` } }), uniform !== null && h(`span.gauge-uniform.${accepted ? "kept" : "lost"}`, { style: { left: `${100 * uniform}%` } })),
    h("span.gauge-words", { "aria-hidden": "true" }, h("span", `${name} ${probability(weight)}`), uniform !== null && h("span", `uniform draw ${probability(uniform)}`), h(`strong.${accepted ? "kept" : "lost"}`, accepted ? "✓ kept" : "✗ not kept")),
  );
}
