// A grammar: tokens that are the only ones it lets come are no guesses.

import { fill, h, signal, watch } from "hs/base/dom";
import { counted, fixed, percent } from "hs/base/format";
import { choice } from "hs/figures/controls";
import { figure } from "hs/figures/figure";

/** A call of a tool that the bundled model wrote under a schema: its tokens, and 1 where the grammar let no other come. Checked by a test. */
export const CALL = [["{", 1], ["\"", 1], ["name", 1], ["\":", 1], [" \"", 1], ["get", 1], ["_w", 1], ["e", 1], ["ather", 1], ["\",", 1], [" \"", 1], ["arg", 1], ["uments", 1], ["\":", 1], [" {\"", 1], ["city", 1], ["\":", 1], [" \"", 0], ["f", 0], ["\",", 0], [" \"", 1], ["un", 1], ["it", 1], ["\":", 1], [" \"", 1], ["f", 0], ["a", 1], ["h", 1], ["ren", 1], ["he", 1], ["it", 1], ["\",", 1], [" \"", 1], ["da", 1], ["ys", 1], ["\":", 1], [" 1", 0], ["}}", 1]];
/** Forwards of the same run with the bundled pair's drafter, which guessed the free tokens, too. */
export const MEASURED = 3;

/** Rounds of one token each; or of a certain run, and the token behind it. */
export const roundsOf = (runs) => CALL.reduce((rounds, token, i) => {
  if (i && runs && CALL[i - 1][1]) rounds.at(-1).push(token);
  else rounds.push([token]);
  return rounds;
}, []);

export function forced() {
  const runs = signal(true);
  const text = h("p.forced-text");
  const words = h("p.break-words");
  const shown = figure({
    label: "A call of a tool, token by token",
    title: true,
    body: [text, h("ul.legend", {}, h("li", h("span.forced-token.certain", "certain"), " the grammar lets no other come"), h("li", h("span.forced-token", "free"), " the model decides"), h("li", h("span.forced-end", "|"), " a forward of the target ends")), words],
    controls: [choice({ label: "A forward gives", value: runs, options: [[false, "one token"], [true, "a certain run and one token"]] })],
    caption: "Recorded: the bundled model under a JSON schema, at temperature 0. It is a very small model, so do not judge its choice of a city.",
    table: () => ({ columns: ["forward", "its tokens"], rows: roundsOf(runs.value).map((round, i) => [i + 1, round.map(([token]) => token).join("")]) }),
  });
  watch([runs], () => {
    const rounds = roundsOf(runs.value);
    const certain = CALL.filter(([, only]) => only).length;
    fill(text, rounds.flatMap((round) => [round.map(([token, only]) => h(only ? "span.forced-token.certain" : "span.forced-token", token)), h("span.forced-end", { "aria-hidden": "true" }, "|")]));
    fill(words, `${certain} of ${CALL.length} tokens (${percent(certain / CALL.length)}) are certain. `, h("strong", `${counted(rounds.length, "forward")}: ${fixed(CALL.length / rounds.length, 1)} tokens each.`),
      ` With a draft model that guesses the free ones, too, the recorded run took ${MEASURED}: ${fixed(CALL.length / MEASURED, 1)} tokens each.`);
    shown.update();
  });
  return shown.element;
}
