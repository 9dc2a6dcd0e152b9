// Pinned runs side by side: what was set otherwise, their figures, and where their texts differ from the first one's.

import { fill, h, watch } from "hs/base/dom";
import { counted } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figureList } from "hs/playground/figures";
import { differences } from "hs/playground/settings";

const MOST = 1500; // tokens that are compared: the work grows with their square

/** For each token of `tokens`, whether it belongs to a longest common subsequence with `others`; both are ids. */
export function commonWith(tokens, others) {
  const [a, b] = [tokens.slice(0, MOST), others.slice(0, MOST)];
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const common = new Array(tokens.length).fill(false);
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) [common[i], i, j] = [true, i + 1, j + 1];
    else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return common;
}

/**
 * @param {signal} pins the pinned runs; the first is what the others are compared with.
 * @param {{onShow: (run) => void}} page
 */
export function comparePanel(pins, { onShow }) {
  const element = h("section.compare", { "aria-label": "Pinned runs" });
  const unpin = (run) => (pins.value = pins.value.filter((each) => each !== run));
  watch([pins], (runs) => {
    element.hidden = !runs.length;
    fill(element,
      h("div.answer-head", {}, h("h2", "Pinned runs"), button("Unpin all", () => (pins.value = []), { quiet: true })),
      runs.length === 1 && h("p.soft", "The seed is held. Change one control, run again, and pin that, too: what differs is marked."),
      h("div.cards", {}, runs.map((run) => cardOf(run, runs[0], { onShow, unpin }))));
  });
  return element;
}

function cardOf(run, first, { onShow, unpin }) {
  const mine = run === first;
  const common = mine ? null : commonWith(run.tokens.map(({ token }) => token), first.tokens.map(({ token }) => token));
  const differing = common ? common.filter((each) => !each).length : 0;
  return h("article.pin", {},
    h("div.pin-head", {}, h("h3", mine ? "First" : changesOf(first, run)), h("div.pin-buttons", {},
      button("Show", () => onShow(run), { quiet: true }), button("✕", () => unpin(run), { quiet: true, label: "Unpin" }))),
    h("dl.figures.small", {}, figureList(run).slice(0, 4).map(([name, value]) => h("div.figure-tile", {}, h("dt", name), h("dd", value)))),
    common && h("p.difference", {}, sentence(run, first, differing)),
    h("div.paper.small", { tabindex: "0", role: "group", "aria-label": mine ? "The first run’s text" : "This run’s text" }, h("div.token-text", {}, run.tokens.map((token, i) =>
      h(`span.tok.${token.origin}`, { class: common && !common[i] ? "differs" : "" }, token.text)))));
}

function changesOf(first, run) {
  const found = differences({ ...first.values, seed: first.seed }, { ...run.values, seed: run.seed });
  if (!found.length) return "Nothing changed";
  return found.map(({ label, before, after }) => (label === "prompt" ? "another prompt" : `${label} ${before} → ${after}`)).join(", ");
}

function sentence(run, first, differing) {
  if (run.text === first.text && !differing) return ["The same text as the first, ", h("b", "bit for bit"), "."];
  const at = run.tokens.findIndex((token, i) => token.token !== first.tokens[i]?.token);
  const equal = at < 0 ? run.tokens.length : at;
  return [`Equal for ${counted(equal, "token")}, then they part; `, h("span.differs", `${counted(differing, "token")} marked`), " that the first has not."];
}
