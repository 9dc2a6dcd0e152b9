// A number in a sentence that can be dragged, or moved by the arrow keys.

import { h, watch } from "hs/base/dom";

const PIXELS_PER_STEP = 6;

/**
 * An inline number bound to a signal.
 * @param {object} value the signal.
 * @param {object} options {label, min, max, step, format?: (number) => string}
 */
export function handle(value, { label, min, max, step, format = String }) {
  const digits = (String(step).split(".")[1] ?? "").length;
  const put = (next) => {
    value.value = Number(Math.max(min, Math.min(max, min + Math.round((next - min) / step) * step)).toFixed(digits));
  };
  const element = h("span.handle", {
    role: "slider",
    tabindex: "0",
    "aria-label": label,
    "aria-valuemin": min,
    "aria-valuemax": max,
    title: `${label}: drag, or use the arrow keys`,
  });
  const large = Math.max(step, (max - min) / 10);
  const keys = {
    ArrowRight: () => value.value + step,
    ArrowUp: () => value.value + step,
    ArrowLeft: () => value.value - step,
    ArrowDown: () => value.value - step,
    PageUp: () => value.value + large,
    PageDown: () => value.value - large,
    Home: () => min,
    End: () => max,
  };
  element.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    put(keys[event.key]());
  });
  element.addEventListener("pointerdown", (event) => {
    const [from, before] = [event.clientX, value.value];
    element.setPointerCapture(event.pointerId);
    const move = (moved) => put(before + Math.round((moved.clientX - from) / PIXELS_PER_STEP) * step);
    const end = () => {
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", end);
      element.removeEventListener("pointercancel", end);
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", end);
    element.addEventListener("pointercancel", end);
  });
  watch([value], (now) => {
    element.textContent = format(now);
    element.setAttribute("aria-valuenow", now);
    element.setAttribute("aria-valuetext", format(now));
  });
  return element;
}
