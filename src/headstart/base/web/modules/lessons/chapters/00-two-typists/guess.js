// Which words were guessed? The reader marks them, and then sees the truth.

import { fill, h } from "hs/base/dom";
import { counted } from "hs/base/format";
import { legend } from "hs/figures/text";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";

/** @param {{text: string, origin: string}[]} tokens */
export function markGuessed(tokens) {
  const marked = new Set();
  let open = false;
  const verdict = h("p.step-words", { tabindex: "-1" });
  const key = h("div", { hidden: true }, legend(["accepted", "correction", "bonus"]));
  const buttons = tokens.map(({ text }, i) => h("span.tok.markable", {
    role: "button", tabindex: i === 0 ? "0" : "-1", "aria-pressed": "false", data: { index: i }, "aria-label": text.trim() || "white space",
    on: { click: () => toggle(i) },
  }, text));
  const text = h("pre.race-text.mark-text", { role: "group", "aria-label": "The text, token by token. Arrow keys walk, the space bar marks.", on: { keydown } }, buttons);
  verdict.textContent = `${tokens.length} tokens. How many of them did the small model guess?`;
  const show = button("Show the truth", () => {
    open = true;
    buttons.forEach((each, i) => each.classList.add(tokens[i].origin));
    key.hidden = false;
    show.hidden = true;
    fill(verdict, found());
    verdict.focus();
  });

  function toggle(i) {
    focusOn(i);
    if (open) return;
    if (marked.has(i)) marked.delete(i);
    else marked.add(i);
    buttons[i].setAttribute("aria-pressed", String(marked.has(i)));
    verdict.textContent = `${counted(marked.size, "token")} marked.`;
  }

  function focusOn(i) {
    buttons.forEach((each, at) => each.setAttribute("tabindex", at === i ? "0" : "-1"));
    buttons[i].focus();
  }

  function keydown(event) {
    const i = Number(event.target.dataset?.index);
    if (Number.isNaN(i) || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (to !== undefined) focusOn(Math.max(0, Math.min(buttons.length - 1, to)));
    else if (event.key === " " || event.key === "Enter") toggle(i);
    else return;
    event.preventDefault();
  }

  function found() {
    const guessed = tokens.filter(({ origin }) => origin === "accepted").length;
    const hits = [...marked].filter((i) => tokens[i].origin === "accepted").length;
    const yours = marked.size ? `You marked ${counted(marked.size, "token")}, and ${hits === marked.size ? "all of them were" : `${hits} of them ${hits === 1 ? "was" : "were"}`} guessed. ` : "You marked none. ";
    return `${yours}In truth ${guessed} of these ${tokens.length} tokens came from the small model; look where the others are.`;
  }

  return figure({
    label: "Which tokens did the small model guess?",
    title: true,
    body: [text, verdict, key],
    controls: show,
    caption: "Press the tokens that you think were guessed right by the small model.",
    table: () => ({ columns: ["token", "where it came from"], rows: tokens.map(({ text: words, origin }) => [h("code", words), open ? origin : "–"]) }),
  }).element;
}
