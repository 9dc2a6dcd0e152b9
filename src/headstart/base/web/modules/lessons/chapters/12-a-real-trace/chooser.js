// Which trace is read: one that comes with the lessons, or one of the reader's own.

import { announce } from "hs/base/announce";
import { data, fill, h } from "hs/base/dom";
import { TraceError, parse } from "hs/trace/read";

/** @param {(trace: object, name: string) => void} onOpen @returns {{element: HTMLElement, first: () => void}} */
export function chooser(onOpen) {
  const shipped = data("traces") ?? [];
  const trouble = h("div.trouble", { role: "alert" });

  function open(source, name) {
    try {
      const trace = parse(source);
      fill(trouble);
      onOpen(trace, name);
    } catch (error) {
      if (!(error instanceof TraceError)) throw error;
      fill(trouble, h("p", {}, h("strong", `${name}: `), error.message), h("p", error.hint));
    }
  }

  const openOwn = async (file) => {
    if (!file) return;
    open(await file.text(), file.name);
    announce(`${file.name} was opened.`);
  };
  const select = h("select", { on: { change: () => openShipped(Number(select.value)) } }, shipped.map(({ title, name }, i) => h("option", { value: i }, title ?? name)));
  const openShipped = (i) => shipped[i] && open(shipped[i].lines, shipped[i].title ?? shipped[i].name);
  const input = h("input.unseen", { type: "file", accept: ".jsonl,.json,application/x-ndjson", "aria-label": "Open a trace of your own", on: { change: () => openOwn(input.files[0]) } });
  const element = h("div.trace-chooser", {},
    shipped.length > 0 && h("label.request-choice", {}, h("span", "A recorded trace"), select),
    h("label.open-file", {}, input, h("span", "Open your own")),
    trouble);
  element.addEventListener("dragover", (event) => event.preventDefault());
  element.addEventListener("drop", (event) => {
    event.preventDefault();
    openOwn(event.dataTransfer.files[0]);
  });
  return { element, first: () => openShipped(0) };
}
