// A grid of numbers, coloured from low to high; the reader can pick a cell by pointer or with the arrow keys.

import { fill, h } from "hs/base/dom";

/**
 * @param {object} options
 * @param {any[]} options.rows @param {any[]} options.columns their headings
 * @param {(row: number, column: number) => number} options.value by indices
 * @param {(value: number) => string} [options.format]
 * @param {[number, number]} [options.ring] the cell that is marked: row and column
 * @param {(row: number, column: number) => void} [options.onPick]
 * @param {string} [options.corner] what the rows and columns are: "α \\ K"
 * @param {string} [options.label] of the grid, for a screen reader
 * @param {(row: number, column: number, value: number) => string|null} [options.sign] a mark beside a number, as a star
 * @param {number} [options.low] @param {number} [options.high] the values of the two ends of the colours
 */
export function heatGrid({ rows, columns, value, format = String, ring, onPick, corner = "", label = "Grid", sign, low, high }) {
  const now = { rows, columns, value, format, ring, sign, low, high, corner };
  const table = h("table.heat", { role: onPick ? "grid" : undefined, "aria-label": label });
  const element = h("div.heat-holder", {}, table);
  // Where the grid is wider than its place it scrolls, and a grid without cells to pick must then take the focus itself.
  if (!onPick) new ResizeObserver(() => element.scrollWidth > element.clientWidth ? element.setAttribute("tabindex", "0") : element.removeAttribute("tabindex")).observe(element);
  let cells = [];

  function draw() {
    const numbers = now.rows.map((_, r) => now.columns.map((_, c) => now.value(r, c)));
    const finite = numbers.flat().filter(Number.isFinite);
    const [least, most] = [now.low ?? Math.min(...finite), now.high ?? Math.max(...finite)];
    const share = (n) => Math.max(0, Math.min(1, (n - least) / (most - least || 1)));
    const focused = cells.flat().includes(document.activeElement);
    cells = numbers.map((line, r) => line.map((n, c) => cellOf(n, r, c, share(n))));
    table.style.setProperty("--columns", now.columns.length + 1);
    fill(table, h("thead", {}, h("tr", {}, h("th.corner", { scope: "col" }, now.corner), now.columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, now.rows.map((name, r) => h("tr", {}, h("th", { scope: "row" }, name), cells[r]))));
    if (focused && now.ring) cells[now.ring[0]]?.[now.ring[1]]?.focus();
  }

  function cellOf(n, r, c, share) {
    const picked = now.ring?.[0] === r && now.ring?.[1] === c;
    const mark = now.sign?.(r, c, n);
    const first = now.ring ? picked : r === 0 && c === 0;
    return h("td", {
      class: picked ? "picked" : "",
      style: { "--share": Number.isFinite(n) ? share.toFixed(3) : "0" },
      role: onPick ? "gridcell" : undefined,
      tabindex: onPick ? (first ? "0" : "-1") : undefined,
      "aria-selected": onPick ? String(picked) : undefined,
      on: onPick ? { click: () => pick(r, c), keydown: (event) => moved(event, r, c) } : undefined,
    }, now.format(n), mark && h("span.heat-sign", mark));
  }

  function moved(event, r, c) {
    const by = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const within = (place, count) => Math.max(0, Math.min(count - 1, place));
    pick(within(r + by[0], now.rows.length), within(c + by[1], now.columns.length));
  }

  function pick(r, c) {
    now.ring = [r, c];
    onPick(r, c);
    draw();
    cells[r][c].focus();
  }

  const set = (changes) => {
    Object.assign(now, changes);
    draw();
  };
  draw();
  return { element, set };
}
