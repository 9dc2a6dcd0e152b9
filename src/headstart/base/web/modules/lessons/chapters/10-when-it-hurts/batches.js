// Many requests at once: where rows stop being free, and where speculation stops paying.

import { computed, h, signal, watch } from "hs/base/dom";
import { fixed, seconds as inWords } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { gain, seconds } from "hs/lessons/chapters/10-when-it-hurts/machine";
import { tell } from "hs/lessons/parts";

const MOST = 512;
const SIZES = [1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512];

/** The figure; batch, alpha and k are signals. */
export function batches() {
  const batch = signal(8);
  const alpha = signal(0.8);
  const k = signal(5);
  const axis = { label: "speed over the baseline", min: 0, max: 4 };
  const chart = lineChart({
    x: { label: "requests at once", min: 1, max: MOST, log: true, ticks: [1, 4, 16, 64, 256, 512] },
    y: axis,
    series: [],
    rule: { y: 1, label: "as fast as plain" },
  });
  const words = h("p.figure-said");
  const now = computed(() => gain(alpha.value, k.value, batch.value), [alpha, k, batch]);
  const frame = figure({
    label: "Speed over the baseline by the number of requests that run at once",
    title: true,
    body: [chart.element, words],
    controls: [
      slider({ label: "Requests at once", value: batch, min: 1, max: 300, step: 1 }),
      slider({ label: "Acceptance, α", value: alpha, min: 0.3, max: 0.95, step: 0.05, format: (a) => fixed(a) }),
      slider({ label: "Guesses a round, K", value: k, min: 1, max: 10, step: 1 }),
    ],
    caption: "A 70B target and a 1B draft in 16 bits on a machine of 3.35 TB/s and 800 TFLOP/s (not the 990 of the data sheet, which kernels do not reach), by the two-line roofline of chapter 1. A request gives K + 1 rows to each verification instead of one. While the machine waits for memory they are free; once it computes all the time, each row costs what a row of another request would.",
    table: () => ({ columns: ["requests", "speed", "plain step", "verification"], rows: SIZES.map((b) => [b, fixed(gain(alpha.value, k.value, b)), inWords(seconds(k.value, b).plain), inWords(seconds(k.value, b).verify)]) }),
  });
  watch([batch, alpha, k], () => {
    const { plain, verify } = seconds(k.value, batch.value);
    const points = SIZES.map((b) => [b, gain(alpha.value, k.value, b)]);
    chart.set({ series: [{ name: `α = ${fixed(alpha.value)}, K = ${k.value}`, points, mark: true }], y: { ...axis, max: Math.max(4, Math.ceil(points[0][1])) }, ring: [batch.value, now.value] });
    tell(words, `${batch.value} × ${k.value + 1} rows: a plain step takes ${inWords(plain)}, a verification ${inWords(verify)}. Speed: `, h("strong", `${fixed(now.value)} times the baseline`), now.value > 1 ? "." : ": do not speculate.");
    frame.update();
  });
  return { element: frame.element, signals: { batch, alpha, k } };
}
