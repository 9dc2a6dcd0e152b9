// An exercise: checked by the page, with feedback in words, hints one by one, and then the solution.

import { append, fill, h, unbroken } from "hs/base/dom";
import { field } from "hs/lessons/fields";
import { progress } from "hs/lessons/progress";

const TRIES_BEFORE_SOLUTION = 2;
const opened = new Map();

/** The exercises that stand on the page now, by their ids: {answer, solve, done()}. For tests. */
export const exercises = () => opened;

/** Forget those of a chapter that is closed. */
export const forgetExercises = () => opened.clear();

const plain = (value) => JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part));

/** Whether an exercise has been solved. */
export const isDone = (id) => progress.get(`exercise ${id}`) === "done";

/**
 * An exercise.
 * @param {object} options
 * @param {string} options.id "04.1": the chapter's and its own.
 * @param {string} options.title
 * @param {string|Node|any[]} options.ask what is to be done.
 * @param {object[]} [options.fields] see `field`; `check` is given their values by name.
 * @param {{element: Node, read: () => any}} [options.widget] in place of fields, or beside them; `check` is given what
 *   it reads, as `widget` where there are fields, too.
 * @param {(values: any) => {ok: boolean, say: string|Node, fields?: object}} options.check
 * @param {(string|Node)[]} [options.hints]
 * @param {() => string|Node|any[]} options.solution
 * @param {object} [options.answer] the right values of the fields, by name.
 * @param {() => void} [options.solve] puts the right answer into the widget.
 */
export function exercise({ id, title, ask, fields = [], widget, check, hints = [], solution, answer, solve }) {
  const key = `exercise ${id}`;
  const inputs = fields.map(field);
  const feedback = h("div.feedback", { tabindex: "-1" });
  const help = h("div.hints");
  const mark = h("span.done-mark", { "aria-hidden": "true" });
  let [tries, hinted] = [0, 0];
  const begun = widget && plain(widget.read()); // what nobody has touched is no try

  const values = () => {
    const found = Object.fromEntries(inputs.map((input) => [input.name, input.read()]));
    if (!widget) return found;
    return inputs.length ? { ...found, widget: widget.read() } : widget.read();
  };
  const say = (kind, ...words) => {
    feedback.className = `feedback ${kind}`;
    append(fill(feedback), h("span.icon", { "aria-hidden": "true" }, kind === "good" ? "✓" : kind === "bad" ? "✗" : "i"), append(h("div"), unbroken(words)));
    feedback.focus();
  };
  const showDone = () => {
    const done = isDone(id);
    element.classList.toggle("done", done);
    mark.textContent = done ? "✓" : "";
    heading.setAttribute("aria-label", `Exercise ${id}: ${title}${done ? ", solved" : ""}`);
  };
  const judge = () => {
    const empty = inputs.filter((input) => ["", NaN].some((nothing) => Object.is(input.read(), nothing)));
    if (empty.length) {
      inputs.forEach((input) => input.mark(empty.includes(input) ? "bad" : ""));
      say("info", empty.length === inputs.length ? "Fill in an answer first." : "An answer is missing, or is not a number.");
      return;
    }
    const broken = inputs.filter((input) => input.wants === "whole" && !(Number.isInteger(input.read()) && input.read() >= 0));
    if (broken.length) {
      inputs.forEach((input) => input.mark(broken.includes(input) ? "bad" : ""));
      say("info", "A whole number is asked for.");
      return;
    }
    const { ok, say: words, fields: marks = {} } = check(values());
    inputs.forEach((input) => input.mark(marks[input.name] ?? (ok ? "good" : inputs.length === 1 ? "bad" : "")));
    const untouched = !ok && widget && !inputs.length && plain(widget.read()) === begun;
    if (!untouched) tries += 1;
    if (ok) progress.set(key, "done");
    showDone();
    say(ok ? "good" : untouched ? "info" : "bad", words);
    offer();
  };
  const hint = h("button.quiet", { type: "button", on: { click: () => nextHint() } });
  const nextHint = () => {
    const shown = append(h("p.hint", { tabindex: "-1" }, h("strong", `Hint ${hinted + 1}. `)), unbroken(hints[hinted]));
    hinted += 1;
    help.append(shown);
    shown.focus();
    offer();
  };
  const reveal = h("button.quiet", { type: "button", on: { click: () => showSolution() } }, "Show the solution");
  const showSolution = () => {
    const shown = append(h("div.solution", { tabindex: "-1" }, h("strong", "Solution. ")), unbroken(solution()));
    help.append(shown);
    reveal.remove();
    shown.focus();
  };
  const offer = () => {
    hint.hidden = hinted >= hints.length;
    hint.textContent = hinted === 0 ? "A hint" : "Another hint";
    reveal.hidden = hinted < hints.length && tries < TRIES_BEFORE_SOLUTION && !isDone(id);
  };

  const heading = h("h4", {}, h("span.exercise-id", id), " ", title, "\u00a0", mark);
  const element = h(
    "form.exercise",
    {
      novalidate: true,
      data: { exercise: id },
      on: {
        submit: (event) => {
          event.preventDefault();
          judge();
        },
      },
    },
    heading,
    append(h("div.ask"), unbroken(typeof ask === "string" ? h("p", ask) : ask)),
    inputs.length ? h("div.fields", {}, inputs.map((input) => input.element)) : null,
    widget && h("div.widget", {}, widget.element),
    h("div.actions", {}, h("button", { type: "submit" }, "Check"), hint, reveal),
    feedback,
    help,
  );
  opened.set(id, { answer, solve, done: () => isDone(id) });
  offer();
  showDone();
  return element;
}
