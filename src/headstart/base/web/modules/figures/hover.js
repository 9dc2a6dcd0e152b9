// The words of the point that the pointer is nearest to, or that the arrow keys have come to.

import { announce } from "hs/base/announce";
import { fill, h } from "hs/base/dom";

const REACH = 40; // px

/**
 * @param {HTMLElement} owner holds the chart; it takes the focus and the keys
 * @param {{drawing: HTMLElement, places: () => {x: number, y: number, words: string[]}[], stride?: number}} chart
 *   `stride`: how many places lie in a row, where they form a grid that begins at the bottom
 */
export function hover(owner, { drawing, places, stride }) {
  const ring = h("div.hover-ring", { hidden: true });
  const tip = h("div.hover-tip", { hidden: true });
  let at = -1;
  owner.classList.add("hovered");
  owner.tabIndex = 0;
  owner.append(h("div", { "aria-hidden": "true" }, ring, tip));

  function show(index, { aloud = false } = {}) {
    at = index;
    const place = places()[index];
    ring.hidden = tip.hidden = !place;
    if (!place) return;
    const [outer, inner] = [owner.getBoundingClientRect(), drawing.getBoundingClientRect()];
    const [x, y] = [place.x + inner.left - outer.left, place.y + inner.top - outer.top];
    for (const [element, left, top] of [[ring, x, y], [tip, x, y]]) element.style.translate = `${left}px ${top}px`;
    fill(tip, place.words.map((line, i) => h(i ? "div" : "b", line)));
    tip.style.marginLeft = x > outer.width / 2 ? `${-tip.offsetWidth - 12}px` : "12px";
    tip.style.marginTop = y > tip.offsetHeight + 12 ? `${-tip.offsetHeight - 8}px` : "12px";
    if (aloud) announce(place.words.join(", "));
  }

  function nearest(event) {
    const box = drawing.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [best, index] = [REACH ** 2, -1];
    places().forEach((place, i) => {
      const far = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (far < best) [best, index] = [far, i];
    });
    return index;
  }

  owner.addEventListener("pointermove", (event) => show(nearest(event)));
  owner.addEventListener("pointerdown", (event) => show(nearest(event)));
  owner.addEventListener("pointerleave", () => show(-1));
  owner.addEventListener("blur", () => show(-1));
  owner.addEventListener("keydown", (event) => {
    if (event.target !== owner || event.ctrlKey || event.metaKey || event.altKey) return;
    const row = stride ?? 1;
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: row, ArrowDown: -row, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") show(-1);
    if (by === undefined) return;
    event.preventDefault();
    show(Math.max(0, Math.min(places().length - 1, at < 0 ? (by > 0 && by < Infinity ? 0 : at + by) : at + by)), { aloud: true });
  });
  return { at: () => places()[at], show };
}
