// A drawing that is redrawn for the width that it has, so that its letters keep their size on every screen.

import { fill, h, svg } from "hs/base/dom";

/**
 * @param {number|((width: number) => number)} height in px
 * @param {(width: number, height: number) => Node[]} draw the content, for a width in px
 * @returns {{element: HTMLElement, redraw: () => void}}
 */
export function sized(height, draw) {
  const element = h("div.sized", { "aria-hidden": "true" });
  let width = 0;
  const redraw = () => {
    if (!width) return;
    const tall = typeof height === "function" ? height(width) : height;
    fill(element, svg("svg", { width, height: tall, viewBox: `0 0 ${width} ${tall}`, focusable: "false" }, draw(width, tall)));
  };
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width) return;
    width = now;
    requestAnimationFrame(redraw);
  }).observe(element);
  return { element, redraw };
}
