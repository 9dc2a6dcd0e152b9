// What all figures of chapter 7 share: acceptance, draft length, the price of a draft, and the machine.

import { bestK, expectedTokens, reading, roundCost, speedup } from "hs/algorithm/theory";
import { signal } from "hs/base/dom";
import { fixed } from "hs/base/format";
import { choice, slider } from "hs/figures/controls";

/** The longest draft that the figures show. */
export const MOST = 16;

/**
 * What a forward of n rows costs, over one of 1 row. The measured ones are of `headstart doctor`: two cores of an AMD
 * EPYC, bfloat16, 21 November 2026, commit e104315. The model of 1.0B is the bundled one made wider and deeper.
 * The mixture of experts is calculated, with the shape of Qwen3-30B-A3B.
 */
export const MACHINES = {
  free: { words: "free rows", v: null },
  large: { words: "measured, 1.0B", v: { 1: 1, 2: 1, 4: 1, 8: 1, 16: 1.232, 32: 1.857, 64: 3.561 } },
  small: { words: "measured, 15M", v: { 1: 1, 2: 1, 4: 1.156, 8: 1.252, 16: 1.868, 32: 3.063, 64: 5.609 } },
  mixture: { words: "8 of 128 experts", v: (n) => reading({ experts: 128, chosen: 8 }, n, 0.6) },
};

export const PROVENANCE = "headstart doctor, two cores of an AMD EPYC, bfloat16, 21 November 2026, commit e104315";

/** The machine of a file that the reader has dropped; no button chooses it. */
const OWN = "own";

/** Signals alpha, k, c and machine, and what follows from their values. */
export function newState() {
  const state = { alpha: signal(0.8), k: signal(5), c: signal(0.1), machine: signal("free") };
  let own = null;
  const v = () => (state.machine.value === OWN ? own : MACHINES[state.machine.value].v);
  return {
    ...state,
    all: [state.alpha, state.k, state.c, state.machine],
    v,
    tokens: (k = state.k.value) => expectedTokens(state.alpha.value, k),
    cost: (k = state.k.value) => roundCost(k, state.c.value, v()),
    speedup: (k = state.k.value) => speedup(state.alpha.value, k, state.c.value, v()),
    best: () => bestK(state.alpha.value, state.c.value, v(), MOST),
    /** Check at the prices of the reader's own machine: v by rows. */
    take: (found) => {
      own = found;
      state.machine.value = "free"; // so that a second file is a change, too
      state.machine.value = OWN;
    },
    /** At whose prices rows are checked, in words. */
    checking: () => MACHINES[state.machine.value]?.words ?? "as your file says",
    /** Take over some values: {alpha: 0.5, k: 3}. */
    set: (values) => Object.entries(values).forEach(([name, value]) => (state[name].value = value)),
  };
}

/** Sliders and choices over the state, by name. */
export function controls(state, ...names) {
  const made = {
    alpha: () => slider({ label: "α, acceptance", value: state.alpha, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }),
    k: () => slider({ label: "K, guesses a round", value: state.k, min: 1, max: MOST, step: 1 }),
    c: () => slider({ label: "c, price of a guess", value: state.c, min: 0, max: 1, step: 0.01, format: (x) => fixed(x) }),
    machine: () =>
      choice({
        label: "Checking",
        value: state.machine,
        options: Object.entries(MACHINES).map(([name, { words }]) => [name, words]),
      }),
  };
  return names.map((name) => made[name]());
}
