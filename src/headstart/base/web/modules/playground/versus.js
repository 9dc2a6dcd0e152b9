// "Against plain": the same request run again afterwards without guesses; both clocks, and whether the texts are the
// same bit for bit, or why they need not be.

import { fill, h } from "hs/base/dom";
import { counted, fixed, seconds, whole } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figuresOf } from "hs/playground/figures";

/** The first place where two runs have different tokens; null where neither does as far as both go. */
export function parting(one, other) {
  const [a, b] = [idsOf(one), idsOf(other)];
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return i;
  return null;
}

const idsOf = (run) => run.request?.steps.flatMap((step) => step.emitted) ?? [];

/** Whether two runs wrote the same: every token and every character. */
export const isSame = (one, other) => one.text === other.text && String(idsOf(one)) === String(idsOf(other));

/**
 * What is to be said of the two texts.
 * @returns {{sign: "same"|"differs"|"cut", title: string, words: string, offer: boolean}} offer: whether it helps to run
 *   both at temperature 0.
 */
export function verdictOf(guessed, plain, about) {
  const greedy = guessed.values.temperature === 0;
  const count = counted(idsOf(guessed).length, "token");
  const whole = [guessed, plain].every((run) => run.status.value === "done");
  const at = parting(guessed, plain);
  if (!whole && at === null) {
    const both = Math.min(idsOf(guessed).length, idsOf(plain).length);
    return { sign: "cut", title: `Equal as far as both go: ${counted(both, "token")}`, words: "One of the two did not run to its end.", offer: false };
  }
  if (isSame(guessed, plain)) {
    const why = greedy
      ? "At temperature 0 there is one text, and guesses cannot change it."
      : about.rule !== "exact"
        ? "Rule coupled promises it: one seed, one text, however it is guessed."
        : "At this temperature it need not have been: rule exact keeps the distribution of the text, not each text.";
    return { sign: "same", title: `Same text, bit for bit: ${count}`, words: why, offer: false };
  }
  const place = at === null ? "One text is the beginning of the other." : `They part at token ${at + 1}.`;
  if (!greedy && about.rule === "exact") {
    return {
      sign: "differs",
      title: "Two texts of one distribution",
      words: `${place} They may: rule exact promises that texts with guesses are as likely as without, each one of them. ` +
        "It does not promise the same draw, because a round with guesses spends the seed’s numbers in another order. " +
        "The same text comes at temperature 0, or from a server that was not started with --rule exact.",
      offer: true,
    };
  }
  return {
    sign: "differs",
    title: "The texts differ",
    words: about.width_invariant
      ? `${place} They should not: please report it, with both traces.`
      : `${place} In ${about.dtype}, a forward of several rows rounds otherwise than one of a single row, and where two ` +
        "tokens are all but equally likely, the other may win. In float32 with the library’s own kernels this does not happen.",
    offer: false,
  };
}

/**
 * The comparison of two runs of the same request.
 * @param {{guessed, plain, about, onGreedy: () => void, onShow: (run) => void}} options about: the model's facts.
 */
export function versusPanel({ guessed, plain, about, onGreedy, onShow }) {
  const verdict = verdictOf(guessed, plain, about);
  const [fast, slow] = [figuresOf(guessed), figuresOf(plain)];
  const most = Math.max(fast.total, slow.total);
  const ratio = slow.after / slow.tokens / (fast.after / fast.tokens);
  return h("section.versus", { "aria-label": "Against plain decoding" },
    h("h3", "Against plain"),
    h("p.ratio", {}, Number.isFinite(ratio) ? ratioWords(ratio) : "One of the two wrote nothing."),
    clock("With guesses", guessed, fast, most, onShow),
    clock("Plain", plain, slow, most, onShow),
    h("p.soft.clock-note", noteOf(fast, slow)),
    h(`div.verdict.${verdict.sign}`, {}, h("span.sign", { "aria-hidden": "true" }, { same: "=", differs: "≠", cut: "…" }[verdict.sign]),
      h("div", {}, h("p.notice-title", verdict.title), h("p", verdict.words),
        verdict.offer && button("Run both at temperature 0", onGreedy, { quiet: true }))));
}

const ratioWords = (ratio) => [h("b", `${fixed(ratio, 2)}×`), ` the speed of plain decoding, token by token after the first.`];

function clock(name, run, figures, most, onShow) {
  const width = (value) => ({ style: { width: `${(100 * value) / most}%` } });
  return h("div.clock", {}, h("span.clock-name", name),
    h("span.clock-words", `${seconds(figures.total)}, ${figures.speed === null ? "–" : fixed(figures.speed, 1)} tokens/s`),
    button("Show", () => onShow(run), { quiet: true, label: `Show the answer: ${name.toLowerCase()}` }),
    h("span.clock-bar", { "aria-hidden": "true" }, h("span.first", width(figures.first ?? 0)), h("span.rest", width(figures.after ?? 0))));
}

function noteOf(fast, slow) {
  const held = slow.cached !== fast.cached && slow.cached !== null
    ? ` The prompt was cached for ${whole(slow.cached)} tokens the second time, for ${whole(fast.cached)} the first, so the ratio leaves the first token out.`
    : "";
  return "The pale part is the time to the first token. One ran after the other, both were recorded, and one pair of " +
    `runs says little where the machine does other things, too: headstart bench measures.${held}`;
}

/** A place for the panel while the second run is under way. */
export const versusWaiting = () => h("section.versus", { "aria-label": "Against plain decoding" }, h("h3", "Against plain"), h("p.soft", "Running the same without guesses …"));

/** Fill a holder with the panel, or empty it. */
export const showVersus = (holder, options) => fill(holder, options ? versusPanel(options) : null);
