// One answer on a line of time: what the machine does, and when a token is on the screen.

import { fill, h, signal, watch } from "hs/base/dom";
import { counted, fixed, seconds as inWords } from "hs/base/format";
import { gantt } from "hs/figures/charts";
import { slider, toggle } from "hs/figures/controls";
import { figure, tableOf } from "hs/figures/figure";
import { answer, gaps, quantile } from "hs/lessons/chapters/10-when-it-hurts/machine";

const ALPHA = 0.8;

const gapWords = (gap) => inWords(gap < 1e-9 ? 0 : gap);

/** The figure; its signals can be read from outside. */
export function timeline() {
  const batch = signal(1);
  const tokens = signal(24);
  const first = signal(300);
  const k = signal(5);
  const paced = signal(false);
  const chart = gantt({ lanes: [], unit: "ms" });
  const numbers = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Both answers in numbers" });
  const words = h("p.figure-said");
  let now = null;

  const rows = () => Object.entries({
    "first token": ({ shown }) => inWords(shown[0]),
    "gap, P50": ({ shown }) => gapWords(quantile(gaps(shown), 0.5)),
    "gap, P99": ({ shown }) => gapWords(quantile(gaps(shown), 0.99)),
    "whole answer": ({ shown }) => inWords(shown.at(-1)),
    "target calls": ({ calls }) => String(calls),
  }).map(([name, of]) => [name, of(now.plain), of(now.fast)]);
  const columns = ["", "plain", "with guesses"];
  const frame = figure({
    label: "One answer in time: what runs, and when each token is on the screen",
    title: true,
    body: [chart.element, numbers, words],
    controls: [
      slider({ label: "Requests at once", value: batch, min: 1, max: 256, step: 1 }),
      slider({ label: "Tokens of the answer", value: tokens, min: 2, max: 120, step: 1 }),
      slider({ label: "Time to the first token", value: first, min: 0, max: 2000, step: 50, format: (ms) => `${ms} ms` }),
      slider({ label: "Guesses a round, K", value: k, min: 1, max: 10, step: 1 }),
      toggle({ label: "Paced stream: show the tokens of a burst evenly", value: paced }),
    ],
    caption: [
      "Machine and models as in the figure above, α = 0.8. Which guesses are kept was drawn once and stays the same. ",
      "A gap is the time between two tokens that follow each other on the screen.",
    ],
    table: () => ({ columns: ["token", "plain, s", "with guesses, s"], rows: now.plain.shown.map((time, i) => [i + 1, fixed(time, 3), fixed(now.fast.shown[i], 3)]) }),
  });

  watch([batch, tokens, first, k, paced], () => {
    now = answer({ batch: batch.value, tokens: tokens.value, first: first.value / 1000, k: k.value, alpha: ALPHA, paced: paced.value });
    draw();
    fill(numbers, tableOf({ columns, rows: rows() }));
    const [slow, quick] = [now.plain.shown.at(-1), now.fast.shown.at(-1)];
    words.textContent = `${counted(tokens.value, "token")}: the whole answer comes ${fixed(slow / quick)} times as fast${slow < quick ? ", which is slower" : ""}. ` +
      `After the first token alone it would be ${fixed((slow - now.plain.shown[0]) / (quick - now.fast.shown[0]))} times.`;
    frame.update();
  });

  function draw() {
    const ms = (block) => ({ ...block, from: block.from * 1000, to: block.to * 1000 });
    const prefill = first.value > 0 ? [{ from: 0, to: first.value, kind: "prefill" }] : [];
    const end = 1000 * Math.max(now.plain.shown.at(-1), now.fast.shown.at(-1));
    const marks = ({ shown }) => shown.map((time) => ({ from: time * 1000, to: time * 1000 + end / 400, kind: "token" }));
    chart.set({
      end: end * 1.01,
      lanes: [
        { name: "Plain: the machine", blocks: [...prefill, ...now.plain.blocks.map(ms)] },
        { name: "Plain: on the screen", blocks: marks(now.plain) },
        { name: "With guesses: the machine", blocks: [...prefill, ...now.fast.blocks.map(ms)] },
        { name: "With guesses: on the screen", blocks: marks(now.fast) },
      ],
    });
  }
  return { element: frame.element, signals: { batch, tokens, first, k, paced } };
}
