// All guesses in one pass of the drafter: what independence costs, and what one pass saves.

import { expectedTokensByPosition } from "hs/algorithm/theory";
import { signal } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { slider } from "hs/figures/controls";
import { bestOf, gains } from "hs/lessons/chapters/09b-new-ideas/gains";
import { rounded } from "hs/lessons/chapters/tables";

const MOST = 7;
const between = (first, last) => Array.from({ length: MOST }, (_, i) => first + ((last - first) * i) / (MOST - 1));
/** Acceptance by position on chat, as the paper on DSpark reports the first and the last of seven places. */
export const ONE_BY_ONE = between(0.53, 0.74);
export const AT_ONCE = between(0.72, 0.63);

export function parallel() {
  const [c, d] = [signal(0.1), signal(0.2)];
  const chain = (k) => expectedTokensByPosition(ONE_BY_ONE, k) / (1 + c.value * k);
  const block = (k) => expectedTokensByPosition(AT_ONCE, k) / (1 + (k ? d.value : 0));
  return gains({
    label: "Guessing one by one, and all at once",
    most: MOST, names: ["one by one, with one layer", "all at once, with five layers"], gains: () => [chain, block], signals: [c, d],
    controls: [
      slider({ label: "c of one guess", value: c, min: 0, max: 0.4, step: 0.01, format: (x) => fixed(x) }),
      slider({ label: "c of all at once", value: d, min: 0, max: 1.5, step: 0.01, format: (x) => fixed(x) }),
    ],
    caption: "Prices are in plain steps of the target. Acceptance by place is that of chat in the paper on DSpark: .53 rising to .74 for an EAGLE-3 head, .72 falling to .63 for DFlash; what lies between is drawn straight.",
    says: ([one, all]) => {
      const even = Math.max(...between(1, MOST).map((k) => expectedTokensByPosition(AT_ONCE, Math.round(k)))) / one.speedup - 1;
      return `One by one, ${bestOf(one)}; all at once, ${bestOf(all)}. The draft at once wins as long as it costs less than ${rounded(even)} plain steps.`;
    },
  });
}
