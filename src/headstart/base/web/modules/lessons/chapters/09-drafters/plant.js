// Plant a tree: up to eight guesses, placed by hand, against the best tree there is.

import { announce } from "hs/base/announce";
import { fill, h } from "hs/base/dom";
import { counted, fixed, percent } from "hs/base/format";
import { bestTree, nodeChances, ranksOf, treeTokens } from "hs/algorithm/sequoia";
import { button } from "hs/figures/controls";
import { draftTree } from "hs/figures/tree";

export const NODES = 8;
/** The chance that the target's token is a place's first, second, ... guess. */
export const BY_RANK = [0.62, 0.17, 0.08, 0.04];
const NAMES = ["1st", "2nd", "3rd", "4th"];

export const best = () => bestTree(BY_RANK, NODES, NODES);

/** @returns {{element: HTMLElement, read: () => {parents: number[], tokens: number}, plant: (parents: number[]) => void}} */
export function planter() {
  let parents = [];
  let chosen = -1;
  const said = h("p.plant-said", { role: "status" });
  const tree = draftTree({ label: "Your tree of guesses", root: "the text", onPick: (node) => ((chosen = node), show()) });
  const add = button("Add a guess here", () => grow());
  const remove = button("Remove it", () => prune(), { quiet: true });
  const clear = button("Start again", () => plant([]), { quiet: true });
  const element = h("div.planter", {}, h("div.planter-tree", {}, tree.element), said, h("div.actions", {}, add, remove, clear));

  function grow() {
    if (parents.length >= NODES || childrenOf(chosen).length >= BY_RANK.length) return;
    parents = [...parents, chosen];
    show();
    announce(`Added. ${said.textContent}`);
  }

  function prune() {
    if (chosen < 0) return;
    const gone = new Set([chosen]);
    parents.forEach((parent, node) => gone.has(parent) && gone.add(node));
    const kept = parents.map((_, node) => node).filter((node) => !gone.has(node));
    const place = new Map([[-1, -1], ...kept.map((node, i) => [node, i])]);
    parents = kept.map((node) => place.get(parents[node]));
    chosen = -1;
    show();
  }

  function plant(next) {
    [parents, chosen] = [[...next], -1];
    show();
  }

  const childrenOf = (node) => parents.flatMap((parent, i) => (parent === node ? [i] : []));

  function show() {
    const ranks = ranksOf(parents);
    const chances = nodeChances(BY_RANK, { parents, ranks });
    const nodes = parents.map((parent, node) => ({ text: `${NAMES[ranks[node] - 1]} ${percent(chances[node])}`, parent, p: chances[node] }));
    tree.set({ nodes, selected: chosen, path: [] });
    const full = parents.length >= NODES;
    const crowded = childrenOf(chosen).length >= BY_RANK.length;
    add.disabled = full || crowded;
    remove.disabled = chosen < 0;
    const where = chosen < 0 ? "the text so far" : "the chosen guess";
    const room = full ? "All eight are planted." : crowded ? `There is no further guess after ${where}.` : `The next one goes after ${where}.`;
    fill(said, h("strong", `${fixed(treeTokens(BY_RANK, { parents, ranks }), 3)} tokens a round`), ` expected from ${counted(parents.length, "guess", "guesses")}. ${room}`);
  }

  show();
  return { element, read: () => ({ parents, tokens: treeTokens(BY_RANK, { parents }) }), plant };
}
