// A text whose every token says by its line where it came from; tokens can be picked, by the arrow keys too.

import { fill, h } from "hs/base/dom";
import { visible } from "hs/base/format";

/** What the marks mean. [origin, an example, words] */
export const MARKS = [
  ["accepted", "guess", "guessed, and accepted"],
  ["correction", "target", "a correction: the guess was refused"],
  ["bonus", "target", "a bonus: the whole draft was accepted"],
  ["plain", "target", "nothing was guessed"],
];
const WORDS = {
  accepted: "guessed and accepted",
  correction: "a correction",
  bonus: "a bonus",
  plain: "nothing was guessed",
  prompt: "prompt",
  refused: "refused",
};

/** The list of the marks, with only those origins that are named (all of them by default). */
export function legend(origins = MARKS.map(([origin]) => origin)) {
  return h(
    "ul.legend",
    { "aria-label": "What the lines under tokens mean" },
    MARKS.filter(([origin]) => origins.includes(origin)).map(([origin, sample, words]) =>
      h("li", h(`span.tok.${origin}`, { "aria-hidden": "true" }, sample), ` ${words}`),
    ),
  );
}

/**
 * @param {object} options
 * @param {{text: string, origin: string, step?: number}[]} options.tokens origin: "accepted", "correction", "bonus",
 *   "plain", "prompt" or "refused"; step: the round it came in.
 * @param {(index: number) => void} [options.onPick] makes tokens pressable; prompt tokens are not.
 * @param {number} [options.selected] the picked token.
 * @param {number} [options.at] the round whose tokens are lit.
 * @param {string} [options.label]
 * @returns {{element: HTMLElement, set: (changes: object) => void, add: (tokens: object[]) => void}}
 */
export function tokenText({ tokens = [], onPick, selected = null, at = null, label = "The text, token by token" }) {
  const element = h("div.token-text", { role: "group", "aria-label": label });
  const state = { tokens: [], selected, at };
  let spans = [];

  const pickable = (index) => Boolean(onPick) && state.tokens[index]?.origin !== "prompt";

  function spanOf(token, index) {
    const attributes = pickable(index)
      ? { role: "button", tabindex: "-1", "aria-label": `${visible(token.text)}, ${WORDS[token.origin]}`, data: { index } }
      : {};
    return h(`span.tok.${token.origin}`, attributes, textOf(token.text));
  }

  function mark() {
    const first = state.tokens.findIndex((_, index) => pickable(index));
    const stop = state.selected ?? first;
    spans.forEach((span, index) => {
      span.classList.toggle("selected", index === state.selected);
      span.classList.toggle("now", state.at !== null && state.tokens[index].step === state.at);
      if (!pickable(index)) return;
      span.tabIndex = index === stop ? 0 : -1;
      span.setAttribute("aria-pressed", String(index === state.selected));
    });
  }

  function pick(index, { focus = false } = {}) {
    if (!pickable(index)) return;
    state.selected = index;
    mark();
    if (focus) spans[index].focus();
    onPick(index);
  }

  element.addEventListener("click", (event) => {
    const span = event.target.closest("[data-index]");
    if (span) pick(Number(span.dataset.index));
  });
  element.addEventListener("keydown", (event) => {
    const span = event.target.closest("[data-index]");
    if (!span || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(span.dataset.index);
    const first = state.tokens.findIndex((_, each) => pickable(each));
    const to = { ArrowRight: index + 1, ArrowLeft: index - 1, Home: first, End: spans.length - 1, Enter: index, " ": index }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    pick(Math.max(first, Math.min(spans.length - 1, to)), { focus: true });
  });

  function add(more) {
    const from = state.tokens.length;
    state.tokens = [...state.tokens, ...more];
    const fresh = more.map((token, i) => spanOf(token, from + i));
    spans.push(...fresh);
    element.append(...fresh);
    mark();
  }

  function set(changes) {
    if (changes.tokens) {
      fill(element);
      [spans, state.tokens] = [[], []];
      if ("selected" in changes) state.selected = changes.selected;
      add(changes.tokens);
    }
    if ("selected" in changes) state.selected = changes.selected;
    if ("at" in changes) state.at = changes.at;
    mark();
  }

  set({ tokens });
  return { element, set, add };
}

/** Line breaks are shown by a sign and made; other white space stays as it is. */
function textOf(text) {
  if (text === "") return h("span.sign", { "aria-hidden": "true" }, "∅");
  return text.split(/(\n)/).filter(Boolean).map((part) => (part === "\n" ? [h("span.sign", { "aria-hidden": "true" }, "⏎"), "\n"] : part));
}
