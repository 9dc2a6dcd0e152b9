// A draft as a tree: every guess a box with its p and q, the accepted path lit. A chain is a tree with one branch.

import { fill, h, svg } from "hs/base/dom";
import { probability, visible } from "hs/base/format";

const BOX = { width: 92, least: 54, wrapped: 72, height: 52 };
const GAP = { across: 16, down: 16, lanes: 8 };
/** What became of a guess, in words. */
export const STATES = { accepted: "accepted", refused: "refused", beyond: "not reached" };
const PADDING = 12;
const SIGNS = { accepted: "✓", refused: "✗", beyond: "" };

/**
 * @param {object} options
 * @param {{text: string, parent: number, state?: "accepted"|"refused"|"beyond"|"", p?: number, q?: number,
 *   sign?: string}[]} options.nodes parent: -1 for a child of the root, else an earlier node. p and q are drawn as bars.
 * @param {number[]} options.path the accepted nodes.
 * @param {string} [options.root] what the token before the draft writes.
 * @param {(node: number) => void} [options.onPick] makes boxes pressable; -1 is the root.
 * @param {number|null} [options.selected]
 * @param {number[]} [options.lit] nodes that are lit besides the path, as the rule goes along them.
 * @returns {{element: HTMLElement, set: (changes: object) => void}}
 */
export function draftTree({ nodes = [], path = [], root = "…", onPick, selected = null, lit = [], label = "The draft" }) {
  const plane = h("div.tree-plane");
  const element = h("div.draft-tree", { role: "group", "aria-label": label }, plane);
  const state = { nodes, path, root, selected, lit };
  let boxes = new Map();
  let room = 0;

  function draw() {
    const places = layout(state.nodes, (element.clientWidth || 640) - PADDING);
    const edges = state.nodes.map((node, i) => edgeOf(places, node.parent, i));
    const all = [-1, ...state.nodes.keys()];
    boxes = new Map(all.map((node) => [node, boxOf(node, places)]));
    plane.style.width = `${places.width}px`;
    plane.style.height = `${places.height}px`;
    const lines = svg("svg.tree-lines", { width: places.width, height: places.height, "aria-hidden": "true" }, edges);
    fill(plane, lines, [...boxes.values()]);
    // What scrolls must be reached by keyboard, where no box can be
    if (!onPick && places.width > element.clientWidth) element.tabIndex = 0;
    else element.removeAttribute("tabindex");
    mark();
  }

  function edgeOf(places, from, to) {
    const [a, b] = [places.at(from), places.at(to)];
    const d = places.downward || b.y > a.y && places.wrapped
      ? curve(a.x + places.box / 2, a.y + BOX.height, b.x + places.box / 2, b.y, true)
      : curve(a.x + places.box, a.y + BOX.height / 2, b.x, b.y + BOX.height / 2, false);
    return svg("path.tree-edge", { d, data: { node: to } });
  }

  function boxOf(node, places) {
    const { x, y } = places.at(node);
    const own = state.nodes[node];
    const text = node < 0 ? state.root : own.text;
    const kind = node < 0 ? "root" : own.state || "open";
    const attributes = {
      class: kind,
      style: { left: `${x}px`, top: `${y}px`, width: `${places.box}px`, height: `${BOX.height}px` },
      data: { node },
      title: visible(text),
      ...(onPick ? { type: "button", tabindex: "-1", "aria-label": wordsOf(node, text, own) } : {}),
    };
    const sign = own?.sign ?? SIGNS[own?.state] ?? "";
    return h(onPick ? "button.tree-node" : "div.tree-node", attributes,
      h("span.tree-text", {}, h("span.tree-token", visible(text)), sign && h("span.tree-sign", { "aria-hidden": "true" }, sign)),
      own && barsOf(own));
  }

  function mark() {
    const lit = new Set([...state.path, ...state.lit]);
    for (const line of plane.querySelectorAll(".tree-edge")) {
      const node = Number(line.dataset.node);
      line.classList.toggle("accepted", state.path.includes(node));
      line.classList.toggle("lit", state.lit.includes(node));
    }
    const stop = boxes.has(state.selected) ? state.selected : -1;
    for (const [node, box] of boxes) {
      box.classList.toggle("on-path", node < 0 || lit.has(node));
      box.classList.toggle("selected", node === state.selected);
      if (!onPick) continue;
      box.tabIndex = node === stop ? 0 : -1;
      box.setAttribute("aria-pressed", String(node === state.selected));
    }
  }

  function pick(node, focus = false) {
    if (!boxes.has(node)) return;
    state.selected = node;
    mark();
    if (focus) boxes.get(node).focus();
    onPick(node);
  }

  if (onPick) {
    plane.addEventListener("click", (event) => {
      const box = event.target.closest("[data-node].tree-node");
      if (box) pick(Number(box.dataset.node));
    });
    plane.addEventListener("keydown", (event) => {
      const box = event.target.closest("[data-node].tree-node");
      if (!box || event.ctrlKey || event.metaKey || event.altKey) return;
      const to = neighbour(state.nodes, Number(box.dataset.node), event.key);
      if (to === undefined) return;
      event.preventDefault();
      pick(to, true);
    });
  }

  new ResizeObserver(() => {
    if (element.clientWidth === room) return;
    room = element.clientWidth;
    draw();
  }).observe(element);

  function set(changes) {
    const again = ["nodes", "root"].some((name) => changes[name] !== undefined);
    Object.assign(state, changes);
    if (again) draw();
    else mark();
  }

  draw();
  return { element, set };
}

const curve = (x1, y1, x2, y2, down) =>
  down
    ? `M${x1} ${y1} C${x1} ${(y1 + y2) / 2} ${x2} ${(y1 + y2) / 2} ${x2} ${y2}`
    : `M${x1} ${y1} C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;

function barsOf({ p, q }) {
  const bar = (name, value) =>
    typeof value === "number" && h(`span.tree-bar.${name}`, {}, h("span", { style: { width: `${Math.max(2, 100 * value)}%` } }));
  return h("span.tree-bars", { "aria-hidden": "true" }, bar("p", p), bar("q", q));
}

function wordsOf(node, text, own) {
  if (node < 0) return `${visible(text)}, the token before the draft`;
  const distributions = [["p", own.p], ["q", own.q]].filter(([, value]) => typeof value === "number").map(([name, value]) => `${name} ${probability(value)}`);
  return [visible(text), own.state && STATES[own.state], ...distributions].filter(Boolean).join(", ");
}

/** Where boxes stand: levels to the right, or downward where that fits the room better. */
function layout(nodes, room) {
  const children = new Map([[-1, []], ...nodes.map((_, i) => [i, []])]);
  nodes.forEach((node, i) => children.get(node.parent).push(i));
  const places = new Map();
  let leaves = 0;
  let levels = 0;
  const visit = (node, level) => {
    levels = Math.max(levels, level);
    const below = children.get(node).map((child) => visit(child, level + 1));
    const lane = below.length ? (below[0] + below.at(-1)) / 2 : leaves++;
    places.set(node, { level, lane });
    return lane;
  };
  visit(-1, 0);
  const along = (count, size, gap) => count * (size + gap) - gap;
  const fitting = (count) => Math.max(BOX.least, Math.min(BOX.width, (room + GAP.across) / count - GAP.across));
  if (leaves === 1 && along(levels + 1, BOX.least, GAP.across) > room) return wrapped(levels + 1, room);
  const downward = along(levels + 1, BOX.least, GAP.across) > room && along(leaves, BOX.least, GAP.across) < along(levels + 1, BOX.least, GAP.across);
  const box = Math.floor(fitting(downward ? leaves : levels + 1));
  const step = box + GAP.across;
  return {
    downward,
    box,
    width: along(downward ? leaves : levels + 1, box, GAP.across),
    height: downward ? along(levels + 1, BOX.height, GAP.down) : along(leaves, BOX.height, GAP.lanes),
    at(node) {
      const { level, lane } = places.get(node);
      return downward
        ? { x: lane * step, y: level * (BOX.height + GAP.down) }
        : { x: level * step, y: lane * (BOX.height + GAP.lanes) };
    },
  };
}

/** A chain that is too long for one row goes on in the next one, as a text does. */
function wrapped(count, room) {
  const columns = Math.max(2, Math.floor((room + GAP.across) / (BOX.wrapped + GAP.across)));
  const box = Math.floor((room + GAP.across) / columns) - GAP.across;
  const rows = Math.ceil(count / columns);
  return {
    downward: false,
    wrapped: true,
    box,
    width: columns * (box + GAP.across) - GAP.across,
    height: rows * (BOX.height + GAP.down) - GAP.down,
    at: (node) => ({ x: ((node + 1) % columns) * (box + GAP.across), y: Math.floor((node + 1) / columns) * (BOX.height + GAP.down) }),
  };
}

/** The node that an arrow key leads to: in to the first child, out to the parent, to the next or last sibling. */
function neighbour(nodes, node, key) {
  const below = (parent) => nodes.map((_, i) => i).filter((i) => nodes[i].parent === parent);
  if (key === "Home") return -1;
  if (key === "End") return nodes.length - 1;
  if (key === "ArrowRight") return below(node)[0];
  if (node < 0) return key === "ArrowDown" ? below(node)[0] : undefined;
  if (key === "ArrowLeft") return nodes[node].parent;
  const siblings = below(nodes[node].parent);
  const at = siblings.indexOf(node);
  if (key === "ArrowDown") return siblings[at + 1] ?? below(node)[0];
  if (key === "ArrowUp") return siblings[at - 1] ?? nodes[node].parent;
  return undefined;
}
