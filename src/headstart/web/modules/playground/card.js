// The card of one token: which round, who guessed, what both models thought, what decided, what else could have come.

import { h } from "hs/base/dom";
import { probability, visible } from "hs/base/format";
import { childrenOf } from "hs/trace/rounds";

const ORIGINS = {
  accepted: "A guess of the drafter, accepted",
  correction: "A correction: the guess here was refused",
  bonus: "A bonus: the whole draft was accepted",
  plain: "Plain: nothing was guessed in this round",
};
const ALTERNATIVES = 5;

/** What is to be known of a token of a run; the same facts as text for the pinned card and the floating one. */
export function tokenCard(run, index) {
  const token = run.tokens[index];
  const step = run.request.steps[token.step];
  const place = token.at === 0 ? -1 : step.path[token.at - 1];
  return h("div.token-card", {},
    h("p.card-title", {}, h(`span.tok.${token.origin}`, visible(run.request.text(token.token))), h("span.soft", ORIGINS[token.origin])),
    h("p.card-round", roundWords(run, token, step)),
    bars(run, token, step),
    h("p.card-decision", decisionOf(run, token, step, place)),
    alternatives(run, token, step, place),
    h("p.card-reason.soft", reasonOf(step)));
}

function roundWords(run, token, step) {
  const round = `Round ${token.step + 1} of ${run.request.steps.length}`;
  if (token.origin === "plain") return round;
  const guess = token.node === null ? "" : `, guess ${token.at + 1} of ${step.path.length} accepted`;
  return `${round}: ${step.source || "nobody"} guessed ${step.tokens.length}${guess}`;
}

/** p, and q where the token was drawn from it, as bars. In a greedy run the model's own softmax is shown. */
function bars(run, token, step) {
  const greedy = run.request.greedy;
  const p = greedy ? token.model : token.p;
  const shown = [[greedy ? "model" : "p, the target", p, "p"], ["q, the drafter", token.q, "q"]].filter(([, value]) => value !== null);
  if (!shown.length || step.procedure === "read") return null;
  return h("div.card-bars", {}, shown.map(([name, value, law]) =>
    h("div.law-row", {}, h("span", name), barOf(value, law), h("b", probability(value)))));
}

const barOf = (value, law) =>
  h("span.law-bar", { "aria-hidden": "true" }, h(`span.${law}`, { style: { width: `${Math.max(1, 100 * value)}%` } }));

/** What decided, in words: the rule that ran. */
function decisionOf(run, token, step, place) {
  const { greedy } = run.request;
  if (step.procedure === "plain") return greedy ? "The likeliest token was taken." : "Drawn from the target's law.";
  if (token.node === null) {
    if (token.origin === "bonus") return "Nothing was left to judge, so the target's law gave one token more.";
    const refused = childrenOf(step)[place + 1].map((node) => `“${visible(run.request.text(step.tokens[node]))}”`);
    const how = step.procedure === "walk" ? (greedy ? "the target's likeliest token" : "the target's own draw") : "drawn from what the rule had left of the target's law";
    return `${refused.join(", ")} ${refused.length > 1 ? "were" : "was"} refused; this is ${how}.`;
  }
  if (step.procedure === "walk") return greedy ? "The target's likeliest token is the guess." : "The target drew its own token, and it is the guess.";
  if (token.weight === null) return "Its own coin was not needed: a guess behind it was accepted, and it with it.";
  return `Coin ${probability(token.coin)} lies below weight ${probability(token.weight)}: accepted.`;
}

function alternatives(run, token, step, place) {
  const law = step.laws[place + 1];
  if (!law) return null;
  const entries = (run.request.greedy ? law.model : law.p) ?? law.p;
  const shown = entries.slice(0, ALTERNATIVES);
  return h("div.card-others", {}, h("p.soft", "The target's likeliest here"),
    h("ol", {}, shown.map(([id, p]) => h("li.law-row", { class: id === token.token ? "own" : "" },
      h("span.tok", visible(run.request.text(id))), barOf(p, "p"), h("b", probability(p))))));
}

/** Why so much was guessed. */
export function reasonOf({ budget, procedure }) {
  if (!budget.reason) return procedure === "plain" ? "Nothing was to be guessed." : "";
  return `Budget ${budget.nodes}: ${budget.reason}`;
}
