// The right column: the chosen token, and how its round went, rule and all.

import { h, watch } from "hs/base/dom";
import { counted } from "hs/base/format";
import { button } from "hs/figures/controls";
import { tokenCard } from "hs/viewer/card";
import { roundView } from "hs/viewer/round";

const HINT = "Press a token, or a block of the ribbon, to see how its round went. The arrow keys lead from round to round.";

/** What the card of a token needs. */
export const shownOf = (run, index) => {
  const token = run.tokens[index];
  return { token: { ...token, text: run.request.text(token.token) }, step: run.request.steps[token.step], request: run.request };
};

/**
 * @param {signal} current the run that is shown.
 * @param {{round: signal, token: signal, quiet: boolean, walk: (by: number) => void}} answer
 */
export function whyPanel(current, answer) {
  const { round, token, walk } = answer;
  const [card, view] = [tokenCard(), roundView()];
  const place = h("span.stepper-place");
  const stepper = h("div.stepper", {}, button("←", () => walk(-1), { quiet: true, label: "The round before" }), place, button("→", () => walk(1), { quiet: true, label: "The next round" }));
  const hint = h("p.soft", HINT);
  const element = h("section.why", { "aria-label": "The round" }, h("div.answer-head", {}, h("h2", "Round"), stepper), hint, card.element, view.element);
  let drawn = null;
  let ends = [];

  function draw() {
    const run = current.value;
    const steps = run?.request?.steps ?? [];
    const step = steps[round.value];
    const chosen = step && token.value !== null && run.tokens[token.value]?.step === round.value;
    stepper.hidden = !steps.length;
    place.textContent = step ? `${round.value + 1} of ${steps.length}` : counted(steps.length, "round");
    hint.hidden = Boolean(step);
    card.element.hidden = !chosen;
    view.element.hidden = !step;
    if (chosen) card.set(shownOf(run, token.value));
    if (step && step !== drawn) view.set(run.request, step, { quiet: answer.quiet });
    drawn = step ?? null;
  }

  watch([current], (run) => {
    ends.forEach((end) => end());
    ends = run ? [run.status.watch(draw)] : [];
    draw();
  });
  watch([round, token], draw);
  return { element };
}
