// A listing whose lines can be picked, by a click or by the arrow keys: radio buttons in the dress of code.

import { h, signal } from "hs/base/dom";

let number = 0;

/**
 * @param {string[]} lines
 * @returns {{element: HTMLElement, picked: {value: number}, pick: (line: number) => void}} picked: -1 for none
 */
export function suspects(lines, label) {
  const name = `suspects-${++number}`;
  const picked = signal(-1);
  const inputs = lines.map((_, i) => h("input.unseen", { type: "radio", name, value: String(i), on: { change: () => (picked.value = i) } }));
  const rows = lines.map((line, i) => {
    const [code, comment] = split(line.trimStart());
    // A line that is too long goes on below, a little further in than it began.
    const indent = line.length - line.trimStart().length + 2;
    return h("label.suspect", {}, inputs[i], h("span.suspect-number", { "aria-hidden": "true" }, String(i + 1)), h("code", { style: { "padding-left": `${indent}ch`, "text-indent": "-2ch" } }, code, comment && h("span.soft", comment)));
  });
  const pick = (line) => {
    inputs[line].checked = true;
    picked.value = line;
  };
  return { element: h("fieldset.suspects", {}, h("legend", label), h("div.suspect-lines", {}, rows)), picked, pick };
}

function split(line) {
  const at = line.indexOf("#");
  return at < 0 ? [line, ""] : [line.slice(0, at), line.slice(at)];
}
