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
  const tile = (value, words, more) => h("div.tile", {}, h("dt", words), h("dd", {}, h("strong", value), more && h("span.soft", more)));
  return h(
    "dl.tiles",
    {},
    tile(fixed(found.tokensPerForward), "tokens per forward", "1 is plain decoding"),
    tile(String(found.tokens), "tokens", speed),
    tile(String(found.forwards), "forwards of the target", found.plainRounds ? `${found.plainRounds} without a draft` : seconds(found.seconds.total)),
    tile(found.drafted ? percent(found.acceptedOfDrafted) : "–", "of the guesses accepted", `${found.accepted} of ${found.drafted}`),
  );
}

/** Everything under the rounds. onRound(step) is called with an index into request.steps. */
export function accountOf(request, found, onRound) {
  return h(
    "div.account",
    {},
    found.conditional.length > 0 && byDepth(found),
    whatIfOf(request),
    found.sources.length > 1 && bySource(found),
    found.lost.length > 0 && lostOf(request, found, onRound),
  );
}

const bar = (share) => h("span.account-bar", { "aria-hidden": "true" }, h("span", { style: { width: `${Math.max(0.5, 100 * share)}%` } }));

function byDepth(found) {
  return h("section", { "aria-label": "Acceptance by depth" }, h("h2", "Acceptance by depth"),
    h("p", "How often a guess at this depth was accepted, once all before it were."),
    h("div.scroll-table", {}, tableOf({
      columns: ["depth", "accepted of tested", "share", ""],
      rows: found.conditional.map(({ depth, tested, accepted, share }) => [String(depth), `${accepted} of ${tested}`, percent(share), bar(share)]),
    })));
}

function bySource(found) {
  return h("section", { "aria-label": "By source" }, h("h2", "Who guessed"),
    h("div.scroll-table", {}, tableOf({
      columns: ["source", "rounds", "accepted of guessed", "tokens per forward"],
      rows: found.sources.map(({ source, rounds, drafted, accepted, tokensPerForward }) => [source || "nobody", String(rounds), drafted ? `${accepted} of ${drafted}` : "–", fixed(tokensPerForward)]),
    })));
}

function lostOf(request, found, onRound) {
  const rows = found.lost.slice(0, LOST_SHOWN).map(({ step, i, lost, token, wanted, depth }) =>
    h("li", {}, h("button.quiet", { type: "button", on: { click: () => onRound(step) } }, `Round ${i + 1}`),
      h("span", {}, `${counted(lost, "guess", "guesses")} for nothing: at depth ${depth} `, h("span.tok.refused", visible(request.text(token))), " was refused; the target wanted ", h("span.tok.correction", visible(request.text(wanted))), ".")));
  return h("section", { "aria-label": "Where guesses were lost" }, h("h2", "Where guesses were lost"), h("ul.lost", {}, rows),
    found.lost.length > LOST_SHOWN && h("p.soft", `and ${counted(found.lost.length - LOST_SHOWN, "round")} more.`));
}

/** "What if K were": tokens per forward for shorter drafts. */
function whatIfOf(request) {
  const most = deepest(request);
  if (most === 0) return null;
  const ks = Array.from({ length: most + 1 }, (_, k) => k).filter((k) => k <= LONGEST || k === most);
  const answers = ks.map((k) => whatIf(request, k));
  const best = Math.max(...answers.map((each) => each.tokensPerForward));
  const about = answers.some((each) => !each.exact);
  return h("section", { "aria-label": "What if K were" }, h("h2", "What if K were …"),
    h("p", wordsOf(answers)),
    h("div.scroll-table", {}, tableOf({
      columns: ["K", "forwards", "tokens per forward", "", ""],
      rows: answers.map((each) => [String(each.k), forwardsOf(each), fixed(each.tokensPerForward), bar(each.tokensPerForward / best), h("span.how", howOf(each))]),
    })),
    about && h("p.soft", "Fewer forwards are not yet less time: each further guess costs drafting, and a wider forward."));
}

function wordsOf(answers) {
  if (answers.some((each) => each.how === "by depth")) {
    return "Shorter drafts, as the acceptance by depth foretells them: an estimate. With other drafts, this text itself would have been another of the same law.";
  }
  return "Shorter drafts, cut from this run: the text would be the same. Where a draft was accepted whole, nobody knows whether it would have gone on to be right, so there are two bounds.";
}

const forwardsOf = ({ forwards, least, most, exact }) => {
  if (exact) return String(forwards);
  return least === most ? `about ${fixed(forwards, 1)}` : `${least} to ${most}`;
};
const howOf = ({ how, exact }) => (how === "as recorded" ? "as recorded" : exact ? "exact" : "estimate");
