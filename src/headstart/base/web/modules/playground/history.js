// Past runs, kept in this browser alone: what was asked, what came, and its trace. The oldest go when there is no room.

import { fill, h, signal, watch } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { button } from "hs/figures/controls";
import { figuresOf } from "hs/playground/figures";
import { revived, storable } from "hs/playground/kept";

const KEPT = "headstart-history";
const MOST = 30;

/** The runs that are kept, newest first, as a signal; `add` and `clear` change it. */
export function newHistory() {
  const runs = signal(read());
  return {
    runs,
    add(run) {
      runs.value = [run, ...runs.value].slice(0, MOST);
      write(runs.value);
    },
    clear() {
      runs.value = [];
      write([]);
    },
  };
}

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "[]").map(revived);
  } catch {
    return []; // no storage, or of an older version
  }
}

function write(runs) {
  const kept = runs.map(storable);
  while (true) {
    try {
      localStorage.setItem(KEPT, JSON.stringify(kept));
      return;
    } catch {
      if (!kept.length) return; // no storage: it lasts as long as the page
      kept.pop();
    }
  }
}

/** The list, and the button that empties it. */
export function historyPanel(history, { onShow, onUse }) {
  const element = h("section.history", { "aria-label": "History" });
  watch([history.runs], (runs) => {
    element.hidden = !runs.length;
    fill(element,
      h("div.answer-head", {}, h("h2", "History"), button("Clear", () => history.clear(), { quiet: true, label: "Clear the history" })),
      h("p.soft", "Kept in this browser, and nowhere else."),
      h("ol.runs", {}, runs.map((run) => h("li", {}, entry(run, { onShow, onUse })))));
  });
  return element;
}

function entry(run, { onShow, onUse }) {
  const asked = run.values.mode === "chat" ? run.values.message : run.values.prompt;
  const { speed, perForward, tokens } = figuresOf(run);
  const told = [`${tokens} tokens`, speed && `${fixed(speed, 0)} tokens/s`, perForward && `${fixed(perForward, 2)} a forward`, run.plain && "plain"];
  return h("div.entry", {},
    h("button.entry-text", { type: "button", on: { click: () => onShow(run) } },
      h("span.entry-asked", asked.replaceAll(/\s+/g, " ").trim()), h("span.entry-came", run.text.replaceAll(/\s+/g, " ").trim())),
    h("span.entry-told", [clock(run.at), ...told].filter(Boolean).join(" · ")),
    button("Use", () => onUse(run), { quiet: true, label: "Use its prompt and settings" }));
}

const clock = (at) => new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
