// Light, dark, or as the system has it: a switch that remembers.

import { h } from "hs/base/dom";

const KEY = "headstart-theme";
const CHOICES = [["", "System"], ["light", "Light"], ["dark", "Dark"]];

// A page from a file may be denied storage; the switch then lasts as long as the page.
const remembered = () => {
  try {
    return localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
};

function choose(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // see above
  }
}

/** The switch, as an element. The remembered theme is taken on at once. */
export function themeSwitch() {
  choose(remembered());
  const select = h(
    "select",
    { "aria-label": "Colours", on: { change: () => choose(select.value) } },
    CHOICES.map(([value, name]) => h("option", { value, selected: value === remembered() }, name)),
  );
  return h("label.theme-switch", {}, h("span.unseen", "Colours"), select);
}
