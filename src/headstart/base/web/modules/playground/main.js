// The playground: one's own prompts on this server, with every token marked by where it came from.

import { announce } from "hs/base/announce";
import { append, calm, computed, fill, h, signal, watch } from "hs/base/dom";
import { themeSwitch } from "hs/base/theme";
import { button } from "hs/figures/controls";
import { answerPanel } from "hs/playground/answer";
import { askPanel } from "hs/playground/ask";
import { comparePanel } from "hs/playground/compare";
import { endWords } from "hs/playground/figures";
import { historyPanel, newHistory } from "hs/playground/history";
import { save, traceFile } from "hs/playground/kept";
import { machinePanel } from "hs/playground/machine";
import { serverNotice } from "hs/playground/notices";
import { popover } from "hs/playground/popover";
import { newRun, perform, stop } from "hs/playground/run";
import { watchServer } from "hs/playground/server";
import { newSettings, restore, snapshot, troubles } from "hs/playground/settings";
import { showVersus, versusWaiting } from "hs/playground/versus";
import { shownOf, whyPanel } from "hs/playground/why";
import { tokenCard } from "hs/viewer/card";

const server = watchServer();
const settings = newSettings();
const history = newHistory();
const current = signal(null); // the run that is shown
const active = signal(null); // the run that is under way
const pins = signal([]);
const running = computed(() => active.value !== null, [active]);

const ask = askPanel(settings, { model: server.model, running, onRun: run, onStop: halt });
const floating = tokenCard();
const card = popover((shown, index) => (floating.set(shownOf(shown, index)), floating.element));
const answer = answerPanel(current, {
  onAgain: (failed) => play(newRun(failed.values, { plain: failed.plain, seed: failed.seed })),
  onHover: (shown, index, anchor) => (index === null || besides(index) ? card.hide() : card.show(shown, index, anchor)),
});
const why = whyPanel(current, answer);
const versus = h("div.versus-place");
const comparison = comparePanel(pins, { onShow: show });

/** Whether the card of a token is in the right column already. */
const besides = (index) => index === answer.token.value && matchMedia("(min-width: 1181px)").matches;

answer.token.watch(() => besides(answer.token.value) && card.hideNow());

const WARM_UP = 16; // tokens

// -- what is done -----------------------------------------------------------------------------------------------------

function run() {
  if (running.value || !server.model.value) return;
  const values = snapshot(settings);
  const wrong = troubles(values);
  ask.show(wrong);
  if (Object.keys(wrong).length) return announce(Object.values(wrong)[0]);
  // after a run the arrow keys walk the rounds; in a field of text they would walk its letters
  if (document.activeElement?.tagName === "TEXTAREA") document.getElementById("answer").focus({ preventScroll: true });
  if (matchMedia("(max-width: 800px)").matches) answer.element.scrollIntoView({ behavior: calm() ? "auto" : "smooth" });
  return play(newRun(values));
}

/** What a reader sees first: the prompt that is there, with guesses and then without. Who wants no motion starts it.
 * A few tokens are written before, unseen: the first request of a server is slow, and the second finds its prompt read. */
async function openingRace() {
  if (calm() || Object.keys(troubles(snapshot(settings))).length) return;
  const unseen = newRun({ ...snapshot(settings), maxTokens: WARM_UP });
  await underWay(unseen);
  if (unseen.status.value !== "done") {
    if (unseen.failure) server.note(unseen.failure);
    return announce(unseen.failure?.message ?? "Stopped.");
  }
  const values = snapshot(settings); // what was typed meanwhile is what runs
  if (Object.keys(troubles(values)).length) return;
  const guessed = await play(newRun(values));
  const speculates = guessed.values.guess && server.model.value?.headstart.sources.length > 0;
  if (guessed.status.value === "done" && speculates) await againstPlain(guessed);
}

/** Perform a run and show it; resolves at its end. */
async function play(one) {
  showVersus(versus, null);
  current.value = one;
  await underWay(one);
  const { failure } = one;
  if (!failure) {
    if (one.status.value === "done") history.add(one);
    if (answer.round.value === null && one.request) answer.pickRound(tellingRound(one.request));
    announce(endWords(one));
  } else {
    server.note(failure);
    announce(failure.message);
    if (failure.kind === "bad") ask.refuse(failure);
  }
  return one;
}

/** The first round in which a guess was refused, else the first: what the right column shows until one is chosen. */
function tellingRound({ steps }) {
  const lossy = steps.findIndex((step) => step.nodes?.length > step.path.length);
  return Math.max(0, lossy);
}

async function underWay(one) {
  active.value = one;
  server.hurry();
  await perform(one, server.model.value);
  active.value = null;
}

/** The same once more without guesses, afterwards, so that neither takes the machine from the other. */
async function againstPlain(guessed) {
  fill(versus, versusWaiting());
  const plain = newRun(guessed.values, { plain: true, seed: guessed.seed });
  await underWay(plain);
  if (plain.failure || !plain.request) {
    showVersus(versus, null);
    server.note(plain.failure);
    return announce(plain.failure?.message ?? "Stopped.");
  }
  const about = guessed.about;
  showVersus(versus, { guessed, plain, about, onGreedy: bothGreedy, onShow: (one) => (current.value = one) });
  announce(versus.querySelector(".verdict .notice-title").textContent);
}

async function bothGreedy() {
  settings.temperature.value = 0;
  const guessed = await play(newRun(snapshot(settings)));
  if (guessed.status.value === "done") await againstPlain(guessed);
}

function halt() {
  if (active.value) stop(active.value);
}

function show(one) {
  if (running.value) return;
  showVersus(versus, null);
  current.value = one;
  answer.element.scrollIntoView({ block: "nearest" });
}

function pin(one) {
  settings.seed.value = one.seed;
  pins.value = [...pins.value, one];
  announce("Pinned. The seed is held, so that only what you change differs.");
}

function goOn(one) {
  settings.turns.value = [...one.values.turns, { role: "user", content: one.values.message }, { role: "assistant", content: one.text }];
  settings.message.value = "";
  ask.focus();
}

// -- the buttons under an answer --------------------------------------------------------------------------------------

const drawActions = () => {
  const one = current.value;
  const ready = one && one.request && ["done", "stopped"].includes(one.status.value) && !running.value;
  if (!ready) return fill(answer.actions);
  const speculates = one.values.guess && server.model.value?.headstart.sources.length > 0;
  fill(
    answer.actions,
    speculates && button("Against plain", () => againstPlain(one)),
    !pins.value.includes(one) && button("Pin", () => pin(one), { quiet: true }),
    one.values.mode === "chat" && button("Go on with this chat", () => goOn(one), { quiet: true }),
    button("Save the trace", () => save(`headstart-${one.at.slice(0, 19).replaceAll(":", "")}.jsonl`, traceFile(one)), { quiet: true }),
  );
};
watch([running, current, pins, server.model], drawActions);

// -- the keyboard -----------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") {
    if (!card.element.hidden) card.hideNow();
    halt();
  }
  const free = event.target === document.body || event.target === document.documentElement || event.target.id === "answer";
  if (!free) return;
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (by) {
    event.preventDefault();
    answer.walk(by);
  } else if (event.key === "Enter") run();
});

// -- what the model is ------------------------------------------------------------------------------------------------

let opened = false;
watch([server.model], (model) => {
  if (!model) return;
  const { chat } = model.headstart;
  if (!chat) settings.mode.value = "completion";
  else if (settings.isNew) settings.mode.value = "chat";
  settings.isNew = false;
  if (!opened) openingRace();
  opened = true;
});

const facts = h("p.facts");
watch([server.model, server.state], (model, { kind }) => {
  const words = { checking: "looking for the server", ready: "ready", loading: "loading", key: "locked", gone: "gone", failed: "failed" }[kind];
  const about = model?.headstart;
  const told = about ? [model.id, about.drafter === "none" ? "no drafter" : about.drafter, `rule ${about.rule}`, about.dtype] : [];
  fill(facts, h(`span.lamp.${kind}`, { "aria-hidden": "true" }), h("span.state", words), told.map((each) => h("span.fact", each)));
});

append(
  document.body,
  h("a.skip", { href: "#answer" }, "To the answer"),
  h("header.top", {},
    h("h1", {}, h("span.logo", { "aria-hidden": "true" }, "▸▸"), " headstart ", h("span.soft", "playground")),
    h("nav", { "aria-label": "Pages" }, h("a", { href: "/learn" }, "Lessons"), h("a", { href: "/trace" }, "Traces")),
    facts, themeSwitch()),
  h("main", {},
    serverNotice(server, { onKey: (value, keep) => server.unlock(value, keep) }),
    h("div.bench", {}, ask.element, h("div.middle#answer", { tabindex: "-1" }, versus, answer.element), why.element),
    comparison,
    historyPanel(history, { onShow: show, onUse: (one) => restore(settings, { ...one.values, seed: one.seed }) }),
    machinePanel(server)),
  card.element,
);
ask.focus();
