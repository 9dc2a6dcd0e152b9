"use strict";
// Draws every plot from the JSON beside it, in the colours of the page; again when light turns to dark, for paper, and
// when the width changes (by itself: plotly's own "responsive" knows nothing of the heights chosen here). A plot whose
// legend or labels need room grows, so that its inside stays readable.
(() => {
  const plots = [...document.querySelectorAll(".plot")];
  const config = JSON.parse(document.getElementById("plot-config").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const AROUND = 130; // px that axes, titles and a legend of one line take
  // What stands in the figures for ink, grid and ground (style.py), and what is drawn.
  const LIGHT = { '"#7d8590"': '"#3b4048"', '"rgba(128,134,145,0.28)"': '"rgba(100,108,120,0.25)"', '"#fdfdfe"': '"#ffffff"' };
  const DARK = { '"#7d8590"': '"#c9ced6"', '"rgba(128,134,145,0.28)"': '"rgba(190,198,210,0.20)"', '"#fdfdfe"': '"#22262d"' };

  const PAPER = 660; // px: fits A4 and Letter between their margins
  let paper = false;

  const figureOf = (plot) => {
    let text = document.getElementById(plot.dataset.plot).textContent;
    for (const [from, to] of Object.entries(dark.matches && !paper ? DARK : LIGHT)) text = text.replaceAll(from, to);
    return JSON.parse(text);
  };

  const draw = (plot) => {
    const wanted = Number(plot.dataset.height) || (!paper && window.innerWidth <= 600 ? 370 : 430);
    const width = paper ? PAPER : plot.clientWidth;
    const drawn = (height) => {
      const { data, layout } = figureOf(plot);
      plot.style.height = height + "px";
      Plotly.react(plot, data, { ...layout, height, width }, config);
      const inside = plot.querySelector(".nsewdrag");
      return inside ? inside.getBoundingClientRect().height : wanted;
    };
    const missing = wanted - AROUND - drawn(wanted);
    if (missing > 1) drawn(wanted + missing);
    plot.classList.add("drawn");
  };

  const drawAll = () => plots.forEach(draw);
  const print = (starts) => {
    paper = starts;
    drawAll();
  };

  const main = document.querySelector("main");
  let seen = main.clientWidth;
  drawAll();
  dark.addEventListener("change", drawAll);
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  new ResizeObserver(() => {
    if (paper || main.clientWidth === seen) return;
    seen = main.clientWidth;
    drawAll();
  }).observe(main);
})();
