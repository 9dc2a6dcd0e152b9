// A run as plain values, to be kept or saved, and back.

import { signal } from "hs/base/dom";
import { parse } from "hs/trace/read";
import { tokensOfStep } from "hs/trace/rounds";

const PLAIN = ["id", "at", "values", "about", "lines", "seed", "plain", "text", "finish", "metrics", "usage", "timings", "sampling", "began", "firstAt", "endedAt"];

/** A run as an object of JSON. */
export function storable(run) {
  const spelt = run.tokens.map(({ text }) => text);
  return { ...Object.fromEntries(PLAIN.map((name) => [name, run[name]])), status: run.status.value, spelt };
}

/** The run that `storable` was given. */
export function revived({ status, spelt, ...plain }) {
  const request = plain.lines.length ? parse(plain.lines).requests[0] : null;
  const tokens = request?.steps.flatMap((step, i) => tokensOfStep(request, step, i)) ?? [];
  return {
    ...plain,
    status: signal(status),
    tick: signal(0),
    failure: null,
    request,
    tokens: tokens.map((token, i) => ({ ...token, text: spelt[i] ?? "" })),
    stopper: new AbortController(),
  };
}

/** The run as a trace file: lines of JSON that `headstart trace` opens. */
export const traceFile = (run) => run.lines.map((line) => `${JSON.stringify(line)}\n`).join("");

/** Have the browser save a text as a file. */
export function save(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/jsonl" }));
  const link = document.createElement("a");
  Object.assign(link, { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
