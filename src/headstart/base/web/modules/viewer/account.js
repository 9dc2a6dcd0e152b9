// What a request adds up to: tiles with its figures, acceptance by depth and source, lost rounds, and other draft lengths.

import { h } from "hs/base/dom";
import { counted, fixed, percent, seconds, visible } from "hs/base/format";
import { tableOf } from "hs/figures/figure";
import { deepest, whatIf } from "hs/trace/what-if";

const LOST_SHOWN = 6;
const LONGEST = 12;

/** The figures that matter, large. */
export function tiles(request, found) {
  const speed = found.seconds.total > 0 ? `${fixed(found.tokens / found.seconds.total, 0)} a second` : "";
  const tile = (value, words, more) => h("div.tile", {}, h("dt", words), h("dd.tile-value", value), more && h("dd.soft", more));
  return h(
    "dl.tiles",
    {},
    tile(fixed(found.tokensPerForward), "tokens per forward", "1 is plain decoding"),
    tile(String(found.tokens), "tokens", speed),
    tile(String(found.forwards), "forwards of the target", found.plainRounds ? `${found.plainRounds} without a draft` : seconds(found.seconds.total)),
    tile(found.judged ? percent(found.alpha) : "–", "accepted of judged", `${found.kept} of ${found.judged} guesses; ${found.drafted} drafted`),
  );
}

/** Everything under the rounds. onRound(step) is called with an index into request.steps. */
export function accountOf({ trace, request, found, heading = "h2" }, onRound) {
  return h(
    "div.account",
    {},
    h("div", {}, found.conditional.length > 0 && byDepth(heading, found), found.lost.length > 0 && lostOf(heading, request, found, onRound)),
    h("div", {}, whatIfOf(heading, trace, request, found), found.sources.length > 1 && bySource(heading, found)),
  );
}

/** A table that may be wider than its place. */
const scrolling = (label, table) => h("div.scroll-table", { tabindex: "0", role: "region", "aria-label": label }, table);

const bar = (share) => h("span.account-bar", { "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(0.5, 100 * share)}%` } }));

function byDepth(heading, found) {
  return h("section", { "aria-label": "Acceptance by depth" }, h(heading, "Acceptance by depth"),
    h("p", "How often a guess at this depth was accepted, once all before it were."),
    scrolling("Acceptance by depth, as a table", tableOf({
      columns: ["depth", "accepted of tested", "share", ""],
      rows: found.conditional.map(({ depth, tested, accepted, share }) => [String(depth), `${accepted} of ${tested}`, percent(share), bar(share)]),
    })));
}

function bySource(heading, found) {
  return h("section", { "aria-label": "By source" }, h(heading, "Who guessed"),
    scrolling("Sources, as a table", tableOf({
      columns: ["source", "rounds", "accepted of guessed", "tokens per forward"],
      rows: found.sources.map(({ source, rounds, drafted, accepted, tokensPerForward }) => [source || "nobody", String(rounds), drafted ? `${accepted} of ${drafted}` : "–", fixed(tokensPerForward)]),
    })));
}

function lostOf(heading, request, found, onRound) {
  const told = ({ lost, token, wanted, depth }) => {
    const levels = counted(lost, "level");
    if (token === null) return [`${levels} of another branch came to nothing.`];
    return [`${levels} for nothing: at depth ${depth} `, h("span.tok.refused", visible(request.text(token))), " was refused; the target wanted ", h("span.tok.correction", visible(request.text(wanted))), "."];
  };
  const rows = found.lost.slice(0, LOST_SHOWN).map((each) =>
    h("li", {}, h("button.quiet", { type: "button", on: { click: () => onRound(each.step) } }, `Round ${each.i + 1}`), h("span", {}, told(each))));
  return h("section", { "aria-label": "Where guesses were lost" }, h(heading, "Where guesses were lost"), h("ul.lost", {}, rows),
    found.lost.length > LOST_SHOWN && h("p.soft", `and ${counted(found.lost.length - LOST_SHOWN, "round")} more.`));
}

/** "What if K were": tokens per forward for other draft lengths. */
function whatIfOf(heading, trace, request, found) {
  const most = deepest(request);
  if (most === 0) return null;
  const ks = Array.from({ length: most + 3 }, (_, k) => k).filter((k) => k <= LONGEST || k === most);
  const answers = ks.map((k) => whatIf(trace, request, k));
  const best = Math.max(...answers.map((each) => each.tokensPerForward[1]));
  const timed = answers.some((each) => each.seconds !== null);
  const row = ([each, last]) => [
    each === last ? String(each.k) : `${each.k} to ${last.k}`, forwardsOf(each), rateOf(each), bar((each.tokensPerForward[0] + each.tokensPerForward[1]) / 2 / best),
    ...(timed ? [each.seconds === null ? "–" : seconds(each.seconds)] : []), h("span.how", each.recorded ? "it ran" : HOW[each.label]),
  ];
  return h("section", { "aria-label": "What if K were" }, h(heading, "What if K were …"),
    h("p", [againstPlain(answers[0].seconds, found.seconds.total), wordsOf(answers)].filter(Boolean).join(" ")),
    scrolling("Other draft lengths, as a table", tableOf({ columns: ["K", "forwards", "tokens each", "", ...(timed ? ["about"] : []), ""], rows: together(answers).map(row) })));
}

/** What the run gained or lost by speculation. Its own times are noisy: a difference of a twentieth is none. */
function againstPlain(plain, took) {
  if (plain === null || !(took > 0)) return "";
  const [ran, would] = [`this run took ${seconds(took)}`, `plain decoding would have taken about ${seconds(plain)}`];
  if (plain > 1.05 * took) return `Speculation paid: ${ran}, and ${would}.`;
  return plain < took / 1.05 ? `Speculation lost: ${ran}, and ${would}.` : `Speculation changed little: ${ran}, and ${would}.`;
}

/** Neighbours that differ in nothing but K, as [first, last]. */
function together(answers) {
  const shown = (each) => JSON.stringify([each.recorded, each.label, forwardsOf(each), rateOf(each), each.seconds === null ? "" : seconds(each.seconds)]);
  const groups = [];
  for (const each of answers) {
    if (groups.length && shown(groups.at(-1)[1]) === shown(each)) groups.at(-1)[1] = each;
    else groups.push([each, each]);
  }
  return groups;
}

/** Why the answers are no more than they are; of all drafts shorter than those that ran. */
function wordsOf(answers) {
  const recorded = answers.find((each) => each.recorded)?.k ?? Infinity;
  const reasons = [...new Set(answers.filter(({ k, label }) => k > 0 && k < recorded && label !== "exact").map(({ why }) => why))];
  if (reasons.length === 0) return "Shorter drafts, cut from this run: the text and the guesses would be the same. Longer ones are an estimate.";
  return `Other drafts can only be estimated, or known between bounds: ${reasons.join("; ")}.`;
}

const HOW = { exact: "exact", between: "between", estimate: "estimate" };
const forwardsOf = ({ label, recorded, fewest, most }) => {
  if (fewest.forwards !== most.forwards) return `${fewest.forwards} to ${most.forwards}`;
  return label === "estimate" && !recorded ? `about ${fixed(most.forwards, 0)}` : String(most.forwards);
};
const rateOf = ({ tokensPerForward: [low, high] }) => (fixed(low) === fixed(high) ? fixed(low) : `${fixed(low)} to ${fixed(high)}`);
