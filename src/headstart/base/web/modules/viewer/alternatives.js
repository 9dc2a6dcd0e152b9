// The distributions at one place as a table of tokens with bars: p, q, the residual, or the model's own softmax.

import { h } from "hs/base/dom";
import { probability, visible } from "hs/base/format";
import { entryOf } from "hs/trace/rounds";

const COLUMNS = {
  p: ["p", "the target’s distribution"],
  model: ["model", "the target’s own softmax, before greedy sampling makes one token of it"],
  q: ["q", "the draft’s distribution"],
  r: ["residual", "what p has beyond q, made a distribution again: what a correction is drawn from"],
};

const UNKNOWN = "less than the likeliest, which alone are recorded";

/**
 * The table of the distributions that node `node` was judged by, or after the accepted path where `node` is null.
 *
 * @param {object} request @param {object} step
 * @param {number|null} node of the draft; null for the token after `after`
 * @param {{after?: number, token?: number, most?: number, residual?: boolean}} [options] after: with node null, the node
 *   after which the distribution holds (-1: x0); token: the one that is marked; most: how many rows
 */
export function alternatives(request, step, node, { after, token, most = 6, residual = true } = {}) {
  const own = node === null ? null : step.nodes[node];
  const distribution = step.distributions[(node === null ? after ?? step.path.at(-1) ?? -1 : step.parents[node]) + 1];
  if (!distribution) return h("p.soft", "No distributions were recorded here.");
  const marked = token ?? (node === null ? null : step.tokens[node]);
  const lists = { p: distribution.p, model: distribution.model, q: own?.q_top, r: residual ? own?.residual : null };
  // Greedy: p is one token; the model's softmax tells more
  if (distribution.model) delete lists.p;
  const names = Object.keys(COLUMNS).filter((name) => lists[name]?.length);
  const value = (name, id) => {
    if (id === marked && name === "q" && typeof own?.q === "number") return own.q;
    if (id === marked && name === "p" && typeof own?.p === "number") return own.p;
    if (id === marked && name === "model" && typeof own?.model === "number") return own.model;
    return entryOf(lists[name], id);
  };
  return table(request, names, rowsOf(lists, names, marked, most), value, marked);
}

/** One distribution that is given by its likeliest tokens: "r" for what is left of p, or "p". */
export function oneDistribution(request, name, entries, token = null, most = 5) {
  const lists = { [name]: entries };
  return table(request, [name], rowsOf(lists, [name], token, most), (_, id) => entryOf(entries, id), token);
}

function table(request, names, rows, value, marked) {
  const head = (name) => h("th", { scope: "col" }, h("abbr", { title: COLUMNS[name][1] }, COLUMNS[name][0]));
  const row = (id) =>
    h(id === marked ? "tr.marked" : "tr", {},
      h("th", { scope: "row" }, h("span.tok", visible(request.text(id))), id === marked && h("span.unseen", " (this token)")),
      names.map((name) => cell(name, value(name, id))));
  return h("table.alternatives", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "token"), names.map(head))),
    h("tbody", {}, rows.map(row)));
}

/** The likeliest tokens of the first distribution, then of the others; the marked one is always among them. */
function rowsOf(lists, names, marked, most) {
  const [first, ...others] = names.map((name) => lists[name].map(([id]) => id));
  const rest = others.flatMap((ids) => ids.slice(0, 2));
  const chosen = [...new Set([...(marked === null ? [] : [marked]), ...first.slice(0, most - 2), ...rest])].slice(0, most);
  const rank = (id) => -Math.max(0, ...names.map((name) => entryOf(lists[name], id) ?? 0));
  const main = (id) => entryOf(lists[names[0]], id) ?? 0;
  return chosen.sort((a, b) => main(b) - main(a) || rank(a) - rank(b));
}

function cell(name, value) {
  if (value === null) return h("td.alt-cell", {}, h("span.soft", { title: UNKNOWN, "aria-hidden": "true" }, "–"), h("span.unseen", UNKNOWN));
  return h("td.alt-cell", {}, h(`span.alt-bar.${name}`, { "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(1, 100 * value)}%` } })), h("span.alt-value", probability(value)));
}
