// The viewer of one trace: its text with origins, its rounds, one round explained, and what it all adds up to.

import { announce } from "hs/base/announce";
import { calm, fill, h } from "hs/base/dom";
import { counted, visible } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { roundStrip, roundWords, stripLegend, timeWords } from "hs/figures/strip";
import { legend, tokenText } from "hs/figures/text";
import { draftsAhead } from "hs/trace/ahead";
import { roundsOf, summary, tokensOf } from "hs/trace/rounds";
import { aheadView } from "hs/viewer/ahead";
import { tokenCard } from "hs/viewer/card";
import { provenance, samplingOf } from "hs/viewer/provenance";
import { roundView } from "hs/viewer/round";
import { accountOf, tiles } from "hs/viewer/account";

const PROMPT_SHOWN = 160;
const PACE = 1100;

/**
 * @param {{trace: object, heading?: string}} options a trace of `hs/trace/read`; the headings' element: "h2"
 * @returns {{element: HTMLElement, show: (trace: object) => void, go: (request: number, step: number) => void,
 *   stop: () => void}} `go` moves to a request (its place in the trace) and a step of it.
 */
export function viewer({ trace, heading = "h2" }) {
  const element = h("div.viewer");
  const now = { trace: null, request: null, tokens: [], rounds: [], step: 0, timer: null };
  const parts = partsOf();

  function partsOf() {
    const card = tokenCard();
    const round = roundView();
    const text = tokenText({ onPick: (index) => pickToken(index - now.before) });
    const told = h("p.step-words");
    const strip = roundStrip({ onPick: (index) => goStep(index, { quiet: true }) });
    const stripFigure = figure({
      label: "The rounds: the time of each, and the tokens that it gave",
      body: [strip.element, told],
      controls: stripLegend(),
      caption: "A round is as wide as it took long. Above it are its tokens: accepted guesses filled, corrections dotted, bonuses in blue outline. The arrow keys go along.",
      table: () => tableOf(now.rounds),
    });
    const ahead = aheadView({ heading, onPick: (index) => goStep(index, { quiet: true }) });
    const back = button("Round before", () => goStep(now.step - 1), { quiet: true });
    const on = button("Round after", () => goStep(now.step + 1), { quiet: true });
    const play = button("Play", () => (now.timer ? stop() : start()), { quiet: true });
    return { card, round, text, strip, told, stripFigure, ahead, back, on, play };
  }

  function show(next) {
    stop();
    now.trace = next;
    const chooser = next.requests.length > 1 ? chooserOf() : null;
    const body = h("div.viewer-body");
    parts.body = body;
    fill(element, provenance(next), next.warnings.map((words) => h("p.warning", {}, h("strong", "Note: "), words)), chooser, body);
    if (next.requests.length === 0) return fill(body, h("p", "This trace has no requests."));
    showRequest(0);
  }

  function chooserOf() {
    const select = h("select", { "aria-label": "Request", on: { change: () => showRequest(Number(select.value)) } },
      now.trace.requests.map((request, i) => h("option", { value: i }, nameOf(request))));
    parts.select = select;
    return h("label.request-choice", {}, h("span", counted(now.trace.requests.length, "request")), select);
  }

  function showRequest(index) {
    stop();
    const request = now.trace.requests[index];
    Object.assign(now, { request, tokens: tokensOf(request), rounds: roundsOf(request) });
    if (parts.select) parts.select.value = index;
    const prompt = promptOf(request);
    now.before = prompt.length;
    parts.text.set({ tokens: [...prompt, ...now.tokens], selected: null, at: null });
    parts.card.set(null);
    if (request.steps.length === 0) return fill(parts.body, h("p", "No step of this request was recorded."));
    const found = summary(request);
    fill(
      parts.body,
      tiles(request, found),
      h("section.viewer-text", { "aria-label": "The text" },
        h("div.text-side", {}, h(heading, "The text"), legend(originsOf(now.tokens)), parts.text.element, h("p.soft", samplingOf(request))),
        h("aside.card-side-panel", { "aria-label": "The chosen token" }, parts.card.element)),
      h("section", { "aria-label": "Rounds" }, h(heading, "Rounds"), parts.stripFigure.element,
        h("div.round-controls", {}, parts.back, parts.on, parts.play), parts.round.element),
      draftsAhead(request) && parts.ahead.element,
      accountOf({ trace: now.trace, request, found, heading }, (step) => {
        goStep(step);
        parts.round.element.scrollIntoView({ behavior: calm() ? "auto" : "smooth", block: "start" });
      }),
    );
    parts.strip.set({ rounds: now.rounds, at: 0 });
    parts.told.textContent = timeWords(now.rounds);
    parts.stripFigure.update();
    if (draftsAhead(request)) parts.ahead.set(request, found);
    const first = now.rounds.findIndex((round) => round.kind !== "read");
    goStep(Math.max(0, first), { quiet: true });
    if (now.tokens.length) {
      parts.text.set({ selected: now.before });
      pickToken(0);
    }
  }

  function goStep(index, { quiet = false, event } = {}) {
    const step = Math.max(0, Math.min(now.rounds.length - 1, index));
    now.step = step;
    parts.strip.set({ at: step });
    parts.text.set({ at: step });
    parts.round.set(now.request, now.request.steps[step]);
    if (draftsAhead(now.request)) parts.ahead.go(step);
    if (event !== undefined) parts.round.go(event);
    parts.back.disabled = step === 0;
    parts.on.disabled = step === now.rounds.length - 1;
    if (!quiet) announce(roundWords(now.rounds[step], step));
  }

  function pickToken(index) {
    const token = now.tokens[index];
    parts.card.set({ token, step: now.request.steps[token.step], request: now.request });
    if (token.step !== now.step) goStep(token.step, { quiet: true });
  }

  function start() {
    parts.play.textContent = "Pause";
    goStep(now.step, { event: 0 });
    now.timer = setInterval(() => {
      const at = parts.round.at();
      if (at < parts.round.events() - 1) parts.round.go(at + 1);
      else if (now.step < now.rounds.length - 1) goStep(now.step + 1, { quiet: true, event: 0 });
      else stop();
    }, PACE);
  }

  function stop() {
    clearInterval(now.timer);
    now.timer = null;
    parts.play.textContent = "Play";
  }

  function go(request, step) {
    if (now.trace.requests[request] !== now.request) showRequest(request);
    goStep(step);
  }

  show(trace);
  return { element, show, go, stop };
}

const originsOf = (tokens) => [...new Set(tokens.map((token) => token.origin))];

function nameOf(request) {
  const words = (request.prompt ?? request.promptTokens.join(" ")).trim().replaceAll("\n", " ");
  return `${request.number}: ${words.length > 50 ? `${words.slice(0, 49)}…` : words}`;
}

/** The end of the prompt, and what was emitted before the recording, as tokens of a text. */
function promptOf(request) {
  const ids = [...request.promptTokens, ...request.before];
  const shown = ids.slice(-PROMPT_SHOWN).map((token) => ({ text: request.text(token), origin: "prompt" }));
  return ids.length > PROMPT_SHOWN ? [{ text: "… ", origin: "prompt" }, ...shown] : shown;
}

function tableOf(rounds) {
  const ms = (value) => (1000 * value).toFixed(2);
  return {
    columns: ["round", "guesses", "accepted", "tokens", "end", "plan ms", "draft ms", "verify ms", "sample ms", "commit ms"],
    rows: rounds.map(({ i, drafted, accepted, emitted, kind, seconds: { plan, draft, verify, sample, commit } }) => [
      i + 1, drafted, accepted, emitted, kind, ms(plan), ms(draft), ms(verify), ms(sample), ms(commit),
    ]),
  };
}

/** A text's tokens as one string, with its white space visible; for labels. */
export const textOf = (request, tokens) => visible(tokens.map((token) => request.text(token)).join(""));
