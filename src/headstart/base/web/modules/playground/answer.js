// The middle column: the text as it comes, every token marked by where it came from, its figures, and its rounds.

import { fill, h, signal, watch } from "hs/base/dom";
import { counted } from "hs/base/format";
import { roundStrip, stripLegend } from "hs/figures/strip";
import { legend, tokenText } from "hs/figures/text";
import { figureList } from "hs/playground/figures";
import { droppedNotice, runNotice } from "hs/playground/notices";
import { notGuessing } from "hs/trace/budget";
import { judged, roundsOf } from "hs/trace/rounds";

const EMPTY = "Press Run. The text comes here, and the line under each token says who wrote it: the drafter, whose guess the model accepted, or the model itself.";
const PROMPT_SHOWN = 600; // characters
const STATUS = { running: "writing", done: "done", stopped: "stopped", failed: "broken off" };

/**
 * The answer of the run that is shown.
 * @param {signal} current the run, or null.
 * @param {{onAgain: (run) => void, onHover: (run, index|null, element) => void}} page
 * @returns {{element, round: signal, token: signal, walk: (by) => void, pickRound: (at) => void, actions: HTMLElement}} round: the chosen round, an
 *   index into the request's steps; token: the chosen token, an index into the run's tokens. null where nothing is.
 */
export function answerPanel(current, { onAgain, onHover }) {
  const round = signal(null);
  const token = signal(null);
  const text = tokenText({ onPick: (index) => choose(index - shift), label: "The text; arrow keys go from token to token" });
  const strip = roundStrip({ rounds: [], at: 0, onPick: (at) => go(at) });
  const [figures, trouble, status, end] = [h("dl.figures"), h("div.run-trouble"), h("span.status"), h("p.end-words")];
  const quiet = h("p.quiet-words", { hidden: true });
  const marks = h("div.marks", {}, legend());
  const ribbon = h("div.ribbon", { role: "group", "aria-label": "The rounds in time" }, h("h3", "Rounds"), strip.element, stripLegend());
  const actions = h("div.actions");
  const paper = h("div.paper", { "aria-busy": "false" }, h("p.empty-words", EMPTY), text.element);
  const element = h("section.answer", { "aria-label": "The answer" },
    h("div.answer-head", {}, h("h2", "Answer"), status), quiet, paper, end, trouble, figures, marks, ribbon, actions);
  let [shown, shift, drawn, notice, frame] = [null, 0, 0, null, 0];

  function choose(index) {
    token.value = index;
    round.value = shown.tokens[index].step;
  }

  function go(at) {
    const steps = shown?.request?.steps ?? [];
    if (!steps[at]) return;
    round.value = at;
    const first = shown.tokens.findIndex((each) => each.step === at);
    if (shown.tokens[token.value]?.step !== at) token.value = first < 0 ? null : first;
  }

  /** Draw what has come since the last time, at most once a frame. */
  function soon() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (shown) advance();
    });
  }

  function advance() {
    const followed = paper.scrollHeight - paper.scrollTop - paper.clientHeight < 48;
    text.add(shown.tokens.slice(drawn));
    drawn = shown.tokens.length;
    if (followed && shown.status.value === "running") paper.scrollTop = paper.scrollHeight;
    strip.set({ rounds: shown.request ? roundsOf(shown.request) : [], at: round.value ?? -1 });
    figures.hidden = !shown.request;
    fill(figures, figureList(shown).map(([name, value, meaning]) => h("div.figure-tile", { title: meaning }, h("dt", name), h("dd", value))));
    ribbon.hidden = !shown.request;
    quiet.textContent = shown.request && shown.values.guess ? notGuessing(shown.request) : "";
    quiet.hidden = !quiet.textContent;
  }

  function begin(run) {
    notice?.end();
    notice = null;
    [shown, drawn] = [run, 0];
    [round.value, token.value] = [null, null];
    element.classList.toggle("empty", !run);
    fill(trouble);
    end.textContent = "";
    if (!run) {
      ribbon.hidden = quiet.hidden = true;
      text.set({ tokens: [], selected: null, at: null });
      fill(figures);
      status.textContent = "";
      return;
    }
    const prompt = run.values.mode === "chat" ? "" : shortened(run.values.prompt);
    shift = prompt ? 1 : 0;
    text.set({ tokens: prompt ? [{ text: prompt, origin: "prompt" }] : [], selected: null, at: null });
    advance();
  }

  function state(run) {
    const now = run.status.value;
    element.dataset.status = now;
    paper.setAttribute("aria-busy", String(now === "running"));
    const word = now === "failed" && !run.request ? "not run" : STATUS[now] ?? "";
    status.textContent = run.plain ? `${word}, without guesses` : word;
    if (now === "running" || now === "waiting") return;
    notice = now === "failed" ? runNotice(run.failure, () => onAgain(run)) : null;
    fill(trouble, notice?.element, droppedNotice(run));
    end.textContent = endOf(run);
    advance();
  }

  let ends = [];
  watch([current], (run) => {
    ends.forEach((each) => each());
    begin(run);
    ends = run ? [run.tick.watch(soon), watch([run.status], () => state(run))] : [];
  });
  watch([round, token], (at, index) => {
    text.set({ at, selected: index === null ? null : index + shift });
    if (at !== null) strip.set({ at });
  });
  for (const [type, found] of Object.entries({ pointerover: true, focusin: true, pointerout: false, focusout: false })) {
    text.element.addEventListener(type, (event) => {
      const span = event.target.closest("[data-index]");
      if (!span) return;
      if (found) onHover(shown, Number(span.dataset.index) - shift, span);
      else onHover(shown, null, span);
    });
  }
  const panel = { element, round, token, actions, quiet: false, walk: (by) => walk(by), pickRound };
  return panel;

  /** Choose a round without a word: nobody asked for it. */
  function pickRound(at) {
    panel.quiet = true;
    go(at);
    panel.quiet = false;
  }

  function walk(by) {
    const steps = shown?.request ? judged(shown.request).map((step) => shown.request.steps.indexOf(step)) : [];
    if (!steps.length) return;
    const at = steps.indexOf(round.value);
    go(steps[Math.max(0, Math.min(steps.length - 1, at < 0 ? (by > 0 ? 0 : steps.length - 1) : at + by))]);
  }
}

/** The end of a long prompt. */
const shortened = (prompt) => (prompt.length > PROMPT_SHOWN ? `… ${prompt.slice(-PROMPT_SHOWN)}` : prompt);

/** Why the text ends where it does. */
function endOf(run) {
  const ours = run.metrics?.headstart?.finish_reason;
  if (run.status.value === "stopped") return `Stopped after ${counted(run.tokens.length, "token")}.`;
  if (run.status.value === "failed") return "";
  if (ours === "cancelled") return "The server ended it early.";
  return run.finish === "stop" ? "The model ended the text." : "The limit on tokens ended the text.";
}
