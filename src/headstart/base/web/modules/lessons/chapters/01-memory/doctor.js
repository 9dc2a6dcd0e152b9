// One's own machine: what `headstart doctor --output` measured of passes with more and more rows.

import { fill, h } from "hs/base/dom";
import { lineChart } from "hs/figures/charts";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { bytes, milliseconds } from "hs/lessons/chapters/01-memory/machines";

/** A measurement that was really made: a model of a billion weights in 16 bits on two cores of a server processor. */
export const EXAMPLE = {
  headstart_doctor: 1,
  target: { target: "a model of a billion weights", dtype: "bfloat16", device: "cpu" },
  provenance: { cpu: "two cores of an AMD EPYC", date: "2026-11-21" },
  costs: { seconds: 0.0526, v: { 1: 1, 2: 1, 4: 1, 8: 1, 16: 1.232, 32: 1.857, 64: 3.561 }, weight_bytes_read: 2038566912, bytes_per_second: 38721130284, nearly_free_rows: 16 },
};

/** @throws {RangeError} with a plain sentence, where the text is something else */
export function measured(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new RangeError("This is not JSON. Choose the file that --json has written.");
  }
  return costsOf(found);
}

function costsOf(found) {
  const costs = found?.headstart_doctor === 1 ? found.costs : null;
  const points = Object.entries(costs?.v ?? {}).map(([rows, v]) => [Number(rows), Number(v)]).sort(([a], [b]) => a - b);
  if (!(costs?.seconds > 0) || points.length < 2 || points.some(([rows, v]) => !(rows >= 1) || !(v > 0))) {
    throw new RangeError("This JSON is not an answer of headstart doctor: it has no costs of passes.");
  }
  const words = (value) => (typeof value === "string" ? value : "");
  return {
    name: [words(found.target?.target) || "your target", words(found.target?.dtype), words(found.provenance?.cpu)].filter(Boolean).join(", "),
    date: words(found.provenance?.date).slice(0, 10),
    seconds: costs.seconds,
    points,
    read: costs.weight_bytes_read,
    bandwidth: costs.bytes_per_second,
    free: costs.nearly_free_rows,
  };
}

function inWords({ name, date, seconds, read, bandwidth, free, points }) {
  const speed = read && bandwidth ? `, in which it reads ${bytes(read)} of weights, ${bytes(bandwidth)} a second` : "";
  const [rows, v] = points.at(-1);
  return `${name[0].toUpperCase()}${name.slice(1)}${date ? `, measured ${date}` : ""}: a pass with one row takes ${milliseconds(seconds)}${speed}. `
    + `${free > 1 ? `Up to ${free} rows are nearly free` : "More rows cost more from the start"}; ${rows} rows take ${v.toFixed(1)} times as long as one.`;
}

export function ownMachine() {
  let shown = costsOf(EXAMPLE);
  const sentence = h("p.step-words");
  const said = h("p.doctor-said", { role: "status" });
  const chart = lineChart({ x: { label: "rows n in one pass", min: 1, max: 64, log: true }, y: { label: "times a pass with one row", min: 0, max: 4 }, series: [], height: 240 });
  const input = h("input", { type: "file", accept: ".json,application/json", on: { change: () => take(input.files[0]) } });
  const drop = h("div.doctor-drop", {
    on: {
      dragover: (event) => {
        event.preventDefault();
        drop.classList.add("over");
      },
      dragleave: () => drop.classList.remove("over"),
      drop: (event) => {
        event.preventDefault();
        drop.classList.remove("over");
        take(event.dataTransfer.files[0]);
      },
    },
  }, h("p", "In a terminal: ", h("code", "headstart doctor --output mine.json")), h("label", "Your file ", input), button("The example again", () => show(costsOf(EXAMPLE)), { quiet: true }), said);
  const frame = figure({
    label: "What a pass costs on a real machine",
    title: true,
    body: [sentence, chart.element, drop],
    caption: "Measured, so it has what the picture above leaves out: v(n), the cost of a pass with n rows in passes with one. The file is read by this page and goes nowhere.",
    table: () => ({ columns: ["rows n", "v(n)", "time"], rows: shown.points.map(([n, v]) => [n, v.toFixed(2), milliseconds(v * shown.seconds)]) }),
  });

  async function take(file) {
    if (!file) return;
    try {
      show(measured(await file.text()));
      said.textContent = `This is ${file.name}.`;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      said.textContent = error.message;
    }
    input.value = ""; // so that the same file can be chosen again
  }

  function show(found) {
    shown = found;
    fill(said);
    sentence.textContent = inWords(found);
    const most = found.points.at(-1)[0];
    chart.set({
      x: { label: "rows n in one pass", min: 1, max: most, ticks: found.points.map(([n]) => n), log: true },
      y: { label: "times a pass with one row", min: 0, max: Math.max(2, ...found.points.map(([, v]) => v * 1.1)) },
      series: [{ name: "", points: found.points }, { name: "", points: found.points, dots: true, colour: "p" }],
      rule: { y: 1, label: "free" },
    });
    frame.update();
  }
  show(shown);
  return frame.element;
}
