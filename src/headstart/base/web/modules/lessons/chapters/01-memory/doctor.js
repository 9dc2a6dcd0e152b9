// One's own machine: what `headstart doctor --output` measured of passes with more and more rows.

import { h } from "hs/base/dom";
import { day } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { figure } from "hs/figures/figure";
import { EXAMPLE, costsOf, doctorDrop } from "hs/lessons/chapters/doctor-file";
import { bytes, milliseconds } from "hs/lessons/chapters/01-memory/machines";

function inWords({ name, date, seconds, read, bandwidth, free, points }) {
  const speed = read && bandwidth ? `, in which it reads ${bytes(read)} of weights, ${bytes(bandwidth)} a second` : "";
  const [rows, v] = points.at(-1);
  return `${name[0].toUpperCase()}${name.slice(1)}${date ? `, measured on ${day(date)}` : ""}: a pass with one row takes ${milliseconds(seconds)}${speed}. `
    + `${free > 1 ? `Up to ${free} rows are nearly free` : "More rows cost more from the start"}; ${rows} rows take ${v.toFixed(1)} times as long as one.`;
}

export function ownMachine() {
  let shown = costsOf(EXAMPLE);
  const sentence = h("p.step-words");
  const chart = lineChart({ x: { label: "rows n in one pass", min: 1, max: 64, log: true }, y: { label: "times a pass with one row", min: 0, max: 4 }, series: [], height: 240 });
  const frame = figure({
    label: "What a pass costs on a real machine",
    title: true,
    body: [sentence, chart.element, doctorDrop(show, "The example again")],
    caption: "Measured, so it has what the picture above leaves out: v(n), the cost of a pass with n rows in passes with one. The file is read by this page and goes nowhere.",
    table: () => ({ columns: ["rows n", "v(n)", "time"], rows: shown.points.map(([n, v]) => [n, v.toFixed(2), milliseconds(v * shown.seconds)]) }),
  });

  function show(found) {
    shown = found;
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
