// The exact distribution's answer: what a listing emits beside p, in bars, fractions and words.

import { h } from "hs/base/dom";
import { percent } from "hs/base/format";
import { short } from "hs/lessons/chapters/04-nothing-changes/two-distributions";
import { WORDS, exactDistribution, exactMetric } from "hs/lessons/chapters/05-find-the-bug/listings";

const decimal = (value) => value.toDecimal(3).replace(/^0/, "");

/** What the listing's distribution is, and how far it is from p. */
export function evidenceOf(listing) {
  return listing.kind === "metric" ? metricEvidence(false) : distributionEvidence(exactDistribution(listing, listing.judge), listing);
}

/** The same of the fixed listing. */
export function mendedEvidence(listing, right) {
  return listing.kind === "metric" ? metricEvidence(true) : distributionEvidence(exactDistribution(listing, right), listing);
}

function distributionEvidence({ distribution, p, word, text, texts, broken, silent }) {
  const exact = text.isZero();
  const words = [];
  if (!broken.isZero()) words.push(`${percent(broken.toNumber())} of the rounds break down; what follows is the distribution of those that do not. `);
  if (!silent.isZero()) words.push(`${percent(silent.toNumber())} of the rounds write nothing at all. `);
  words.push(
    exact
      ? `The distribution of the next word is p, and the distribution of ${texts} texts of three words is the target’s: distance 0, in exact fractions.`
      : word.isZero()
        ? `The distribution of the next word is p, but that of texts of three words is ${decimal(text)} away.`
        : `The distribution of the next word is ${short(word)} = ${decimal(word)} away from p; that of texts of three words ${decimal(text)}.`,
  );
  return h(
    "div.evidence",
    {},
    h("p.chart-name", "what it writes next, in bars; the upright line is p"),
    WORDS.map((name, i) => lane(name, distribution[i], p[i], distribution[i].equals(p[i]))),
    h(exact ? "p.verdict.right" : "p.verdict.wrong", {}, `${exact ? "✓" : "✗"} `, words.join("")),
  );
}

function metricEvidence(mended) {
  const { printed, kept, judged, alpha } = exactMetric();
  const shown = mended ? kept : printed;
  const row = (name, value, good) => h("div.lane.named", {}, h("span.lane-word", name), well(value, good), h("span.lane-value", percent(value.toNumber(), 1)));
  return h(
    "div.evidence",
    {},
    h("p.chart-name", "exact means of a round with K = 2"),
    row("it prints", shown, mended),
    row("kept, of the guesses made", kept, true),
    row("kept, of those looked at", judged, true),
    h(
      mended ? "p.verdict.right" : "p.verdict.wrong",
      {},
      mended
        ? `✓ It prints what was kept of what was made, ${short(kept)}. The chance to keep a guess that is looked at is another number, α = ${short(alpha)}.`
        : `✗ It prints ${percent(printed.toNumber(), 1)} where ${percent(kept.toNumber(), 1)} of the guesses made were kept. The distribution of the text is p all the while: no audit of the text would find this.`,
    ),
  );
}

function lane(name, value, p, good) {
  const marked = well(value, good);
  marked.append(h("div.lane-mark", { style: { left: `${100 * p.toNumber()}%` } }));
  return h("div.lane.wide", {}, h("span.lane-word", name), marked, h("span.lane-value", short(value)));
}

const well = (value, good) => h("div.lane-well", {}, h(good ? "div.lane-fill" : "div.lane-fill.off", { style: { width: `${Math.min(100, 100 * value.toNumber())}%` } }));
