// The recorded race: the same text twice, as it came, with and without a draft; slowed down so that one can follow.

import { announce } from "hs/base/announce";
import { calm, h, signal } from "hs/base/dom";
import { counted, fixed, seconds } from "hs/base/format";
import { button, choice } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { legend } from "hs/figures/text";
import { whenSeen } from "hs/lessons/seen";

const WATCHABLE = 15; // seconds that a race should take, so that one can follow
const HERO = 6; // seconds that it takes on the first page

/** How often slower the clock may go: as it was, and two slower ones that depend on how quick the race was. */
function speedsOf(seconds) {
  const slow = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].findLast((factor) => factor * seconds <= WATCHABLE) ?? 1;
  return [[1, "as it was"], ...(slow > 1 ? [[slow, `${slow} times slower`]] : []), [4 * slow, `${4 * slow} times slower`]];
}

/** One typist: a text that appears, a clock, and one block for each pass of the large model. */
function lane({ name, run, origins, prompt, end }) {
  const spans = run.tokens.map((token) => {
    const [, blank, word] = /^(\s*)(.*)$/s.exec(token.text); // only words are underlined
    return h("span.later", {}, blank, h(`span.tok.${origins ? token.origin : "plain"}`, word));
  });
  const ends = [...new Map(run.tokens.map((token, i) => [token.step ?? i, token.at])).values()];
  const passes = ends.map((at, i) => h("i", { style: { "flex-grow": (1000 * (at - (ends[i - 1] ?? 0))) / run.seconds } }));
  const clock = h("span.race-clock");
  // All tracks share a scale, so that the length of a strip is a time.
  const strip = h("div.race-strip", { "aria-hidden": "true" }, h("div.race-passes", { style: { width: `${(100 * run.seconds) / end}%` } }, passes));
  const arrived = (time) => run.tokens.filter(({ at }) => at <= time + 1e-9).length;
  return {
    track: h("div.race-track", {}, h("strong", name), clock, strip),
    text: h("div", {}, h("p.race-name", { "aria-hidden": "true" }, name), h("pre.race-text", { "aria-label": name, role: "group" }, h("div", {}, h("span.tok.prompt", prompt), spans))),
    arrived,
    show(time) {
      const count = arrived(time);
      spans.forEach((span, i) => span.classList.toggle("later", i >= count));
      const done = ends.filter((at) => at <= time + 1e-9).length;
      passes.forEach((pass, i) => pass.classList.toggle("done", i < done));
      clock.textContent = `${seconds(Math.min(time, run.seconds))} · ${counted(count, "token")} · ${counted(done, "pass", "passes")}`;
    },
  };
}

/** Both lanes, the button that runs them, and the result below once they have run. slow: a signal, how often slower. */
function course(recorded, slow) {
  const { plain, headstart } = recorded;
  const end = Math.max(plain.seconds, headstart.seconds);
  const prompt = recorded.prompt ?? "";
  const lanes = [lane({ name: "The model alone", run: plain, prompt, end }), lane({ name: "With a draft", run: headstart, origins: true, prompt, end })];
  const told = h("p.race-result", {}, "\u00a0");
  let time = 0;
  let playing = null;
  const show = (next) => {
    time = Math.min(next, end);
    lanes.forEach((each) => each.show(time));
    told.textContent = time >= end ? outcome(recorded) : "\u00a0";
  };
  const stop = () => {
    cancelAnimationFrame(playing);
    playing = null;
    play.textContent = time >= end ? "Run it again" : "Start the race";
  };
  const finish = () => {
    show(end);
    stop();
  };
  const run = () => {
    if (time >= end) show(0);
    play.textContent = "Stop";
    let before = null;
    const tick = (now) => {
      if (!play.isConnected) return stop();
      show(time + (before === null ? 0 : (now - before) / 1000 / slow.value));
      before = now;
      if (time < end) return (playing = requestAnimationFrame(tick));
      finish();
      announce(result(recorded));
    };
    playing = requestAnimationFrame(tick);
  };
  const play = button("Start the race", () => {
    if (playing !== null) return stop();
    if (!calm()) return run();
    finish();
    announce(result(recorded));
  });
  const tracks = h("div.race-tracks", {}, lanes.map((each) => each.track));
  const texts = h("div.race", {}, lanes.map((each) => each.text));
  const untouched = () => playing === null && time === 0;
  return { lanes, tracks, texts, told, play, run, finish, untouched, show: (next) => { if (playing !== null) stop(); show(next); } };
}

/** The race as the first page shows it: it runs once by itself, in six seconds, and ends with its result. */
export function hero(recorded) {
  const end = Math.max(recorded.plain.seconds, recorded.headstart.seconds);
  const slow = signal(Math.max(1, HERO / end));
  const { tracks, texts, told, play, run, finish, untouched, show } = course(recorded, slow);
  show(0);
  if (calm()) finish();
  whenSeen(tracks, () => untouched() && run());
  const { element } = figure({
    label: "The same model writes the same text twice",
    body: [tracks, texts, told],
    controls: [play, h("a.hero-next", { href: "#00" }, "How is that possible? →")],
    caption: `A recording${slow.value > 1 ? `, ${fixed(slow.value, 0)} times slower than it was` : ""}. What has a solid line under it was guessed by the small model; each block is one pass of the large one.`,
  });
  element.classList.add("hero");
  return element;
}

/** @param {object} recorded data("race") */
export function race(recorded) {
  const { plain, headstart } = recorded;
  const speeds = speedsOf(Math.max(plain.seconds, headstart.seconds));
  const slow = signal(speeds[1][0]);
  const { lanes, tracks, texts, told, play, show } = course(recorded, slow);
  const origins = ["accepted", "correction", "bonus", "plain"].filter((origin) => headstart.tokens.some((token) => token.origin === origin));
  const moments = momentsOf(plain, headstart);
  const words = (i) => `After ${seconds(moments[i])}: ${lanes[0].arrived(moments[i])} tokens alone, ${lanes[1].arrived(moments[i])} with a draft.`;
  return figure({
    label: "The same model writes the same text twice",
    title: true,
    body: [tracks, texts, told, legend(origins)],
    controls: [play, choice({ label: "Clock", value: slow, options: speeds })],
    caption: madeBy(recorded),
    table: () => ({
      columns: ["", "tokens", "passes of the large model", "time", "tokens a pass"],
      rows: [["alone", plain], ["with a draft", headstart]].map(([name, run]) => [name, run.tokens.length, run.forwards, seconds(run.seconds), fixed(run.tokens.length / run.forwards)]),
    }),
    steps: { count: moments.length, show: (i) => show(moments[i]), words, place: (i) => `${seconds(moments[i])} of ${seconds(moments.at(-1))}` },
  }).element;
}

/** When something happens on either side, thinned to two dozen steps. */
function momentsOf(plain, headstart) {
  const times = [0, ...headstart.tokens.map(({ at }) => at), ...plain.tokens.map(({ at }) => at).filter((at) => at > headstart.seconds)];
  const all = [...new Set(times)].sort((a, b) => a - b);
  const every = Math.ceil(all.length / 24);
  return all.filter((_, i) => i % every === 0 || i === all.length - 1);
}

export const gainOf = ({ plain, headstart }) => plain.seconds / headstart.seconds;

/** The result in a few words. */
const outcome = (recorded) => `${fixed(gainOf(recorded), 1)} times as fast${recorded.same_text ? ", and the same letters" : ""}.`;

/** The result in a sentence. */
export const result = (recorded) =>
  `Alone: ${seconds(recorded.plain.seconds)} and ${counted(recorded.plain.forwards, "pass", "passes")}. With a draft: ${seconds(recorded.headstart.seconds)} and `
  + `${counted(recorded.headstart.forwards, "pass", "passes")}. That is ${fixed(gainOf(recorded), 1)} times as fast${recorded.same_text ? ", and the texts are the same, letter for letter" : ""}.`;

const madeBy = ({ target, drafter, machine, created, command }) =>
  [`Recorded: ${[target && `${target} with ${drafter}`, machine, created?.slice(0, 10)].filter(Boolean).join(", ")}.`, command && [" ", h("code", command)]];
