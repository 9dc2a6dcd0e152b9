// A figure's one motion, when it comes into view.

import { calm } from "hs/base/dom";

/** Call `action` once, when half of an element is in view; never for readers who want no motion. */
export function whenSeen(element, action) {
  if (calm()) return;
  new IntersectionObserver((seen, observer) => {
    if (!seen.some((each) => each.isIntersecting)) return;
    observer.disconnect();
    action();
  }, { threshold: 0.5 }).observe(element);
}
