// The proof as a motion: what q has too much of falls into what p still lacks.

import { calm, h } from "hs/base/dom";

const SECONDS = 1.4;

/**
 * Moves copies of the refused parts of the draft's towers into the gaps of what comes out.
 *
 * @param {HTMLElement} holder an element that holds both pictures, and is positioned
 * @param {HTMLElement} towers @param {HTMLElement} out the pictures, their words in the same order
 * @returns {{play: (p: number[], q: number[]) => void, stop: () => void}}
 */
export function flow(holder, towers, out) {
  const pieces = h("div", { "aria-hidden": "true" });
  const gaps = [...out.querySelectorAll(".tower-beyond.of-p")];
  const surpluses = [...towers.querySelectorAll(".tower.of-q .tower-beyond")];
  let runs = [];
  const settle = () => {
    runs.forEach((each) => each.cancel());
    runs = [];
    pieces.remove();
    pieces.replaceChildren();
    gaps.forEach((gap) => gap.classList.remove("awaiting"));
  };

  function play(p, q) {
    settle();
    const lacking = p.map((x, i) => Math.max(0, x - q[i]));
    const spare = q.map((x, i) => Math.max(0, x - p[i]));
    const whole = lacking.reduce((sum, x) => sum + x, 0);
    if (calm() || whole < 1e-9) return;
    const frame = holder.getBoundingClientRect();
    const taken = gaps.map(() => 0); // the share of each gap that is filled already
    const moves = [];
    surpluses.forEach((surplus, i) => {
      let given = 0;
      lacking.forEach((gap, j) => {
        if (!spare[i] || !gap) return;
        const from = slice(surplus, frame, given, gap / whole);
        const into = slice(gaps[j], frame, taken[j], spare[i] / whole);
        given += gap / whole;
        taken[j] += spare[i] / whole;
        const piece = h("div.flow-piece");
        pieces.append(piece);
        moves.push([piece, from, into]);
      });
    });
    gaps.forEach((gap) => gap.classList.add("awaiting"));
    holder.append(pieces);
    runs = moves.map(([piece, from, into], n) =>
      piece.animate([{ ...from, offset: 0 }, { ...from, offset: 0.15 }, { ...into, offset: 1 }],
        { duration: 1000 * SECONDS, delay: 150 * n, easing: "cubic-bezier(0.5, 0, 0.3, 1)", fill: "both" }));
    Promise.all(runs.map((each) => each.finished)).then(settle, () => {});
  }

  return { play, stop: settle };
}

/** Where a part of an element lies in the frame: from a share of its height up, so much of it. */
function slice(element, frame, from, share) {
  const box = element.getBoundingClientRect();
  const [top, height] = [box.bottom - frame.top - (from + share) * box.height, share * box.height];
  return { left: `${box.left - frame.left}px`, top: `${top}px`, width: `${box.width}px`, height: `${height}px` };
}
