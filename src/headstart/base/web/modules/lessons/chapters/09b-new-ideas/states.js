// A hybrid: keys and values are cut, a state is not; what was accepted is put into it later, from a log.

import { append, fill, h, signal, watch } from "hs/base/dom";
import { counted, fixed } from "hs/base/format";
import { button, slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";

/** Qwen3.5-0.8B in float32, in megabytes (docs/guides/hybrid-models.md): a copy of all its states, and a row of the log. */
export const [PLANE, LOGGED] = [40.4 / 2, 56.9 / 128];
/** Tokens that wait in the log before the states are written again. */
export const FOLD = 8;

export function states() {
  const [k, kept] = [signal(4), signal(2)];
  let now;
  const log = h("div.state-log");
  const words = h("p.break-words", { role: "status" });
  const again = () => { now = { text: 6, waiting: 0, drafted: 0, rounds: 0, copied: 0, logged: 0, written: 0 }; };
  again();
  const shown = figure({
    label: "States of a hybrid through the rounds",
    title: true,
    body: append(h("div"), log, words),
    controls: [
      slider({ label: "K, guesses a round", value: k, min: 1, max: 7, step: 1 }),
      slider({ label: "Of these accepted", value: kept, min: 0, max: 7, step: 1 }),
      h("div.actions", {}, button("Play a round", () => play()), button("Begin again", () => { again(); play(); }, { quiet: true })),
    ],
    caption: "The sizes are those of Qwen3.5-0.8B: its states take 20.2 MB, a row of the log 0.44 MB. headstart writes the states when eight tokens wait in the log.",
    table: () => ({
      columns: ["way", "written so far"],
      rows: [["a copy of the states for each guess", `${fixed(now.copied, 0)} MB`], ["a log, and the states now and then", `${fixed(now.logged, 1)} MB`]],
    }),
  });

  function play() {
    const accepted = Math.min(kept.value, k.value);
    const fold = now.waiting >= FOLD;
    if (fold) Object.assign(now, { logged: now.logged + PLANE, written: now.written + 1, waiting: 0 });
    now.copied += PLANE * k.value;
    now.logged += LOGGED * (k.value + 1);
    Object.assign(now, { rounds: now.rounds + 1, waiting: now.waiting + accepted + 1, text: now.text + accepted + 1, drafted: k.value - accepted, fold });
    show();
  }

  function show() {
    const inState = now.text - now.waiting;
    const cell = (kind, text) => h(`span.state-cell.${kind}`, text);
    fill(log, h("div", {}, h("span.soft", "in the states "), cell("inside", counted(inState, "token"))),
      h("div", {}, h("span.soft", "in the log "), Array.from({ length: now.waiting }, (_, i) => cell("waits", String(inState + i + 1))), Array.from({ length: now.drafted }, () => cell("gone", "✗"))));
    fill(words, `${counted(now.rounds, "round")}: ${counted(now.drafted, "refused guess", "refused guesses")} of the last one ${now.drafted === 1 ? "is a row" : "are rows"} of the log that ${now.drafted === 1 ? "is" : "are"} forgotten. ${now.fold ? "Eight tokens had waited, so the states were written again first. " : ""}`,
      h("strong", `Written so far: ${fixed(now.logged, 1)} MB; a copy of the states for each guess would be ${fixed(now.copied, 0)} MB.`));
    shown.update();
  }
  watch([k], () => { if (kept.value > k.value) kept.value = k.value; });
  watch([kept], () => { if (kept.value > k.value) kept.value = k.value; });
  play();
  return shown.element;
}
