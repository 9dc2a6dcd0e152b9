// The page that `headstart trace --html` writes: the trace that it was built with, and any other that is opened.

import { announce } from "hs/base/announce";
import { data, fill, h } from "hs/base/dom";
import { themeSwitch } from "hs/base/theme";
import { parse, TraceError } from "hs/trace/read";
import { viewer } from "hs/viewer/app";

const main = h("main.viewer-page", { id: "viewer", tabindex: "-1" });
const trouble = h("div.trouble", { role: "alert" });
const holder = h("div");
let shown = null;

/** Show a trace from a text or from lines; what is no trace is said in words, and the one before stays. */
function open(source, name = "") {
  try {
    const trace = parse(source);
    fill(trouble);
    if (shown) shown.show(trace);
    else shown = viewer({ trace });
    fill(holder, shown.element);
    if (name) announce(`${name} is open.`);
  } catch (error) {
    if (!(error instanceof TraceError)) throw error;
    fill(trouble, h("p", {}, h("strong", name ? `${name}: ` : ""), error.message), h("p", error.hint));
    trouble.scrollIntoView({ block: "nearest" });
  }
}

const take = async (file) => file && open(await file.text(), file.name);

function opener() {
  const input = h("input.unseen", { type: "file", accept: ".jsonl,.json,application/x-ndjson", "aria-label": "Open a trace", on: { change: () => take(input.files[0]) } });
  return h("label.open-file", {}, input, h("span", "Open a trace"));
}

addEventListener("dragover", (event) => {
  event.preventDefault();
  main.classList.add("dropping");
});
addEventListener("dragleave", (event) => event.relatedTarget === null && main.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  main.classList.remove("dropping");
  take(event.dataTransfer.files[0]);
});

main.append(
  h("header.viewer-head", {}, h("h1", "A trace, round by round"), opener()),
  trouble,
  holder,
);
document.body.append(
  h("header.top", {}, h("span.home", {}, h("span.logo", { "aria-hidden": "true" }, "▸▸"), " headstart ", h("span.soft", "traces")),
    data("playground") && h("a.to-playground", { href: data("playground") }, "Playground"), themeSwitch()),
  main,
);

const given = data("trace");
if (given) open(given);
else fill(holder, h("p", "Open a trace, or drop its file on this page. One is recorded with: "), h("pre.command", "headstart generate --trace trace.jsonl PROMPT"));
