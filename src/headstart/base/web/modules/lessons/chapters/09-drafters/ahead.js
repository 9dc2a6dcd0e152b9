// Drafting while the target verifies: two lanes, and the branches that must be ready for every outcome.

import { fill, h } from "hs/base/dom";
import { percent } from "hs/base/format";
import { acceptedLengths } from "hs/algorithm/theory";
import { gantt } from "hs/figures/charts";
import { figure } from "hs/figures/figure";

export const K = 3;
export const ALPHA = 0.7;
export const BRANCHES = 6;
/** The chance that the token after the accepted guesses is among the first F foreseen ones: after a refusal, and after
 * a draft that was accepted whole. */
const AFTER_REFUSAL = [0, 0.45, 0.63, 0.72, 0.78, 0.82, 0.85];
const AFTER_WHOLE = [0, 0.62, 0.79, 0.87, 0.91, 0.93, 0.95];

export const chances = () => acceptedLengths(ALPHA, K);
const cover = (accepted, count) => (accepted === K ? AFTER_WHOLE : AFTER_REFUSAL)[count];

/** The chance that the outcome of a round was foreseen, with so many branches after 0..K accepted guesses. */
export const hitRateOf = (fanOuts) => chances().reduce((total, chance, accepted) => total + chance * cover(accepted, fanOuts[accepted]), 0);

/** The best placing, found by trying all of them. */
export function bestFanOuts() {
  let best = null;
  const place = (given, left) => {
    if (given.length === K) {
      const all = [...given, left];
      if (!best || hitRateOf(all) > hitRateOf(best)) best = all;
      return;
    }
    for (let count = 0; count <= left; count++) place([...given, count], left - count);
  };
  place([], BRANCHES);
  return best;
}

const [DRAFT, VERIFY, FOUND] = [3, 7, 0.4];

/** Blocks of three rounds. ahead: drafting overlaps; hits: which rounds were foreseen. */
function lanesOf(ahead, hits) {
  const [draft, verify] = [[], []];
  let at = 0;
  let ready = ahead ? null : 0;
  hits.forEach((hit, round) => {
    if (!ahead || ready === null || !hit) {
      draft.push({ from: at, to: at + DRAFT, kind: ahead && round > 0 ? "miss" : "draft", label: `draft ${round + 1}` });
      at += DRAFT;
    } else {
      draft.push({ from: at, to: at + FOUND, kind: "hit", label: "" });
      at += FOUND;
    }
    verify.push({ from: at, to: at + VERIFY, kind: "verify", label: `verify ${round + 1}` });
    if (ahead && round < hits.length - 1) draft.push({ from: at, to: at + DRAFT, kind: "draft", label: "ahead" });
    ready = 0;
    at += VERIFY;
  });
  return { lanes: [{ name: "draft model", blocks: draft }, { name: "target", blocks: verify }], end: at };
}

const SCENES = [
  [false, [false, false, false], "In turn: the target waits while the draft model guesses, and the draft model waits while the target checks."],
  [true, [true, true, true], "At once: while the target checks round 1, the draft model already guesses round 2, for each outcome that it finds likely. All were foreseen: the target hardly waits."],
  [true, [true, false, true], "A miss: the outcome of round 1 was not among the branches. Round 2 must be drafted again, and the target waits as before."],
];

/** The two lanes, in three scenes. */
export function lanesFigure() {
  const most = Math.max(...SCENES.map(([ahead, hits]) => lanesOf(ahead, hits).end));
  const chart = gantt({ ...lanesOf(...SCENES[0]), unit: "ms", end: most });
  const says = h("p.round-event");
  return figure({
    label: "Three rounds in two lanes",
    title: true,
    body: [chart.element, says],
    caption: "An illustration with round numbers: a draft of 3 ms and a verification of 7 ms.",
    steps: {
      count: SCENES.length,
      show: (i) => {
        const { lanes, end } = lanesOf(SCENES[i][0], SCENES[i][1]);
        chart.set({ lanes, end: most });
        fill(says, SCENES[i][2], h("strong", ` ${end.toFixed(end % 1 ? 1 : 0)} ms for three rounds.`));
      },
      words: (i) => SCENES[i][2],
    },
    table: () => ({ columns: ["scene", "three rounds take"], rows: SCENES.map(([ahead, hits], i) => [["in turn", "at once, all foreseen", "at once, one miss"][i], `${lanesOf(ahead, hits).end.toFixed(1)} ms`]) }),
  }).element;
}

/** Six branches to be placed by hand. @returns {{element, read: () => number[], place: (fanOuts: number[]) => void}} */
export function placer() {
  let given = Array(K + 1).fill(0);
  const said = h("p.plant-said", { role: "status" });
  const rows = chances().map((chance, accepted) => {
    const count = h("output.place-count", "0");
    const name = accepted === K ? "all 3 guesses kept" : accepted === 0 ? "no guess kept" : `${accepted} kept`;
    const less = h("button.quiet", { type: "button", "aria-label": `One branch less: ${name}`, on: { click: () => change(accepted, -1) } }, "−");
    const more = h("button.quiet", { type: "button", "aria-label": `One branch more: ${name}`, on: { click: () => change(accepted, 1) } }, "+");
    const covered = h("span.soft.place-cover");
    return { count, less, more, covered, element: h("li.place-row", {}, h("span.place-name", {}, h("strong", name), h("span.soft", ` in ${percent(chance)} of rounds`)), h("span.place-buttons", {}, less, count, more), covered) };
  });
  const change = (accepted, by) => {
    given = given.map((count, i) => (i === accepted ? count + by : count));
    show();
  };
  function show() {
    const used = given.reduce((a, b) => a + b, 0);
    rows.forEach(({ count, less, more, covered }, i) => {
      count.textContent = String(given[i]);
      less.disabled = given[i] === 0;
      more.disabled = used === BRANCHES;
      covered.textContent = given[i] ? `foresees ${percent(cover(i, given[i]))} of them` : "foresees none of them";
    });
    fill(said, h("strong", `Hit rate ${percent(hitRateOf(given), 1)}`), `, ${BRANCHES - used} of ${BRANCHES} branches left.`);
  }
  show();
  return {
    element: h("div.placer", {}, h("ul.place-rows", {}, rows.map((row) => row.element)), said),
    read: () => given,
    place: (fanOuts) => {
      given = [...fanOuts];
      show();
    },
  };
}
