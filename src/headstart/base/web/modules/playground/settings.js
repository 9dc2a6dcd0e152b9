// What the reader has set, as signals; the request that it makes; and what of it differs between two runs.

import { signal } from "hs/base/dom";
import { fixed, whole } from "hs/base/format";

const KEPT = "headstart-playground";
export const AUTO_DRAFT = 17; // one place beyond the longest draft on the slider: the pacing decides
/** The class of the lessons' race and of `headstart demo`: it repeats itself, as code does, so that guesses pay. */
export const FIRST_PROMPT = "class Point:\n    def __init__(self, x, y):\n        self.x = x\n        self.y = y\n\n    def __eq__(self, other):";
const FIRST_MESSAGE = "Count from one to ten in words.";

/** Each control: its first value, and how it is said. `shapes` marks those that can change the text. */
export const CONTROLS = {
  temperature: { label: "temperature", first: 0, say: (v) => fixed(v, 2), shapes: true },
  maxTokens: { label: "max tokens", first: 96, say: whole, shapes: true },
  seed: { label: "seed", first: "", say: (v) => v || "drawn", shapes: true },
  topP: { label: "top_p", first: 1, say: (v) => fixed(v, 2), shapes: true },
  topK: { label: "top_k", first: 0, say: (v) => (v ? whole(v) : "off"), shapes: true },
  minP: { label: "min_p", first: 0, say: (v) => (v ? fixed(v, 2) : "off"), shapes: true },
  guess: { label: "guessing", first: true, say: (v) => (v ? "on" : "off") },
  sources: { label: "sources", first: null, say: (v) => (v ? v.join(", ") || "none" : "all") },
  draft: { label: "most guesses", first: AUTO_DRAFT, say: (v) => (v === AUTO_DRAFT ? "auto" : whole(v)) },
};

/** The settings of the page: a signal for each control, and those of the prompt. They are kept in this browser.
 * `isNew`: whether nothing was kept. */
export function newSettings() {
  const kept = read();
  const settings = Object.fromEntries(
    Object.entries(CONTROLS).map(([name, { first }]) => [name, signal(kept[name] ?? first)]),
  );
  settings.mode = signal(kept.mode ?? "completion"); // the model decides whether it can be "chat"
  settings.prompt = signal(kept.prompt ?? FIRST_PROMPT);
  settings.system = signal(kept.system ?? "");
  settings.message = signal(kept.message ?? FIRST_MESSAGE);
  settings.turns = signal(kept.turns ?? []); // [{role, content}] before the message
  const signals = Object.entries(settings);
  const save = () => write(Object.fromEntries(signals.map(([name, each]) => [name, each.value])));
  for (const [, each] of signals) each.watch(save);
  return Object.assign(settings, { isNew: kept.mode === undefined });
}

/** Values of all controls, as a plain object that a run keeps. */
export function snapshot(settings) {
  const names = [...Object.keys(CONTROLS), "mode", "prompt", "system", "message", "turns"];
  return Object.fromEntries(names.map((name) => [name, settings[name].value]));
}

/** Set all controls to the values of a run. */
export function restore(settings, values) {
  for (const [name, value] of Object.entries(values)) if (settings[name]) settings[name].value = value;
}

/** The path and the body of the request that these values make. seed: used where none is set. */
export function requestOf(values, seed) {
  const chat = values.mode === "chat";
  const body = {
    ...(chat ? { messages: messagesOf(values) } : { prompt: values.prompt }),
    max_tokens: values.maxTokens,
    temperature: values.temperature,
    top_p: values.topP,
    top_k: values.topK,
    min_p: values.minP,
    seed: Number(values.seed || seed),
    stream: true,
    stream_options: { include_usage: true },
    return_token_ids: true,
    tag: "playground",
    speculation: { enabled: values.guess, trace: true, metrics: "detailed" },
  };
  if (values.sources !== null) body.speculation.sources = values.sources;
  if (values.draft !== AUTO_DRAFT) body.speculation.max_draft_tokens = values.draft;
  return { path: chat ? "/v1/chat/completions" : "/v1/completions", body };
}

/** The conversation of a chat run, system message first. */
export function messagesOf({ system, turns, message }) {
  return [...(system.trim() ? [{ role: "system", content: system }] : []), ...turns, { role: "user", content: message }];
}

/** What is wrong with the values before anything is asked: {field: words}; {} if nothing is. */
export function troubles(values) {
  const found = {};
  if (values.mode === "chat" ? !values.message.trim() : !values.prompt) found.prompt = "Write something to continue from.";
  if (values.seed !== "" && !isSeed(values.seed)) found.seed = "A whole number from 0 to 9007199254740991, or nothing.";
  if (values.guess && values.sources?.length === 0) found.sources = "Choose a source, or switch guessing off.";
  return found;
}

const isSeed = (text) => /^\d+$/.test(text) && Number.isSafeInteger(Number(text));

/** A seed of the page's own, so that it is known before the answer comes. */
export function drawSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return String((high % 2 ** 20) * 2 ** 32 + low);
}

/** The names of the controls in which two runs differ, each with what it was and is. */
export function differences(before, after) {
  const found = Object.entries(CONTROLS)
    .filter(([name]) => JSON.stringify(before[name]) !== JSON.stringify(after[name]))
    .map(([name, { label, say, shapes }]) => ({ label, before: say(before[name]), after: say(after[name]), shapes }));
  const asked = (values) => JSON.stringify(values.mode === "chat" ? messagesOf(values) : values.prompt);
  if (asked(before) !== asked(after)) found.unshift({ label: "prompt", before: "another", after: "changed", shapes: true });
  return found;
}

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT)) ?? {};
  } catch {
    return {};
  }
}

function write(values) {
  try {
    localStorage.setItem(KEPT, JSON.stringify(values));
  } catch {
    // no storage: the settings last as long as the page
  }
}
