// A drafter for the drafter: what a draft costs then, and what is gained.

import { draftSteps, speedup, stackedSpeedup } from "hs/algorithm/theory";
import { signal } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { slider } from "hs/figures/controls";
import { bestOf, gains } from "hs/lessons/chapters/09b-new-ideas/gains";
import { rounded } from "hs/lessons/chapters/tables";

const MOST = 12;
/** Eight rows cost half as much again as one, in both models. */
export const V = { 1: 1, 8: 1.5 };

export function stack() {
  const [alpha, c, inner, guess] = [signal(0.95), signal(0.4), signal(0.7), signal(0.05)];
  const steps = () => draftSteps(MOST, inner.value, guess.value, V);
  const share = (label, value) => slider({ label, value, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) });
  return gains({
    label: "A draft model alone, and with a drafter of its own",
    most: MOST, names: ["alone", "with a drafter of its own"], signals: [alpha, c, inner, guess],
    gains: () => {
      const written = steps();
      return [(k) => speedup(alpha.value, k, c.value, V), (k) => stackedSpeedup(alpha.value, k, c.value, written, V)];
    },
    controls: [
      share("outer α", alpha), share("outer c", c), share("inner α", inner), share("inner c", guess),
    ],
    caption: "Outer: how often the target keeps a guess of the draft model, and what a step of the draft model costs in steps of the target. Inner: the same of the draft model and its own drafter. Calculated, with eight rows at 1.5 times the price of one in both models. headstart.theory.draft_steps and stacked_speedup give the same.",
    says: ([alone, stacked]) => {
      const [k, written] = [stacked.k || 8, steps()];
      return `${k} tokens cost the draft model ${k} steps alone, and ${rounded(written[k])} with a drafter of its own. Alone, ${bestOf(alone)}; stacked, ${bestOf(stacked)}.`;
    },
  });
}
