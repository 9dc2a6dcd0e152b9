// The pieces of a chapter's text.

import { append, fill, h, unbroken } from "hs/base/dom";

/** A paragraph. */
export const prose = (...children) => append(h("p"), unbroken(children));

/** Put a sentence in place of what an element holds. */
export const tell = (element, ...children) => fill(element, unbroken(children));

/** A part of a chapter under a heading of its own. */
export const section = (title, ...children) => append(h("section.part", {}, h("h3", title)), children);

/** A word whose meaning opens when it is pressed. */
export function term(word, meaning) {
  const explanation = append(h("span.meaning", { hidden: true }), [" (", meaning, ")"]);
  const button = h(
    "button.term",
    {
      type: "button",
      "aria-expanded": "false",
      on: {
        click: () => {
          explanation.hidden = !explanation.hidden;
          button.setAttribute("aria-expanded", String(!explanation.hidden));
        },
      },
    },
    word,
  );
  return h("span", {}, button, explanation);
}

/** A remark beside the text. */
export const note = (...children) => append(h("aside.note"), unbroken(children));

/** A listing, line by line; what follows three spaces is a remark. mark: the lines that stand out, from 0. */
export function pseudocode(lines, { mark = [], label = "A listing" } = {}) {
  // A line that is too long for a phone goes on under its own beginning, so no listing scrolls sideways.
  const rows = lines.map((line, i) => {
    const [code, remark] = line.trim().split(/ {3,}/);
    const indent = /^ */.exec(line)[0].length;
    return h(mark.includes(i) ? "li.marked" : "li", { style: { "--indent": indent } }, h("code", code || " ", remark && h("span.remark", ` ${remark}`)));
  });
  return h("ol.listing.wrapped", { "aria-label": label }, rows);
}

/** A formula on a line of its own. mathNode: a `math` element; words: how it is read aloud. */
export function formula(mathNode, words) {
  mathNode.setAttribute("display", "block");
  mathNode.setAttribute("aria-label", words);
  return h("div.formula", { tabindex: "0", role: "group", "aria-label": words }, mathNode);
}

/** What the reader can say at the end of a chapter. */
export const summary = (...items) =>
  h("section.summary", {}, h("h3", "What you can say now"), h("ul", {}, items.map((item) => append(h("li"), unbroken(item)))));
