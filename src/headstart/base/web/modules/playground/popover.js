// The card of the token that is hovered over or has the focus: it floats beside the token and never leaves the window.

import { fill, h } from "hs/base/dom";

const [WIDTH, MARGIN, WAIT] = [340, 8, 60];

/** content(run, index) makes what the card shows. */
export function popover(content) {
  const element = h("div.popover", { role: "tooltip", hidden: true });
  let timer = 0;

  function place(anchor) {
    const [box, around] = [anchor.getClientRects()[0] ?? anchor.getBoundingClientRect(), document.documentElement];
    const width = Math.min(WIDTH, around.clientWidth - 2 * MARGIN);
    element.style.width = `${width}px`;
    const left = Math.max(MARGIN, Math.min(box.left, around.clientWidth - width - MARGIN));
    const height = element.offsetHeight;
    const above = box.bottom + MARGIN + height > window.innerHeight && box.top - MARGIN - height > 0;
    element.style.left = `${left + window.scrollX}px`;
    element.style.top = `${(above ? box.top - MARGIN - height : box.bottom + MARGIN) + window.scrollY}px`;
  }

  return {
    element,
    show(run, index, anchor) {
      clearTimeout(timer);
      timer = setTimeout(() => {
        fill(element, content(run, index));
        element.hidden = false;
        place(anchor);
      }, WAIT);
    },
    hide() {
      clearTimeout(timer);
      timer = setTimeout(() => (element.hidden = true), WAIT);
    },
    hideNow() {
      clearTimeout(timer);
      element.hidden = true;
    },
  };
}
