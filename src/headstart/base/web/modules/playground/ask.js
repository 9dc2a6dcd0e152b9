// The left column: what is asked, how it is sampled, and how it may be guessed.

import { fill, h, watch } from "hs/base/dom";
import { fixed, whole } from "hs/base/format";
import { button, choice, slider, toggle } from "hs/figures/controls";
import { AUTO_DRAFT, CONTROLS, FIRST_PROMPT, drawSeed } from "hs/playground/settings";

const EXAMPLES = {
  completion: [FIRST_PROMPT, "def fibonacci(n):", "import json\n\n\ndef load(path):"],
  chat: ["Why is the sky blue?", "Count from one to ten in words.", "Write a short poem about rain."],
};
const FIELDS = {
  prompt: "prompt", messages: "prompt", temperature: "temperature", top_p: "topP", top_k: "topK", min_p: "minP",
  seed: "seed", max_tokens: "maxTokens", "speculation.sources": "sources", "speculation.max_draft_tokens": "draft",
};

/**
 * The form.
 * @param {object} settings of hs/playground/settings
 * @param {{model: signal, running: signal, onRun: () => void, onStop: () => void}} page
 * @returns {{element, focus: () => void, show: (troubles: {[field]: words}) => void, refuse: (failure) => void}}
 */
export function askPanel(settings, { model, running, onRun, onStop }) {
  const wrong = wrongs();
  const run = h("button.run", { type: "submit" }, "Run", h("kbd", { "aria-hidden": "true" }, "Ctrl ⏎"));
  const halt = button(["Stop", h("kbd", { "aria-hidden": "true" }, "Esc")], onStop, { quiet: true });
  const text = textPart(settings, model, wrong);
  const form = h(
    "form.ask",
    {
      novalidate: true,
      "aria-label": "What to run",
      on: { submit: (event) => (event.preventDefault(), onRun()), keydown: (event) => keys(event, onRun) },
    },
    text.element,
    h("div.buttons", {}, run, halt),
    h("p.hint", "Ctrl+Enter runs, Esc stops, the arrow keys walk the rounds."),
    group("Sampling", samplingPart(settings, model, wrong)),
    group("Guessing", guessingPart(settings, model, wrong)),
  );
  watch([running, model], (now, known) => {
    run.disabled = now || !known;
    halt.disabled = !now;
  });
  return {
    element: form,
    focus: () => text.focus(),
    show: wrong.show,
    refuse: (failure) => wrong.show({ [FIELDS[failure.param] ?? "prompt"]: failure.message }),
  };
}

function keys(event, onRun) {
  if (event.key !== "Enter" || event.isComposing || event.target.closest("button, summary")) return;
  if (event.target.tagName === "TEXTAREA" && !event.ctrlKey && !event.metaKey) return;
  event.preventDefault();
  onRun();
}

/** On a phone the answer should not be far below the button: groups are closed there. */
const group = (name, children) => h("details.group", { open: !matchMedia("(max-width: 800px)").matches }, h("summary", name), children);

// -- the text ---------------------------------------------------------------------------------------------------------

function textPart(settings, model, wrong) {
  const holder = h("div.text-part");
  let field = null;
  const modes = choice({ label: "Kind", value: settings.mode, options: [["completion", "Text"], ["chat", "Chat"]] });
  const draw = () => {
    const chat = settings.mode.value === "chat";
    const [name, signal] = chat ? ["Your message", settings.message] : ["Text to continue", settings.prompt];
    const focused = field?.input === document.activeElement;
    field = area(name, signal, { rows: chat ? 4 : 7, mono: !chat });
    fill(
      holder,
      model.value?.headstart.chat && modes,
      chat && systemPart(settings),
      chat && turnsPart(settings),
      wrong.around("prompt", field.element, field.input),
      h("div.examples", { role: "group", "aria-label": "Examples" }, EXAMPLES[settings.mode.value].map((each) => chip(each, signal))),
    );
    const said = holder.querySelector(".turns");
    if (said) said.scrollTop = said.scrollHeight; // the last turn is what is answered
    if (focused) field.input.focus();
  };
  watch([settings.mode, settings.turns, model], draw);
  return { element: holder, focus: () => field.input.focus() };
}

const CHIP = 36; // characters

/** An example, with its line breaks shown, and its beginning only where it is long. */
function chip(text, value) {
  const line = text.replaceAll(/\s*\n\s*/g, " ⏎ ");
  const shown = line.length > CHIP ? `${line.slice(0, CHIP - 8).trimEnd()} …` : line;
  return h("button.chip", { type: "button", title: text, on: { click: () => (value.value = text) } }, shown);
}

function systemPart(settings) {
  const { element } = area("System message", settings.system, { rows: 2, mono: false });
  return h("details.system", { open: settings.system.value !== "" }, h("summary", "System message"), element);
}

function turnsPart({ turns }) {
  if (!turns.value.length) return null;
  return h(
    "div.turns",
    { role: "group", tabindex: "0", "aria-label": "The conversation so far" },
    turns.value.map(({ role, content }) => h(`p.turn.${role}`, {}, h("b", role === "user" ? "You" : "Model"), " ", content)),
    button("Start again", () => (turns.value = []), { quiet: true }),
  );
}

let number = 0;

function area(label, value, { rows, mono }) {
  const id = `text-${++number}`;
  const input = h(mono ? "textarea.mono" : "textarea", {
    id, rows, spellcheck: "false", value: value.value, on: { input: () => (value.value = input.value) },
  });
  value.watch(() => input.value !== value.value && (input.value = value.value));
  return { element: h("div.field", {}, h("label", { for: id }, label), input), input };
}

// -- sampling ---------------------------------------------------------------------------------------------------------

function samplingPart(settings, model, wrong) {
  const { temperature, maxTokens, topP, topK, minP } = settings;
  const most = slider({ label: "Most tokens", value: maxTokens, min: 8, max: 512, step: 8, format: whole });
  watch([model], (known) => known && most.querySelector("input").setAttribute("max", Math.min(1024, known.max_model_len - 8)));
  const zero = (say) => (value) => (value ? say(value) : "off");
  return [
    wrong.around("temperature", slider({
      label: "Temperature", value: temperature, min: 0, max: 2, step: 0.05, format: (v) => (v ? fixed(v, 2) : "0: greedy"),
    })),
    wrong.around("maxTokens", most),
    seedPart(settings.seed, wrong),
    h("details.more", {}, h("summary", "top_p, top_k, min_p"),
      wrong.around("topP", slider({ label: "top_p", value: topP, min: 0.05, max: 1, step: 0.05, format: (v) => (v < 1 ? fixed(v, 2) : "off") })),
      wrong.around("topK", slider({ label: "top_k", value: topK, min: 0, max: 100, step: 1, format: zero(whole) })),
      wrong.around("minP", slider({ label: "min_p", value: minP, min: 0, max: 0.5, step: 0.01, format: zero((v) => fixed(v, 2)) })),
    ),
  ];
}

function seedPart(seed, wrong) {
  const input = h("input", {
    id: "seed", type: "text", inputmode: "numeric", autocomplete: "off", placeholder: "drawn for each run",
    value: seed.value, on: { input: () => (seed.value = input.value.trim()) },
  });
  seed.watch(() => input.value.trim() !== seed.value && (input.value = seed.value));
  const draw = button("⚂", () => (seed.value = drawSeed().slice(0, 6)), { quiet: true, label: "Draw a seed" });
  const field = h("div.field.seed", {}, h("label", { for: "seed" }, "Seed"), h("div.with-button", {}, input, draw));
  return wrong.around("seed", field, input);
}

// -- guessing ---------------------------------------------------------------------------------------------------------

function guessingPart(settings, model, wrong) {
  const holder = h("div.guessing");
  const draw = (known) => {
    const sources = (known?.headstart.sources ?? []).filter((name) => name !== "prediction"); // nothing is predicted here
    if (known && !sources.length) {
      fill(holder, h("p.soft", "This server was started without a drafter, so every token is plain."));
      return;
    }
    const limits = h("div.limits", {},
      sources.length > 1 && wrong.around("sources", sourceBoxes(settings.sources, sources)),
      wrong.around("draft", slider({
        label: "Most guesses a round", value: settings.draft, min: 1, max: AUTO_DRAFT, step: 1, format: CONTROLS.draft.say,
      })),
    );
    watch([settings.guess], (on) => (limits.hidden = !on));
    fill(holder, toggle({ label: "Guess ahead with the drafter", value: settings.guess }), limits);
  };
  watch([model], draw);
  return holder;
}

/** Check boxes over a signal that holds the chosen names; null is all of them. */
function sourceBoxes(value, names) {
  const boxes = names.map((name) => {
    const input = h("input", { type: "checkbox", on: { change: () => choose() } });
    watch([value], (chosen) => (input.checked = chosen === null || chosen.includes(name)));
    return { name, input, element: h("label.choice", {}, input, h("span", name)) };
  });
  const choose = () => {
    const chosen = boxes.filter(({ input }) => input.checked).map(({ name }) => name);
    value.value = chosen.length === names.length ? null : chosen;
  };
  return h("fieldset.choices", {}, h("legend", "Sources"), boxes.map(({ element }) => element));
}

// -- what is wrong with a field ---------------------------------------------------------------------------------------

function wrongs() {
  const fields = new Map();
  let shown = 0;
  return {
    /** The field with a place for words below it. */
    around(name, element, input = element.querySelector("input")) {
      const id = `wrong-${name}-${++shown}`;
      const words = h("p.wrong", { id, hidden: true });
      fields.set(name, { words, input });
      input?.setAttribute("aria-describedby", id);
      return h("div.around", {}, element, words);
    },
    /** Say what is wrong where; everything else is right. The first wrong field gets the focus. */
    show(troubles) {
      let first = null;
      for (const [name, { words, input }] of fields) {
        words.textContent = troubles[name] ?? "";
        words.hidden = !troubles[name];
        if (troubles[name]) input?.setAttribute("aria-invalid", "true");
        else input?.removeAttribute("aria-invalid");
        if (troubles[name]) first ??= input;
      }
      first?.closest("details:not([open])")?.setAttribute("open", "");
      first?.focus();
    },
  };
}
