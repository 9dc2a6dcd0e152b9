// Predict first: a question before the picture. The answer appears once a guess is made; the guess is kept.

import { append, fill, h, unbroken } from "hs/base/dom";
import { field } from "hs/lessons/fields";
import { progress } from "hs/lessons/progress";

const UNKNOWN = "?";

/**
 * A prediction.
 * @param {object} options
 * @param {string} options.id by which the guess is kept.
 * @param {string|Node} options.question
 * @param {"number"|"choice"|"text"} options.kind
 * @param {(answer: any) => Node|string} options.reveal what is shown then; the answer is null where the reader does not
 *   know.
 */
export function predict({ id, question, kind, options, unit, reveal }) {
  const key = `prediction ${id}`;
  const answer = field({ name: "guess", label: "Your guess", kind, options, unit });
  const shown = h("div.revealed", { tabindex: "-1", hidden: true });
  const show = (guess, focused) => {
    append(fill(shown), h("p.guess", guess === UNKNOWN ? "You wanted to see first." : ["You guessed ", h("strong", wordsOf(guess, options)), unit && (unit === "%" ? unit : ` ${unit}`), "."]), unbroken(reveal(guess === UNKNOWN ? null : guess)));
    shown.hidden = false;
    if (focused) shown.focus();
  };
  const keep = (guess) => {
    progress.set(key, guess);
    show(guess, true);
  };
  const missing = h("p.missing", { role: "alert" });
  const form = h(
    "form.predict",
    {
      novalidate: true,
      on: {
        submit: (event) => {
          event.preventDefault();
          const guess = answer.read();
          const empty = guess === "" || Number.isNaN(guess);
          missing.textContent = empty ? "Make a guess first; a wrong one helps, too." : "";
          if (empty) answer.focus();
          else keep(guess);
        },
      },
    },
    h("p.predict-title", "Predict first"),
    append(h("p.question"), unbroken(question)),
    answer.element,
    missing,
    h("div.actions", {}, h("button", { type: "submit" }, "Show me"), h("button.quiet", { type: "button", on: { click: () => keep(UNKNOWN) } }, "I do not know")),
    shown,
  );
  const before = progress.get(key);
  if (before !== undefined) {
    if (before !== UNKNOWN) answer.fill(before);
    queueMicrotask(() => show(before, false));
  }
  return form;
}

function wordsOf(guess, options = []) {
  const pair = options.find((option) => Array.isArray(option) && option[0] === guess);
  return options.length ? `“${pair ? pair[1] : guess}”` : String(guess);
}
