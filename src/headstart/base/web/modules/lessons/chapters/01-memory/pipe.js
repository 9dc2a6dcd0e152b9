// Bytes through a pipe: the weights on one side, the arithmetic on the other, and which of the two one waits for.

import { fill, h, signal, watch } from "hs/base/dom";
import { whole } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { choice, slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { MACHINES, ROWS, bytes, milliseconds, passOf } from "hs/lessons/chapters/01-memory/machines";

/** The signals that figure and sentences share. */
export const setting = () => ({ billions: signal(70), bits: signal(16), bandwidth: signal(3350), flops: signal(990), place: signal(0) });

const setupOf = ({ billions, bits, bandwidth, flops }) => ({ billions: billions.value, bits: bits.value, bandwidth: bandwidth.value, flops: flops.value });
export const rowsOf = ({ place }) => ROWS[place.value];

export function pipe(now) {
  const all = [now.billions, now.bits, now.bandwidth, now.flops, now.place];
  const [store, tube, chip] = [h("div.pipe-store"), h("div.pipe-tube"), h("div.pipe-chip")];
  const [reading, multiplying] = [h("div.pipe-bar"), h("div.pipe-bar")];
  const verdict = h("p.step-words");
  const chart = lineChart({ x: axis(), y: { label: "", min: 0, max: 1 }, series: [{ name: "", points: [] }], height: 220 });
  const frame = figure({
    label: "One pass: read all weights, multiply them with every row",
    title: true,
    body: [
      h("div.pipe", { "aria-hidden": "true" }, store, tube, chip),
      h("div.pipe-bars", { "aria-hidden": "true" }, h("span", "reading"), reading, h("span", "multiplying"), multiplying),
      verdict,
      chart.element,
    ],
    controls: [
      slider({ label: "n, rows in the pass", value: now.place, min: 0, max: ROWS.length - 1, step: 1, format: (place) => String(ROWS[place]) }),
      machineChoice(now),
    ],
    caption: "Reading and multiplying go on at the same time, so a pass takes as long as the slower of the two. This leaves out caches, activations and everything that real kernels waste.",
    table: () => ({
      columns: ["rows n", "reading", "multiplying", "pass", "per row"],
      rows: ROWS.map((n) => {
        const { reading, multiplying, seconds } = passOf(setupOf(now), n);
        return [n, milliseconds(reading), milliseconds(multiplying), milliseconds(seconds), milliseconds(seconds / n)];
      }),
    }),
  });
  watch(all, () => {
    const n = rowsOf(now);
    const pass = passOf(setupOf(now), n);
    draw({ store, tube, chip, reading, multiplying }, now, pass, n);
    verdict.textContent = inWords(pass, n);
    drawChart(chart, now, pass, n);
    frame.update();
  });
  return frame.element;
}

const axis = () => ({ label: "rows n in one pass", min: 1, max: 1024, ticks: ROWS.filter((_, i) => i % 2 === 0), log: true });

function draw({ store, tube, chip, reading, multiplying }, now, pass, n) {
  fill(store, h("strong", bytes(pass.weights)), h("span", "of weights"));
  tube.style.setProperty("--wide", `${8 + 16 * Math.max(0, Math.log10(now.bandwidth.value) - 1)}px`);
  fill(tube, h("span", `${bytes(now.bandwidth.value * 1e9)}/s`));
  fill(chip, h("div.pipe-rows", { style: { "--columns": Math.min(n, 8) } }, Array.from({ length: Math.min(n, 64) }, () => h("i"))), h("span", n === 1 ? "1 row" : `${n} rows`));
  const longest = Math.max(pass.reading, pass.multiplying);
  for (const [bar, seconds, kind] of [[reading, pass.reading, "reading"], [multiplying, pass.multiplying, "multiplying"]]) {
    bar.className = `pipe-bar ${kind}`;
    fill(bar, h("i", { style: { width: `${(70 * seconds) / longest}%` } }), h("span", milliseconds(seconds)));
  }
}

function inWords(pass, n) {
  const bound = pass.reading >= pass.multiplying;
  const many = n === 1 ? "for one row, which is one token" : `for ${n} rows: ${milliseconds(pass.seconds / n)} a row`;
  const spare = bound ? `Multiplying takes ${pass.multiplying < pass.reading / 20 ? "next to nothing beside it" : "less"}: up to ${whole(Math.max(1, Math.floor(pass.free)))} rows take no longer than one.`
    : "There are now so many rows that arithmetic is the slower part: more rows cost more.";
  return `This pass takes ${milliseconds(pass.seconds)} ${many}. It waits for ${bound ? "memory" : "arithmetic"}. ${spare}`;
}

function drawChart(chart, now, pass, n) {
  const fine = Array.from({ length: 101 }, (_, i) => 1024 ** (i / 100));
  const points = fine.map((rows) => [rows, 1000 * passOf(setupOf(now), rows).seconds]);
  const top = 1000 * passOf(setupOf(now), 1024).seconds;
  chart.set({
    y: { label: "ms a pass", min: 0, max: top * 1.08 },
    series: [{ name: "", points }],
    ring: [n, 1000 * pass.seconds],
    rule: pass.free > 1 && pass.free < 1024 ? { x: pass.free, label: `${Math.floor(pass.free)} rows are free` } : [],
  });
}

function machineChoice(now) {
  const chosen = signal("h100");
  chosen.watch(() => {
    if (!MACHINES[chosen.value]) return;
    now.bandwidth.value = MACHINES[chosen.value].bandwidth;
    now.flops.value = MACHINES[chosen.value].flops;
  });
  const follow = () => {
    const same = Object.entries(MACHINES).find(([, { bandwidth, flops }]) => bandwidth === now.bandwidth.value && flops === now.flops.value);
    if (same) chosen.value = same[0];
  };
  now.flops.watch(follow);
  return choice({ label: "Machine", value: chosen, options: Object.entries(MACHINES).map(([key, { name }]) => [key, name]) });
}
