// What is wrong, drawn: the server loads, is busy, wants a key, is gone; a request cannot be; an answer broke off.

import { announce } from "hs/base/announce";
import { fill, h, watch } from "hs/base/dom";
import { button } from "hs/figures/controls";
import { sentence } from "hs/playground/client";

/** A box that says what is the matter. kind: "wait", "wrong" or "ask". */
export function notice({ kind, title, words, children = [] }) {
  const sign = { wait: "◔", wrong: "!", ask: "?" }[kind];
  return h(`div.notice.${kind}`, {}, h("span.sign", { "aria-hidden": "true" }, sign),
    h("div", {}, h("p.notice-title", title), words && h("p", words), children));
}

/** The place above everything where the state of the server is told. */
export function serverNotice(server, { onKey }) {
  const element = h("div.server-notice");
  let timer = 0;
  watch([server.state], (state) => {
    clearInterval(timer);
    const shown = drawn(state, { onKey });
    if (!shown) return fill(element);
    const old = element.firstChild;
    if (old?.dataset.kind === state.kind && state.kind === "key" && !state.failure) return;
    fill(element, shown.element);
    shown.element.dataset.kind = state.kind;
    if (old?.dataset.kind !== state.kind) announce(shown.say);
    shown.focus?.();
    if (shown.each) {
      shown.each();
      timer = setInterval(shown.each, 250);
    }
  });
  return element;
}

function drawn(state, { onKey }) {
  if (state.kind === "loading") return loading(state);
  if (state.kind === "gone") return gone(state);
  if (state.kind === "key") return keyWanted(state, onKey);
  if (state.kind === "failed") {
    const title = "The server cannot answer.";
    return { element: notice({ kind: "wrong", title, words: state.failure.message }), say: title };
  }
  return null;
}

const ago = (milliseconds) => `${Math.max(0, Math.floor(milliseconds / 1000))} s`;

function loading({ since, uptime }) {
  const told = h("p.soft");
  const bar = h("div.bar", { role: "progressbar", "aria-label": "Loading the model" }, h("span"));
  const known = uptime === undefined ? since : Date.now() - 1000 * uptime;
  const title = "The model is being loaded.";
  return {
    element: notice({ kind: "wait", title, words: "This page goes on by itself as soon as it is there.", children: [bar, told] }),
    say: title,
    each: () => (told.textContent = `${ago(Date.now() - known)} so far`),
  };
}

function gone({ since }) {
  const told = h("p.soft");
  const title = "The server does not answer.";
  const words = "It may have been stopped. This page looks for it every second, and goes on when it is back; nothing here is lost.";
  return {
    element: notice({ kind: "wrong", title, words, children: told }),
    say: title,
    each: () => (told.textContent = `Gone for ${ago(Date.now() - since)}`),
  };
}

function keyWanted({ failure }, onKey) {
  const input = h("input", { type: "password", id: "key", autocomplete: "off", spellcheck: "false" });
  const keep = h("input", { type: "checkbox" });
  const title = "This server wants a key.";
  const wrong = failure && !/wants a key/i.test(failure.message) ? "This key is wrong." : "";
  const form = h("form.key", { on: { submit: (event) => (event.preventDefault(), input.value && onKey(input.value, keep.checked)) } },
    h("label", { for: "key" }, "Key"),
    h("div.with-button", {}, input, h("button", { type: "submit" }, "Unlock")),
    wrong && h("p.wrong", wrong),
    h("label.choice", {}, keep, h("span", "Keep it until this tab is closed")),
    h("p.soft", "It is sent to this server only, and is never part of an address."));
  return { element: notice({ kind: "ask", title, children: form }), say: wrong || title, focus: () => input.focus() };
}

/**
 * A failure of a run, as a box for its place in the answer. Busy servers are asked again when their countdown ends.
 * @param {Failure} failure
 * @param {() => void} again runs the same once more.
 * @returns {{element, end: () => void}} end: forget the countdown.
 */
export function runNotice(failure, again) {
  if (failure.kind === "busy") return countdown(failure, again);
  const titles = { bad: "This request cannot be.", loading: "The model is being loaded.", gone: "The answer broke off.",
    key: "This server wants a key.", stopping: "The server is being stopped." };
  const retry = ["failed", "gone"].includes(failure.kind) ? button("Run again", again) : null;
  const title = titles[failure.kind] ?? "The server failed at this request.";
  return { element: notice({ kind: "wrong", title, words: failure.message, children: retry ?? [] }), end() {} };
}

function countdown({ retryAfter }, again) {
  const until = Date.now() + 1000 * (retryAfter ?? 5);
  const told = h("p.countdown", { role: "timer" });
  const bar = h("div.bar.fixed", { "aria-hidden": "true" }, h("span"));
  let timer = 0;
  const end = () => clearInterval(timer);
  const now = () => (end(), again());
  const hold = button("Do not run again", () => (end(), (told.textContent = "It is not run again by itself."), bar.remove(), hold.remove()), { quiet: true });
  const tick = () => {
    const left = until - Date.now();
    told.textContent = `Runs again by itself in ${Math.max(0, Math.ceil(left / 1000))} s`;
    bar.firstChild.style.width = `${Math.max(0, (100 * left) / (1000 * (retryAfter ?? 5)))}%`;
    if (left <= 0) now();
  };
  timer = setInterval(tick, 100);
  tick();
  const buttons = h("div.buttons", {}, button("Run now", now), hold);
  return { element: notice({ kind: "wait", title: "The server is busy.", words: "As many requests wait already as it lets wait.", children: [told, bar, buttons] }), end };
}

/** Where guessing ended before the text did: the reason, in words; null where it did not. */
export function droppedNotice(run) {
  const ours = run.metrics?.headstart;
  if (!run.values.guess || !ours || ours.speculating || !ours.off_reason || ours.drafter === "none") return null;
  return notice({
    kind: "wrong",
    title: "The drafter was dropped.",
    words: `${sentence(ours.off_reason)} The text goes on as the model alone would write it: exact, only slower.`,
  });
}
