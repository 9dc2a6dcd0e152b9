// The right column: the round that was chosen, and what happened in it.

import { fill, h, watch } from "hs/base/dom";
import { counted, seconds } from "hs/base/format";
import { button } from "hs/figures/controls";
import { draftTree } from "hs/figures/tree";
import { reasonOf, tokenCard as cardOf } from "hs/playground/card";
import { acceptedOf, rootToken, totalSeconds, treeNodes } from "hs/trace/rounds";

export const tokenCard = cardOf;

/**
 * @param {signal} current the run that is shown.
 * @param {{round: signal, token: signal, walk: (by: number) => void}} answer
 */
export function whyPanel(current, { round, token, walk }) {
  const body = h("div.why-body");
  const place = h("span.stepper-place");
  const stepper = h("div.stepper", {}, button("←", () => walk(-1), { quiet: true, label: "The round before" }), place, button("→", () => walk(1), { quiet: true, label: "The next round" }));
  const element = h("section.why", { "aria-label": "The round" }, h("div.answer-head", {}, h("h2", "Round"), stepper), body);
  let ends = [];
  const draw = () => {
    const run = current.value;
    const step = run?.request?.steps[round.value];
    stepper.hidden = !run?.request;
    place.textContent = step ? `${round.value + 1} of ${run.request.steps.length}` : `${run?.request?.steps.length ?? 0} rounds`;
    fill(body, step ? roundOf(run, step) : h("p.soft", "Press a token, or a block of the ribbon, to see how its round went. The arrow keys go on from there."));
  };
  watch([current], (run) => {
    ends.forEach((end) => end());
    ends = run ? [run.status.watch(draw)] : [];
    draw();
  });
  watch([round, token], draw);
  return { element };

  function roundOf(run, step) {
    const tree = step.tokens.length ? draftTree({ nodes: treeNodes(run.request, step), path: step.path, root: run.request.text(rootToken(run.request, round.value)) }) : null;
    const guesses = step.tokens.length ? `${step.source} guessed ${counted(step.tokens.length, "token")}; ${acceptedOf(step)} accepted.` : "Nothing was guessed.";
    return [
      h("p", `${guesses} ${counted(step.emitted.length, "token")} in ${seconds(totalSeconds(step.seconds))}.`),
      tree?.element,
      h("p.soft", reasonOf(step)),
      token.value !== null && run.tokens[token.value]?.step === round.value && cardOf(run, token.value),
    ];
  }
}
