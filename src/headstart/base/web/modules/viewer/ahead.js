// Drafting ahead in the viewer: the two lanes around the chosen round, and how often drafts were ready.

import { h, signal } from "hs/base/dom";
import { counted, percent, seconds } from "hs/base/format";
import { choice } from "hs/figures/controls";
import { figure, tableOf } from "hs/figures/figure";
import { lanes, lanesLegend } from "hs/figures/lanes";
import { lanesOf, preparedInWords, waitedOf } from "hs/trace/ahead";

const SHOWN = [[5, "5 rounds"], [15, "15 rounds"], [Infinity, "all rounds"]];
const CAPTION = "Time goes to the right. While the target judges a round, the drafter drafts for what may come of it; a draft that is ready costs the next round hardly any waiting. Choose a round above, or press one here.";

/**
 * @param {{heading: string, onPick: (index: number) => void}} options
 * @returns {{element: HTMLElement, set: (request: object, found: object) => void, go: (index: number) => void}} set: of a
 *   request and its summary; go: to a round, by its index among the steps.
 */
export function aheadView({ heading, onPick }) {
  const now = { request: null, at: 0 };
  const shown = signal(SHOWN[0][0]);
  const picture = lanes({ label: "", onPick });
  const said = h("p.ahead-words");
  const result = h("div");
  const whole = figure({
    label: "What the target and the drafter did at the same time",
    body: [picture.element, said],
    controls: [choice({ label: "How much is shown", value: shown, options: SHOWN }), lanesLegend()],
    caption: CAPTION,
    table: () => numbersOf(now.request),
  });
  const element = h("section.ahead", { "aria-label": "Drafting ahead" }, h(heading, "Drafting ahead"), result, whole.element);
  shown.watch(() => picture.set({ shown: shown.value }));

  function set(request, found) {
    Object.assign(now, { request, at: 0 });
    result.replaceChildren(...resultOf(found.ahead));
    picture.set({ rounds: lanesOf(request), at: 0, shown: shown.value });
    whole.update();
  }

  function go(index) {
    if (!now.request) return;
    now.at = index;
    const step = now.request.steps[index];
    const words = preparedInWords(step) || "Nothing was drafted in this round.";
    said.textContent = `Round ${step.i + 1}: ${words}`;
    picture.set({ at: index, label: `Two lanes of time, the target’s and the drafter’s, around round ${step.i + 1}. ${words}` });
  }

  return { element, set, go };
}

function resultOf({ drafts, hits, misses, secondsOnHits, secondsOnMisses, hitRate, byDepth }) {
  const rounds = hits + misses;
  if (rounds === 0) return [h("p", `Nothing could be foreseen before the drafts, ${drafts} in all.`)];
  const mean = (total, count) => (count ? seconds(total / count) : "–");
  const words = `${hits} of ${counted(rounds, "draft")} were ready when they were asked for: ${percent(hitRate)}. The engine waited ${mean(secondsOnHits, hits)} for one that was, ${mean(secondsOnMisses, misses)} for one that was not.`;
  const rows = byDepth.filter((each) => each.rounds).map((each) => [String(each.depth), `${each.hits} of ${each.rounds}`, percent(each.hits / each.rounds)]);
  const table = tableOf({ columns: ["accepted before", "ready", "share"], rows });
  return [h("p", words), h("div.scroll-table", { tabindex: "0", role: "region", "aria-label": "Drafts that were ready, by the tokens accepted before" }, table)];
}

function numbersOf(request) {
  const ms = (value) => (1000 * value).toFixed(2);
  const place = ({ rank }) => (rank === null ? "–" : rank + 1);
  const ready = (ahead) => (ahead.branches > 0 ? (ahead.hit ? "yes" : "no") : "–");
  const rows = (request?.steps ?? []).map(({ i, ahead }) =>
    ahead
      ? [i + 1, ready(ahead), ahead.node === null ? "–" : ahead.depth, place(ahead), ahead.branches, ahead.forwards, ahead.begin === null ? "–" : ms(ahead.end - ahead.begin), ms(waitedOf(ahead))]
      : [i + 1, "–", "–", "–", "–", "–", "–", "–"]);
  return { columns: ["round", "ready", "accepted before", "place", "outcomes", "forwards", "ahead ms", "waited ms"], rows };
}
