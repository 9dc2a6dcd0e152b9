// The drift game: requests come one by one; press when acceptance has fallen. A detector watches the same requests.

import { h, signal } from "hs/base/dom";
import { announce } from "hs/base/announce";
import { counted, fixed, percent, whole } from "hs/base/format";
import { lineChart } from "hs/figures/charts";
import { button } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { exercise } from "hs/lessons/exercise";
import { ALARM, LENGTH, claimed, judge, stream } from "hs/lessons/chapters/11-keep-it-good/stream";

const WINDOW = 20;

/** The figure and its exercise. */
export function driftGame() {
  const seed = signal(1);
  let [now, seen, pressed] = [null, 0, null];
  const scores = [];
  const dots = lineChart({ x: { label: "request", min: 0, max: LENGTH }, y: { label: "accepted of judged", min: 0, max: 1, ticks: [0, 0.25, 0.5, 0.75, 1] }, series: [], height: 220 });
  const evidence = lineChart({ x: { label: "request", min: 0, max: LENGTH }, y: { label: "evidence", min: 0.1, max: 1e6, log: true, ticks: [1, 1000, 1e6], format: (x) => (x < 1000 ? String(x) : x < 1e6 ? "1,000" : "10⁶ or more") }, series: [], rule: { y: ALARM, label: "alarm" }, height: 180 });
  const after = h("div", { hidden: true }, h("p.chart-name", "What the detector saw"), evidence.element);
  const words = h("p.figure-said.short", { tabindex: "-1" });
  const board = h("p.soft");
  const on = (by) => () => {
    seen = Math.min(LENGTH, seen + by);
    draw();
    if (seen >= LENGTH) words.focus(); // the button that was pressed is off now
    announce(`${counted(seen, "request")}; the last ${Math.min(seen, WINDOW)} accept ${percent(mean(seen))}.`);
  };
  const buttons = [
    button("One request", on(1), { quiet: true }),
    button("Ten requests", on(10)),
    button("It has fallen", () => press(true), { quiet: true }),
    button("Nothing has changed", () => press(false), { quiet: true }),
    button("Another stream", () => begin(seed.value + 1), { quiet: true }),
  ];
  const frame = figure({
    label: "The drift game: acceptance request by request. Say when it has fallen",
    title: true,
    body: [dots.element, after, words, board],
    controls: buttons,
    caption: "A dot is a request. The line is the mean of the last 20. Over 2,000 requests of the past the mean was about 0.80. In three streams of four it falls at some time, by 0.12 to 0.25; in the others it does not.",
    table: () => ({ columns: ["request", "accepted of judged", "mean of 20"], rows: now.xs.slice(0, seen).map((x, i) => [i + 1, fixed(x), fixed(mean(i + 1))]) }),
  });

  const mean = (upTo) => {
    const last = now.xs.slice(Math.max(0, upTo - WINDOW), upTo);
    return last.reduce((a, b) => a + b, 0) / Math.max(1, last.length);
  };

  function draw() {
    const over = pressed !== null;
    const shown = now.xs.slice(0, over ? LENGTH : seen);
    const marks = [{ y: 0.8, label: "the mean of the past" }];
    if (over && now.fall !== null) marks.push({ x: now.fall, label: "it fell" });
    if (over && pressed) marks.push({ x: seen, label: "you" });
    dots.set({
      series: [
        { name: "a request", points: shown.map((x, i) => [i + 1, x]), dots: true, colour: "q" },
        { name: "mean of the last 20", points: shown.map((_, i) => [i + 1, mean(i + 1)]).slice(WINDOW - 1), mark: true, dash: false, colour: "p" },
      ],
      rule: marks,
    });
    after.hidden = !over;
    if (over) {
      const alarms = now.detected === null ? [] : [{ x: now.detected + 1, label: "alarm" }];
      evidence.set({ series: [{ name: "", points: now.evidence.map((e, i) => [i + 1, Math.max(0.1, e)]), mark: true }], rule: [{ y: ALARM, label: "" }, ...alarms] });
    }
    buttons.slice(0, 4).forEach((each) => (each.disabled = over || (seen >= LENGTH && each !== buttons[2] && each !== buttons[3])));
    if (!over) words.textContent = seen >= LENGTH ? "That was all of it. Has it fallen, or has nothing changed?" : `${counted(seen, "request")} so far.${seen >= WINDOW ? ` The last 20 accept ${percent(mean(seen))}.` : ""}`;
    frame.update();
  }

  function press(fallen) {
    if (pressed !== null) return;
    pressed = fallen;
    const result = fallen ? judge(now, seen) : { kind: now.fall === null || seen <= now.fall ? "right" : "missed", delay: NaN };
    scores.push(result.kind);
    draw();
    words.textContent = sentence(result);
    board.textContent = `${counted(scores.length, "stream")}: ${scores.filter((kind) => kind === "good" || kind === "right").length} well judged, ${counted(scores.filter((kind) => kind === "early").length, "false alarm")}.`;
    words.focus();
  }

  function sentence({ kind, delay }) {
    const truth = now.fall === null ? "Nothing changed in this stream." : `It fell by ${fixed(now.drop)} after request ${now.fall}.`;
    const theirs = now.detected === null ? "The detector raised no alarm." : now.fall !== null && now.detected >= now.fall ? `The detector needed ${counted(now.detected + 1 - now.fall, "request")}.` : "The detector raised a false alarm.";
    const yours = { early: "A false alarm: nothing had happened yet.", missed: "You missed it.", right: "Right.", late: `You needed ${counted(delay, "request")}: too long.`, good: `You needed ${counted(delay, "request")}.` }[kind];
    return `${truth} ${yours} ${theirs}`;
  }

  function begin(next) {
    seed.value = next;
    [now, seen, pressed] = [stream(next, { always: next === 1 }), WINDOW, null];
    draw();
  }
  begin(1);

  const read = () => ({ now, seen, pressed });
  const solve = () => {
    while (now.fall === null || now.detected === null || now.detected < now.fall) begin(seed.value + 1);
    seen = now.detected + 1;
    press(true);
  };
  return { element: frame.element, exercise: foundInTime(read, solve) };
}

function foundInTime(read, solve) {
  return exercise({
    id: "11.2",
    title: "As quick as the detector",
    ask: "Play a stream in which acceptance falls, and say so within one and a half times the detector’s delay, without a false alarm. Another stream is always there.",
    widget: { element: h("p.soft", "The last stream that you have judged above is your answer."), read },
    check({ now, seen, pressed }) {
      if (pressed === null) return { ok: false, say: "You have not judged this stream yet." };
      if (!pressed) return { ok: false, say: now.fall === null ? "Right, nothing changed there. Now take a stream in which it falls." : "In this stream it does fall." };
      const { kind, delay } = judge(now, seen);
      if (kind === "early") return { ok: false, say: "A false alarm. A mean of 20 requests goes up and down by 0.03 all by itself; wait for more." };
      if (kind === "late") return { ok: false, say: `${counted(delay, "request")}: the detector was more than a third quicker.` };
      return { ok: true, say: `${counted(delay, "request")} after the fall. Now imagine 50 drafters and tags, day and night: that is what the detector is for. And it keeps its promise about false alarms whenever one looks.` };
    },
    hints: ["Before you begin, settle on a rule: for example, “the mean of 20 is below 0.72”.", "Go on by ten until the line dips, then by one. A dip that is drift goes on; one that is chance returns."],
    solution: () => `The detector bets against “the mean is at least ${fixed(claimed())}”: each request below that multiplies its stake a little, each above divides it. At ${whole(ALARM)} it says so. Press where its curve crosses the line.`,
    solve,
  });
}

/** How many requests a fall takes to be seen, for the prediction: the detector's median delay over many streams. */
export function medianDelay(drop) {
  const delays = [];
  for (let seed = 0; seed < 400 && delays.length < 40; seed++) {
    const each = stream(seed, { always: true });
    if (each.drop === drop && each.detected !== null && each.detected >= each.fall) delays.push(each.detected + 1 - each.fall);
  }
  return delays.sort((a, b) => a - b)[Math.floor(delays.length / 2)];
}
