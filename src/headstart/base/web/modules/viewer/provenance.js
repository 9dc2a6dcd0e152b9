// Where a trace comes from: when, by which command, with which models; and whether its numbers hold together.

import { h } from "hs/base/dom";
import { counted, day } from "hs/base/format";
import { checkOf } from "hs/trace/check";

const SHOWN = ["target", "drafter", "rule", "pacing", "dtype", "quantize", "device", "threads", "decoder"];

/** The head of the viewer, as elements. */
export function provenance(trace) {
  const { header } = trace;
  if (!header) return h("div.provenance", {}, h("p.soft", "A stream without a header: nothing is known about its engine."));
  const { engine = {}, versions = {} } = header;
  const facts = [
    ...SHOWN.filter((name) => engine[name] !== undefined && engine[name] !== null).map((name) => [name, String(engine[name])]),
    ...Object.entries(versions),
  ];
  const made = [`Recorded ${dateOf(header.created)}`, versions.headstart && `by headstart ${versions.headstart}`].filter(Boolean).join(" ");
  return h(
    "div.provenance",
    {},
    h("p.provenance-line", {}, h("strong", String(engine.target ?? "a target")), engine.drafter ? ` with guesses from ${engine.drafter}` : "", h("span.soft", `. ${made}.`)),
    header.note && h("p", header.note),
    h("details", {}, h("summary", "Provenance"),
      header.command && h("pre.command", { tabindex: "0", role: "region", "aria-label": "The command" }, header.command),
      h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", name), h("dd", value)))),
      h("p", checkedWords(trace.requests.map(checkOf)))),
  );
}

/** What the page worked out again, in words. */
export function checkedWords(checks) {
  const total = (name, member) => checks.reduce((sum, each) => sum + each[name][member], 0);
  const uniforms = total("uniforms", "count");
  if (uniforms === 0) return "No uniform draw was made in this trace: its guesses were not drawn, so the target’s own tokens decide.";
  const wrong = total("uniforms", "wrong") + total("decisions", "wrong") + total("weights", "wrong");
  const what = `${counted(uniforms, "uniform draw")} from the seeds, ${counted(total("decisions", "count"), "decision")}, and ${counted(total("weights", "count"), "weight")} from p and q`;
  return wrong === 0 ? `This page worked out ${what} again: all agree with the file.` : `This page worked out ${what} again: ${wrong} do not agree with the file.`;
}

/** How a request is sampled, in words. */
export function samplingOf(request) {
  const { temperature = 0, ...others } = request.sampling;
  const rest = Object.entries(others).map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`);
  const rule = request.rule === "coupled" ? "rule “coupled”" : "rule “exact”";
  return [temperature === 0 ? "Greedy" : `Temperature ${temperature}`, ...rest, `seed ${request.seed}`, rule].join(", ");
}

function dateOf(created) {
  const date = new Date(created);
  return Number.isNaN(date.getTime()) ? "at an unknown time" : `on ${day(date.toISOString())} at ${date.toISOString().slice(11, 16)} UTC`;
}
