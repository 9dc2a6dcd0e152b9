// A report: its words and tables stand in the page; here the charts are drawn into their places.

import { data, h } from "hs/base/dom";
import { themeSwitch } from "hs/base/theme";
import { hover } from "hs/figures/hover";
import { plotOf } from "hs/report/plots";
import { zoomable } from "hs/report/zoom";

document.querySelector(".top").append(themeSwitch());
for (const holder of document.querySelectorAll(".plot")) {
  const { kind, content } = data(holder.id);
  const plot = plotOf(kind, content);
  const label = (words, place) => words && h(`p.plot-label.${place}`, { "aria-hidden": "true" }, words);
  for (const part of [label(plot.up, "up"), plot.element, label(plot.across, "across")]) if (part) holder.append(part);
  const shown = plot.places ? hover(holder, plot) : null;
  if (plot.long) holder.after(zoomable(holder, plot, shown));
  holder.classList.add("drawn");
}
