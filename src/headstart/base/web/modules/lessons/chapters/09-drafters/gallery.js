// The gallery: each family drafts a few rounds, from a recording where there is one, else as an illustration on the toy.

import { calm, data, fill, h } from "hs/base/dom";
import { counted, day, fixed } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { legend, tokenText } from "hs/figures/text";
import { draftTree } from "hs/figures/tree";
import { FAMILIES } from "hs/lessons/chapters/09-drafters/families";
import { ILLUSTRATIONS } from "hs/lessons/chapters/09-drafters/toy-drafters";
import { parse } from "hs/trace/read";
import { acceptedOf, kindOf, rootToken, summary, treeNodes } from "hs/trace/rounds";

const ROUNDS = 8;
const PACE = 1250;
const PROMPT_SHOWN = 24;

/** The first recorded trace in which a family drafted: its own kind alone, or for a list at least two kinds. */
export function recordingOf(kind) {
  for (const each of data("traces") ?? []) {
    const kinds = new Set((each.lines[0].drafters ?? []).map((drafter) => drafter.kind));
    if (kind === "list" ? kinds.size > 1 : kinds.size === 1 && kinds.has(kind)) return each;
  }
  return null;
}

/** A replay from a recording: rounds that show a draft, and the text that they make. */
function recorded({ title, lines }) {
  const trace = parse(lines);
  const request = trace.requests[0];
  const steps = request.steps.map((step, index) => ({ step, index })).filter(({ step }) => step.procedure !== "read");
  const prompt = request.promptTokens.slice(-PROMPT_SHOWN).map((token) => request.text(token));
  const rounds = steps.slice(0, ROUNDS).map(({ step, index }) => ({
    root: request.text(rootToken(request, index)),
    nodes: treeNodes(request, step),
    path: step.path,
    emitted: step.emitted.map((token) => request.text(token)),
    accepted: acceptedOf(step),
    kind: kindOf(step),
    says: saysOf(step),
  }));
  const found = summary(request);
  const made = day(trace.header.created ?? "");
  return {
    prompt, rounds, joint: "",
    origin: `Recorded from a real run (“${title}”, ${made}${trace.header.versions?.headstart ? `, headstart ${trace.header.versions.headstart}` : ""}, target: ${trace.header.engine.target}). All of that run: ${fixed(found.tokensPerForward)} tokens per forward.`,
  };
}

const saysOf = (step) => (step.tokens.length ? `${step.source} guesses ${counted(step.tokens.length, "token")}.` : "No guess here.");

function replayOf(kind) {
  const found = recordingOf(kind);
  if (found) return recorded(found);
  const toy = ILLUSTRATIONS[kind]();
  return { ...toy, joint: " ", origin: `An illustration, not a recording: a drafter of this kind on our ten words, and ${toy.how}. Its figures say nothing about real models.` };
}

/** The whole gallery as one figure. */
export function gallery() {
  const replays = new Map();
  const now = { family: FAMILIES[0], replay: null, timer: null };
  const about = h("dl.facts.family-facts");
  const tree = draftTree({ label: "The guesses of this round" });
  const text = tokenText({ label: "The text so far" });
  const says = h("p.round-event");
  const origin = h("p.soft.gallery-origin");
  const select = h("select", { "aria-label": "Family of drafters", on: { change: () => choose(FAMILIES[Number(select.value)]) } },
    FAMILIES.map(({ name }, i) => h("option", { value: i }, name)));
  const play = button("Play", () => (now.timer ? stop() : start()), { quiet: true });
  const frame = figure({
    label: "Drafters at work, round by round",
    title: true,
    body: [h("div.gallery-choice", {}, h("label", {}, h("span.soft", "Drafter "), select), play), about, says, h("div.gallery-tree", {}, tree.element), legend(["accepted", "correction", "bonus"]), h("div.gallery-text", {}, text.element)],
    caption: origin,
    steps: { count: () => now.replay?.rounds.length ?? 1, show, words: (i) => wordsOf(now.replay.rounds[i], i) },
    table: () => ({
      columns: ["round", "guesses", "accepted", "tokens"],
      rows: (now.replay?.rounds ?? []).map((round, i) => [String(i + 1), String(round.nodes.length), String(round.accepted), String(round.emitted.length)]),
    }),
  });

  function choose(family) {
    stop();
    if (!replays.has(family.kind)) replays.set(family.kind, replayOf(family.kind));
    Object.assign(now, { family, replay: replays.get(family.kind) });
    fill(about, [["It looks", family.looks], ["It costs", family.costs], ["Good for", family.good]].map(([name, value]) => h("div", {}, h("dt", name), h("dd", value))));
    origin.textContent = now.replay.origin;
    frame.go(0);
    frame.update();
  }

  function show(i) {
    if (!now.replay) return;
    const round = now.replay.rounds[i];
    tree.element.hidden = round.nodes.length === 0;
    tree.set({ nodes: round.nodes, path: round.path, root: round.root });
    says.textContent = `${round.says} ${outcome(round)}`;
    text.set({ tokens: textUpTo(now.replay, i), at: i });
  }

  function start() {
    play.textContent = "Pause";
    frame.go(0);
    now.timer = setInterval(() => {
      if (!frame.element.isConnected || frame.step.value >= now.replay.rounds.length - 1) stop();
      else frame.go(frame.step.value + 1);
    }, calm() ? 2 * PACE : PACE);
  }

  function stop() {
    clearInterval(now.timer);
    now.timer = null;
    play.textContent = "Play";
  }

  choose(FAMILIES[0]);
  return frame.element;
}

function outcome(round) {
  if (!round.nodes.length) return "The target says one token.";
  const kept = round.accepted ? `${counted(round.accepted, "guess", "guesses")} kept` : "No guess kept";
  return `${kept}, ${counted(round.emitted.length, "token")} in all.`;
}

const wordsOf = (round, i) => `Round ${i + 1}. ${round.says} ${outcome(round)}`;

function textUpTo({ prompt, rounds, joint }, last) {
  const piece = (text, i) => (joint && i > 0 ? joint + text : text);
  const before = prompt.map((text, i) => ({ text: piece(text, i), origin: "prompt" }));
  const after = rounds.slice(0, last + 1).flatMap((round, step) =>
    round.emitted.map((text, i) => ({ text: piece(text, 1), origin: i < round.accepted ? "accepted" : round.kind, step })));
  return [...before, ...after];
}
