// Ten thousand draws of the rule, and the distribution they run to.

import { announce } from "hs/base/announce";
import { calm, fill, h, signal, svg, watch } from "hs/base/dom";
import { counted, fixed, whole } from "hs/base/format";
import { numbersOf } from "hs/algorithm/arithmetic";
import { residual, totalVariation } from "hs/algorithm/distributions";
import { RandomState, pick } from "hs/algorithm/randomstate";
import { button, choice } from "hs/figures/controls";
import { figure } from "hs/figures/figure";

const FIRST = 30; // draws that are made when the figure appears

export const AFTER = [["residual", "the residual"], ["target", "p itself"]];

/** One token of the rule with one guess. */
export function once(p, q, after, rng) {
  const token = pick(q, rng.random());
  if (rng.random() < p[token] / q[token]) return token;
  return pick(after === "residual" ? residual(p, q) : p, rng.random());
}

/**
 * The race over distributions that can change.
 *
 * @param {string[]} words @param {{value: {p: Fraction[], q: Fraction[]}, watch: Function}} distributions
 */
export function race(words, distributions) {
  const after = signal("residual");
  const state = { rng: new RandomState(4), counts: words.map(() => 0), drawn: 0, trail: [], number: 0, opening: false };
  const lanes = words.map((word) => lane(word));
  const path = svg("polyline", { class: "race-path", points: "" });
  const chart = trailChart(path);
  const said = h("p.race-said", { "aria-live": "off" });
  const frame = figure({
    label: "The share of each word among the draws so far, against p; below, the distance between the two.",
    title: true,
    body: h("div.race", {}, lanes.map((each) => each.element), said, chart),
    controls: [
      choice({ label: "After a refusal, draw from", value: after, options: AFTER }),
      h("div.race-buttons", {}, button("Draw 1", () => run(1), { quiet: true }), button("Draw 100", () => run(100), { quiet: true }), button("Draw 10,000", () => run(10_000)), button("Begin again", () => reset(), { quiet: true })),
    ],
    caption: "The upright line on each bar is p. Every draw plays the whole rule: a guess from q, a uniform draw u, and another word where u refuses it.",
    table: () => {
      const { p } = numeric();
      return { columns: ["word", "drawn", "share", "p"], rows: words.map((word, i) => [word, whole(state.counts[i]), fixed(shareOf(i), 4), fixed(p[i], 4)]) };
    },
  });

  const numeric = () => ({ p: numbersOf(distributions.value.p), q: numbersOf(distributions.value.q) });
  const shareOf = (i) => (state.drawn ? state.counts[i] / state.drawn : 0);

  function reset() {
    state.number += 1;
    state.opening = false;
    Object.assign(state, { rng: new RandomState(4), counts: words.map(() => 0), drawn: 0, trail: [] });
    draw();
  }

  function step(p, q) {
    state.counts[once(p, q, after.value, state.rng)] += 1;
    state.drawn += 1;
    if (state.drawn < 10 || state.drawn % Math.ceil(state.drawn / 40) === 0) {
      state.trail.push([state.drawn, totalVariation(p, words.map((_, i) => shareOf(i)))]);
    }
  }

  function run(count) {
    if (state.opening) reset(); // what was drawn before anybody asked does not count
    const { p, q } = numeric();
    let left = count;
    const begun = state.number;
    const some = (most) => {
      if (begun !== state.number || !frame.element.isConnected) return; // begun again since, or on another page
      for (; left > 0 && most > 0; left--, most--) step(p, q);
      draw();
      if (left > 0) requestAnimationFrame(() => some(most || Math.ceil(count / 40)));
      else announce(words_());
    };
    if (calm() || count < 200) some(count);
    else some(Math.ceil(count / 40));
  }

  const distance = () => totalVariation(numeric().p, words.map((_, i) => shareOf(i)));
  const words_ = () => (state.drawn ? `${counted(state.drawn, "draw")}: ${words.map((word, i) => `${word} ${fixed(shareOf(i), 3)}`).join(", ")}. Distance to p: ${fixed(distance(), 3)}.` : "Nothing drawn yet.");

  function draw() {
    const { p } = numeric();
    lanes.forEach((each, i) => each.draw(shareOf(i), p[i]));
    said.textContent = words_();
    path.classList.toggle("wrong", after.value !== "residual");
    path.setAttribute("points", state.trail.map(([n, tv]) => `${place(n).toFixed(1)},${height(tv).toFixed(1)}`).join(" "));
    frame.update();
  }

  /** From the start, with the first draws made: a chart without a line says nothing. */
  function again() {
    reset();
    const { p, q } = numeric();
    for (let i = 0; i < FIRST; i++) step(p, q);
    state.opening = true;
    draw();
  }

  watch([distributions, after], again);
  return { element: frame.element, run, state };
}

function lane(word) {
  const fillBar = h("div.lane-fill");
  const mark = h("div.lane-mark");
  const value = h("span.lane-value");
  const element = h("div.lane", {}, h("span.lane-word", word), h("div.lane-well", {}, fillBar, mark), value);
  return {
    element,
    draw(share, p) {
      fillBar.style.width = `${100 * share}%`;
      mark.style.left = `${100 * p}%`;
      value.textContent = fixed(share, 3);
    },
  };
}

const WIDTH = 320;
const [MOST_DRAWS, LEAST_DISTANCE] = [100_000, 0.001];
const place = (n) => 44 + (Math.log10(Math.min(n, MOST_DRAWS)) / Math.log10(MOST_DRAWS)) * (WIDTH - 60);
/** From 1, the largest distance of two distributions, down; 0 has no place on such a scale and lies on its foot. */
export const height = (tv) => 8 + (Math.log10(Math.max(tv, LEAST_DISTANCE)) / Math.log10(LEAST_DISTANCE)) * 88;

/** Distance to p by number of draws, both on scales of powers of ten: the right rule falls in a line, a wrong one stops. */
function trailChart(path) {
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} 128`, "aria-hidden": "true", class: "race-trail" });
  for (const tv of [1, 0.1, 0.01, 0.001]) {
    chart.append(svg("line", { x1: 44, x2: WIDTH - 8, y1: height(tv), y2: height(tv), class: "race-grid" }));
    chart.append(svg("text", { x: 36, y: height(tv) + 4, "text-anchor": "end", class: "soft" }, String(tv)));
  }
  for (const [n, text] of [[1, "1"], [10, "10"], [100, "100"], [1000, "1,000"], [10_000, "10,000"]]) {
    chart.append(svg("text", { x: place(n), y: 116, "text-anchor": "middle", class: "soft" }, text));
  }
  chart.append(path);
  return fill(h("div.race-chart"), h("p.chart-name", "distance to p, by draws; a line of the grid is a tenth of the one above"), chart);
}
