// A trace checked against itself: its uniform draws follow from the seed, and its decisions from uniform draws and weights.

import { Noise } from "hs/algorithm/noise";
import { uniformOf } from "hs/algorithm/rules";
import { events, reachOf } from "hs/trace/replay";
import { childrenOf, depthsOf } from "hs/trace/rounds";

/** The uniform draws of a request, from its seed alone: (step, node, depth) -> the uniform draw of the node. */
export function uniformsOf(request) {
  const noise = new Noise(request.seed);
  return (step, node, depth = depthsOf(step)[node]) => uniformOf(noise, step.position, depth, node);
}

/**
 * What the page can work out by itself, held against what the file says.
 *
 * uniforms: those in the file that were computed again, and how many differ. decisions: uniform draws that were compared with a
 * weight, and how many did not come out as the file says. weights: leaves whose weight follows from p and q, and how many
 * differ by more than the five digits of the file allow.
 */
export function checkOf(request) {
  const uniforms = { count: 0, wrong: 0 };
  const decisions = { count: 0, wrong: 0 };
  const weights = { count: 0, wrong: 0 };
  const tally = (into, right) => {
    into.count += 1;
    into.wrong += right ? 0 : 1;
  };
  const again = uniformsOf(request);
  for (const step of request.steps) {
    const depths = depthsOf(step);
    step.nodes.forEach(({ uniform }, node) => {
      if (typeof uniform === "number") tally(uniforms, Math.abs(uniform - again(step, node, depths[node])) < 1e-12);
    });
    if (step.procedure !== "traverse") continue;
    const children = childrenOf(step);
    for (const event of events(step)) {
      if (event.kind !== "uniform" || event.weight === null) continue;
      tally(decisions, (event.weight > 0 && event.uniform < event.weight) === event.accepted);
      const reach = children[event.node + 1].length ? null : reachOf(step, event.node);
      if (reach !== null) tally(weights, Math.abs(event.weight - reach) <= 1e-4 * depths[event.node] * Math.max(reach, 1e-4));
    }
  }
  return { uniforms, decisions, weights };
}
