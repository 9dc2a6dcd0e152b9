// One round explained: the draft as a tree, the rule that ran step by step, the distributions, and what 2023 would have done.

import { fill, h, signal } from "hs/base/dom";
import { counted, probability, seconds, visible } from "hs/base/format";
import { toggle } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { draftTree } from "hs/figures/tree";
import { preparedInWords } from "hs/trace/ahead";
import { budgetInWords } from "hs/trace/budget";
import { uniformsOf } from "hs/trace/check";
import { classic, events, inWords, ruleOf } from "hs/trace/replay";
import { acceptedOf, pathTo, rootToken, totalSeconds, treeNodes } from "hs/trace/rounds";
import { alternatives, oneDistribution } from "hs/viewer/alternatives";
import { gauge } from "hs/viewer/gauge";

/**
 * @returns {{element: HTMLElement, set: (request: object, step: object) => void, go: (event: number) => void,
 *   events: () => number}} step: one of request.steps. `go` moves to an event of the rule; the last one is shown first.
 */
export function roundView() {
  const now = { request: null, step: null, events: [], selected: null };
  const headline = h("p.round-headline");
  const rule = h("p.round-rule");
  const tree = draftTree({ nodes: [], onPick: choose, label: "The draft, guess by guess" });
  const said = h("p.round-event");
  const scale = h("div.round-gauge");
  const distributions = h("div.round-distributions");
  const old = signal(false);
  const classicBox = h("div.round-classic");
  const facts = h("p.round-facts.soft");
  const picture = figure({
    label: "The rule that ran, step by step",
    title: true,
    body: [rule, tree.element, said, scale],
    controls: toggle({ label: "What the papers of 2023 would have done", value: old }),
    steps: { count: () => Math.max(1, now.events.length), show, words: (i) => wordsOf(now.events[i]) },
    table: () => tableOf(now),
  });
  picture.element.insertBefore(classicBox, picture.element.querySelector(".numbers"));
  picture.element.insertBefore(distributions, classicBox);
  const element = h("div.round-view", {}, headline, picture.element, facts);
  old.watch(() => drawClassic());

  const wordsOf = (event) => (event ? inWords(now.request, now.step, event) : "");

  function set(request, step, { quiet = false } = {}) {
    const index = request.steps.indexOf(step);
    Object.assign(now, { request, step, events: events(step), selected: null });
    fill(headline, headlineOf(request, step));
    const { name, words } = ruleOf(request, step);
    fill(rule, h("strong", name), ". ", words);
    fill(facts, factsOf(step));
    tree.element.hidden = step.tokens.length === 0;
    tree.set({ nodes: open(request, step, 0), path: [], root: request.text(rootToken(request, index)), selected: null, lit: [] });
    picture.go(now.events.length - 1, { quiet });
    drawClassic();
  }

  /** Draw the state after event i: what is decided by then shows, the rest is open. */
  function show(i) {
    if (!now.step) return;
    const event = now.events[i];
    const last = i === now.events.length - 1;
    tree.set({ nodes: open(now.request, now.step, last ? Infinity : i + 1, now.events), path: last || event.accepted ? now.step.path : [],
      lit: event.kind === "enter" || event.kind === "uniform" ? pathTo(now.step, event.node) : litOf(now, i) });
    said.textContent = wordsOf(event);
    fill(scale, event.kind === "uniform" && event.weight !== null && gauge({ uniform: event.uniform, weight: event.weight, accepted: event.accepted }));
    const node = event.kind === "enter" || event.kind === "uniform" ? event.node : event.kind === "own" ? event.child : null;
    drawDistributions(node, event);
    tree.set({ selected: node });
  }

  function choose(node) {
    now.selected = node;
    drawDistributions(node < 0 ? null : node, { kind: "own", node, token: null });
  }

  function drawDistributions(node, event) {
    if (!now.step.distributions.length) return fill(distributions);
    const { request, step } = now;
    if (event.kind === "draw") {
      const drawn = step.procedure === "traverse" && event.end === "correction";
      return fill(distributions, h("p.alt-title", drawn ? "The distribution that the correction was drawn from" : "The target’s distribution here"),
        drawn ? oneDistribution(request, "r", step.end.distribution, step.end.token) : alternatives(request, step, null, { token: event.token }));
    }
    const after = node === null ? event.node : step.parents[node];
    const place = after < 0 ? "after the last token" : `after “${visible(request.text(step.tokens[after]))}”`;
    fill(distributions, h("p.alt-title", `The distributions ${place}`), alternatives(request, step, node, node === null ? { after, token: event.token ?? undefined } : {}));
  }

  function drawClassic() {
    fill(classicBox);
    if (old.value && now.step) classicBox.append(...classicOf(now.request, now.step));
  }

  return { element, set, go: picture.go, events: () => now.events.length, at: () => picture.step.value };
}

/** The nodes as they look after the first `count` events: what is not yet decided has no state. */
function open(request, step, count, list = []) {
  const nodes = treeNodes(request, step);
  if (count === Infinity) return nodes;
  const decided = new Map();
  for (const event of list.slice(0, count)) {
    if (event.kind === "uniform") decided.set(event.node, event.accepted ? "accepted" : "refused");
    if (event.kind === "own" && event.child !== null) decided.set(event.child, "accepted");
  }
  return nodes.map((node, i) => ({ ...node, state: decided.get(i) ?? "" }));
}

/** The nodes that the walk has gone along until event i. */
const litOf = (now, i) => now.events.slice(0, i + 1).filter((each) => each.kind === "own" && each.child !== null).map((each) => each.child);

function headlineOf(request, step) {
  if (step.procedure === "read") return [h("strong", `Round ${step.i + 1}`), ": a part of the prompt was read."];
  const kept = acceptedOf(step);
  const by = step.source ? ` by ${step.source}` : "";
  const guesses = step.tokens.length ? `${counted(step.tokens.length, "guess", "guesses")}${by}, ${kept} accepted` : "no guesses";
  const end = step.emitted.length > kept ? `, then ${step.end.kind === "plain" ? "the target’s own token" : `a ${step.end.kind}`}` : "";
  const tokens = step.emitted.map((token, i) => h(`span.tok.${i < kept ? "accepted" : step.end.kind}`, visible(request.text(token))));
  return [h("strong", `Round ${step.i + 1}`), `: ${guesses}${end}. It gave ${counted(step.emitted.length, "token")}: `, tokens.flatMap((each) => [each, " "])];
}

function factsOf(step) {
  const { draft, verify } = step.seconds;
  const parts = [`Drafting ${seconds(draft)}, the target’s forward ${seconds(verify)} of ${counted(step.rows, "row")}, all of it ${seconds(totalSeconds(step.seconds))}`];
  if (step.batch > 1) parts.push(`shared by ${step.batch} requests`);
  const why = step.budget?.reason ? ` ${step.tokens.length ? "Why this budget" : "Why no guess"}: ${budgetInWords(step)}.` : "";
  return [`${parts.join(", ")}.${why}`, preparedInWords(step)].filter(Boolean).join(" ");
}

function classicOf(request, step) {
  if (!step.tokens.length) return [h("p.soft", "Nothing was drafted in this round: every rule does the same.")];
  const uniforms = uniformsOf(request);
  const found = classic(step, (node, depth) => uniforms(step, node, depth));
  const rows = found.judged.map(({ token, p, q, chance, uniform, accepted }) =>
    h("li", {}, h(`span.tok.${accepted ? "accepted" : "refused"}`, visible(request.text(token))), h("span.soft", ` p ${probability(p)}, q ${probability(q)}: p/q keeps it with chance ${probability(chance)}`), gauge({ uniform, weight: chance, accepted, name: "chance" })));
  const kept = acceptedOf(step);
  const difference = found.accepted === kept ? "as many as the rule that ran" : `the rule that ran kept ${kept}`;
  return [
    h("p.classic-title", {}, h("strong", "Not what ran: "), "the rule of 2023 looks at each guess in turn, from the first, and keeps it if its uniform draw is below p/q."),
    found.branch && h("p.soft", "It knows chains only; of this tree it judges the branch of first guesses."),
    h("ol.classic", {}, rows),
    h("p", `It would have kept ${counted(found.accepted, "guess", "guesses")}: ${difference}.`),
    found.residual?.length > 0 && h("p.alt-title", "The residual it would then draw from, p − q above 0"),
    found.residual?.length > 0 && oneDistribution(request, "r", found.residual),
  ].filter(Boolean);
}

function tableOf({ request, step }) {
  if (!step) return { columns: [], rows: [] };
  const value = (x) => (typeof x === "number" ? probability(x) : "–");
  return {
    columns: ["guess", "token", "after", "p", "q", "uniform draw", "weight", "outcome"],
    rows: step.tokens.map((token, node) => {
      const { p, q, uniform, weight, state } = step.nodes[node];
      return [node + 1, visible(request.text(token)), step.parents[node] < 0 ? "–" : step.parents[node] + 1, value(p), value(q), value(uniform), value(weight), state];
    }),
  };
}
