// The page's one live region: what it is told is read aloud by a screen reader, without moving the focus.

import { h } from "hs/base/dom";

let region;

/** Say something in words. Saying the same again says it again. */
export function announce(words) {
  if (!region) {
    region = h("div.unseen", { "aria-live": "polite", role: "status" });
    document.body.append(region);
  }
  region.textContent = "";
  requestAnimationFrame(() => (region.textContent = words));
}
