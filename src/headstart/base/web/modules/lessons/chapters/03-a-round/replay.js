// The round after "the", one step at a time: five guesses, one pass, three judgements, one correction.

import { fill, h } from "hs/base/dom";
import { probability } from "hs/base/format";
import { residual } from "hs/algorithm/distributions";
import { WORDS, recordedRound, target, words } from "hs/algorithm/toy";
import { figure } from "hs/figures/figure";
import { distributionBars } from "hs/figures/distributions";
import { die, judgementParts, wordParts } from "hs/lessons/chapters/03-a-round/die";

const VERBS = ["Draft", "Verify", "Accept or reject", "Commit"];
const said = (token) => `“${WORDS[token]}”`;

/** The steps: what each shows and says. */
export function stagesOf(round) {
  const text = words(round.context);
  const kept = round.judged.filter(({ accepted }) => accepted).length;
  return [
    { verb: 0, guesses: 0, judged: 0, at: -1, parts: [], u: null, say: `The text so far is “${text}”. Nothing has been guessed yet. Step on, with the arrow keys if you like.` },
    ...round.drafted.map((guess, i) => ({
      verb: 0, guesses: i + 1, judged: 0, at: i, q: guess.q, mark: guess.token, parts: wordParts(WORDS, guess.q, guess.token), u: guess.u,
      say: `After “${words(guess.context)}” the small model gives q. The die shows ${probability(guess.u)} and hits ${said(guess.token)}: this is guess ${i + 1}.`,
    })),
    { verb: 1, guesses: 5, judged: 0, at: -1, seen: true, parts: [], u: null, q: round.drafted[0].q, p: target(round.context), mark: round.drafted[0].token,
      say: `The large model reads all five guesses in one pass. It gives six distributions p: one after each word that it read. Now p of every guess is known.` },
    ...round.judged.map((each, i) => ({
      verb: 2, guesses: 5, judged: i + 1, at: i, seen: true, p: each.p, q: each.q, mark: each.token, parts: judgementParts(each.chance), u: each.u,
      say: judgement(each, i),
    })),
    { verb: 2, guesses: 5, judged: round.judged.length, at: round.judged.length - 1, seen: true, drawn: true, p: round.judged.at(-1).p, q: round.judged.at(-1).q,
      r: round.end.distribution, mark: round.end.token, parts: wordParts(WORDS, round.end.distribution, round.end.token), u: round.end.u,
      say: `In its place comes a word from the residual: what p has beyond q, scaled up to 1. The die shows ${probability(round.end.u)} and hits ${said(round.end.token)}.` },
    { verb: 3, guesses: 5, judged: round.judged.length, at: -1, seen: true, drawn: true, done: true, parts: [], u: null,
      say: `The text is now “${words([...round.context, ...round.emitted])}”: ${kept} guesses and the correction, ${round.emitted.length} words for one pass of the large model. ${listedRest(round)} thrown away.` },
  ];
}

function judgement({ token, p, q, chance, u, accepted }, i) {
  const facts = `Guess ${i + 1}, ${said(token)}: p = ${probability(p[token])}, q = ${probability(q[token])}.`;
  if (chance === 1) return `${facts} p is not below q, so the guess is kept, whatever the die shows.`;
  return `${facts} It is kept if the die shows less than p/q = ${probability(chance)}. It shows ${probability(u)}: ${accepted ? "kept" : "refused"}.`;
}

function listedRest({ drafted, judged }) {
  const rest = drafted.slice(judged.length).map(({ token }) => said(token));
  return rest.length ? `${rest.join(" and ")} ${rest.length === 1 ? "is" : "are"}` : "Nothing is";
}

/** The tallest bar of any step, so that the scale stays. */
const highest = (stages) => Math.max(...stages.flatMap(({ p = [0], q = [0], r = [0] }) => [...p, ...q, ...r]));

/** The figure. */
export function replay(round = recordedRound()) {
  const stages = stagesOf(round);
  const verbs = h("ol.verbs", { "aria-hidden": "true" }, VERBS.map((verb) => h("li", verb)));
  const context = h("p.round-text");
  const rows = h("table.round");
  const bars = distributionBars({ words: WORDS, p: undefined, q: undefined, height: 150, top: highest(stages) });
  const dice = die();
  const sentence = h("p.step-words");
  let now = stages[0];
  const show = (i) => {
    now = stages[i];
    [...verbs.children].forEach((verb, at) => verb.classList.toggle("now", at === now.verb && i > 0));
    fill(context, textOf(round, now));
    fill(rows, rowsOf(round, now));
    bars.element.classList.toggle("idle", !now.p && !now.q);
    bars.set({ p: now.p, q: now.q, r: now.r, mark: now.mark ?? -1 });
    dice.set(now);
    sentence.textContent = now.say;
  };
  return figure({
    label: "One round, from “the” to “the cat a cat”, step by step",
    title: true,
    body: [verbs, h("div.round-scene", {}, h("div", {}, context, rows), h("div", {}, bars.element, dice.element)), sentence],
    caption: "The ten-word models and the numbers of the die are those of a published tutorial, computed here again. The limit is p/q, or 1 where p is the larger: a guess is kept if the die shows less.",
    table: () => ({
      columns: ["word", "q", "p", "residual"],
      rows: WORDS.map((word, i) => [word, now.q ? probability(now.q[i]) : "–", now.p ? probability(now.p[i]) : "–", now.p && now.q ? probability(residual(now.p, now.q)[i]) : "–"]),
    }),
    steps: { count: stages.length, show, words: (i) => stages[i].say, first: round.drafted.length },
  }).element;
}

/** The text as it is: what is settled with its lines, and what is only guessed. */
function textOf(round, stage) {
  const kept = round.judged.slice(0, stage.judged).filter(({ accepted }) => accepted).map(({ token }) => h("span.tok.accepted", WORDS[token]));
  const ended = stage.drawn ? [h(`span.tok.${round.end.kind}`, WORDS[round.end.token])] : [];
  const open = stage.done ? [] : round.drafted.slice(stage.judged, stage.guesses).map(({ token }) => h("span.tok.guessed", WORDS[token]));
  const refused = stage.judged === round.judged.length && !stage.drawn ? [h("span.tok.refused", WORDS[round.judged.at(-1).token])] : [];
  const parts = [h("span.tok.prompt", words(round.context)), ...kept, ...refused, ...ended, ...(stage.drawn ? [] : open)];
  return parts.flatMap((part, i) => (i ? [" ", part] : [part]));
}

function rowsOf(round, stage) {
  const looked = (i) => i < stage.judged;
  const row = (name, cells) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell, i) => h("td", { class: i === stage.at ? "now" : "" }, cell)));
  const guesses = round.drafted.map(({ token }, i) => {
    if (i >= stage.guesses) return "";
    const state = looked(i) ? (round.judged[i].accepted ? "accepted" : "refused") : stage.done || (stage.drawn && i > stage.at) ? "beyond" : "guessed";
    return h(`span.tok.${state}`, WORDS[token]);
  });
  const of = (distribution, i) => probability(distribution(i)[round.drafted[i].token]);
  const each = (shown, value) => round.drafted.map((_, i) => (shown(i) ? value(i) : ""));
  const before = (i) => [...round.context, ...round.drafted.slice(0, i).map(({ token }) => token)];
  return [
    h("caption.unseen", "The guesses of the round, with what is known of each"),
    h("thead", {}, h("tr", {}, h("td"), round.drafted.map((_, i) => h("th", { scope: "col" }, String(i + 1))))),
    h("tbody", {},
      row("guess", guesses),
      row("q", each((i) => i < stage.guesses, (i) => of((at) => round.drafted[at].q, i))),
      row("p", each(() => stage.seen, (i) => of((at) => target(before(at)), i))),
      row("limit", each(looked, (i) => probability(round.judged[i].chance))),
      row("die", each(looked, (i) => probability(round.judged[i].u)))),
  ];
}
