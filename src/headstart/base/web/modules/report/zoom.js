// A closer look at a long chart: drag over a part of it, or use the buttons, which a finger and the keyboard can press.

import { append, h } from "hs/base/dom";

const FEWEST = 8; // points

/** @returns {HTMLElement} the buttons. `plot` is a chart of lines with its axis and its whole series; see plots.js. */
export function zoomable(holder, plot, shown) {
  const whole = { min: plot.axis.min, max: plot.axis.max };
  let now = whole;
  const least = ((whole.max - whole.min) * FEWEST) / plot.long; // so that there is something to see

  function look(min, max) {
    const width = Math.max(least, Math.min(whole.max - whole.min, max - min));
    const start = Math.max(whole.min, Math.min(whole.max - width, min));
    now = { min: start, max: start + width };
    plot.set({ x: { ...plot.axis, ...now, ticks: now.min === whole.min && now.max === whole.max ? plot.axis.ticks : undefined } });
    shown.show(-1);
    for (const [button, off] of [[back, now.min <= whole.min], [on, now.max >= whole.max], [all, width >= whole.max - whole.min]]) button.disabled = off;
  }
  const scaled = (factor) => {
    const [middle, half] = [(now.min + now.max) / 2, ((now.max - now.min) / 2) * factor];
    look(middle - half, middle + half);
  };
  const moved = (share) => look(now.min + share * (now.max - now.min), now.max + share * (now.max - now.min));
  const button = (words, sign, press) => h("button.quiet", { type: "button", "aria-label": words, on: { click: press } }, sign);
  const back = button("Earlier part", "←", () => moved(-0.5));
  const on = button("Later part", "→", () => moved(0.5));
  const all = button("The whole chart", "Whole", () => look(whole.min, whole.max));
  const element = append(h("div.plot-zoom", { role: "group", "aria-label": "Look closer" }), back, button("Closer", "+", () => scaled(0.5)), button("Farther", "−", () => scaled(2)), on, all);
  look(whole.min, whole.max);
  dragged(plot, (from, to) => look(from, to), () => now);
  return element;
}

/** A mouse that drags over the drawing chooses a part; a finger scrolls the page. */
function dragged({ drawing }, choose, now) {
  const area = h("div.plot-chosen", { hidden: true });
  drawing.parentElement.append(area);
  drawing.parentElement.classList.add("zooms");
  let from = null;
  const inner = () => {
    const line = drawing.querySelector(".axis");
    return [Number(line.getAttribute("x1")), Number(line.getAttribute("x2"))];
  };
  const place = (event) => {
    const [x0, x1] = inner();
    return Math.max(x0, Math.min(x1, event.clientX - drawing.getBoundingClientRect().left));
  };
  const value = (x) => {
    const [[x0, x1], { min, max }] = [inner(), now()];
    return min + ((x - x0) / (x1 - x0)) * (max - min);
  };
  drawing.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType === "touch") return;
    from = place(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = place(event);
    area.hidden = false;
    Object.assign(area.style, { left: `${Math.min(from, to)}px`, width: `${Math.abs(to - from)}px` });
  });
  drawing.addEventListener("pointerup", (event) => {
    if (from === null) return;
    const [a, b] = [from, place(event)].sort((one, other) => one - other);
    from = null;
    area.hidden = true;
    if (b - a > 8) choose(value(a), value(b));
  });
}
