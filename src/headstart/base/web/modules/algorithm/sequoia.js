// Which tree to draft: Sequoia's dynamic programme (arXiv:2402.12374, section 4.1). Twin of headstart.theory.trees.
//
// acceptance[b - 1] is the chance that the target's token is a node's b-th child. T[m][l][b] is the number of tokens
// expected of m nodes (the root counts as one) of at most l levels below it whose root has b children:
//
//     T[m][l][b] = max over y of T[y][l][b-1] + acceptance_b * best T[m-y][l-1]

/** The tree of at most `nodes` nodes and `depth` levels that emits most tokens. */
export function bestTree(acceptance, nodes, depth) {
  return shapeOf(new Table(acceptance, nodes, depth), nodes, depth);
}

/** Tokens that a round with a tree emits: its nodes' chances to be on the kept path, and the bonus. */
export function treeTokens(acceptance, { parents, ranks = ranksOf(parents) }) {
  return 1 + nodeChances(acceptance, { parents, ranks }).reduce((a, b) => a + b, 0);
}

/** For each node the chance that the kept path goes through it. */
export function nodeChances(acceptance, { parents, ranks = ranksOf(parents) }) {
  const chances = [];
  parents.forEach((parent, node) => {
    chances.push((acceptance[ranks[node] - 1] ?? 0) * (parent >= 0 ? chances[parent] : 1));
  });
  return chances;
}

/** 1 for an eldest child, 2 for the next, and so on. */
export function ranksOf(parents) {
  const born = new Map();
  return parents.map((parent) => {
    born.set(parent, (born.get(parent) ?? 0) + 1);
    return born.get(parent);
  });
}

class Table {
  constructor(acceptance, nodes, depth) {
    if (!acceptance.length || acceptance.some((p) => !(p >= 0 && p <= 1))) {
      throw new RangeError("acceptance by rank must be probabilities");
    }
    this.acceptance = acceptance;
    this.ranks = Math.min(acceptance.length, Math.max(nodes, 1));
    const sizes = nodes + 2;
    const empty = (width, value) => Array.from({ length: depth + 1 }, () => grid(sizes, width, value));
    this.value = empty(this.ranks + 1, -Infinity);
    this.split = empty(this.ranks + 1, 0);
    this.best = Array.from({ length: depth + 1 }, () => new Array(sizes).fill(-Infinity));
    for (const level of this.value) level[1][0] = 1;
    this.best[0][1] = 1;
    for (let level = 1; level <= depth; level++) this.#fill(level, sizes);
  }

  #fill(level, sizes) {
    const value = this.value[level];
    const below = this.best[level - 1];
    for (let b = 1; b <= this.ranks; b++) {
      for (let m = 0; m < sizes; m++) {
        let [split, most] = [0, -Infinity];
        for (let y = 0; y < m; y++) {
          const gained = Number.isFinite(below[m - y]) ? this.acceptance[b - 1] * below[m - y] : -Infinity;
          const total = value[y][b - 1] + gained;
          if (total > most) [split, most] = [y, total];
        }
        value[m][b] = most;
        this.split[level][m][b] = split;
      }
    }
    for (let m = 0; m < sizes; m++) this.best[level][m] = Math.max(...value[m]);
  }

  /** The sizes of the subtrees of the best tree of `size` nodes, eldest child first. */
  parts(size, level) {
    const parts = [];
    for (let b = argmax(this.value[level][size]); b > 0; b--) {
      const smaller = this.split[level][size][b];
      parts.unshift(size - smaller);
      size = smaller;
    }
    return parts;
  }
}

function shapeOf(table, nodes, depth) {
  const m = argmax(table.best[depth].slice(0, nodes + 2));
  const [parents, ranks, depths] = [[], [], []];
  let waiting = [[-1, m]]; // level by level: [node, nodes below and itself]
  for (let level = depth; level > 0; level--) {
    const born = [];
    for (const [node, size] of waiting) {
      table.parts(size, level).forEach((part, i) => {
        born.push([parents.length, part]);
        parents.push(node);
        ranks.push(i + 1);
        depths.push(depth - level + 1);
      });
    }
    waiting = born;
  }
  const children = [[], ...parents.map(() => [])];
  parents.forEach((parent, node) => children[parent + 1].push(node));
  return { parents, ranks, depths, children, expected: table.best[depth][m] };
}

function grid(rows, columns, value) {
  return Array.from({ length: rows }, () => new Array(columns).fill(value));
}

function argmax(values) {
  return values.reduce((best, x, i) => (x > values[best] ? i : best), 0);
}
