// What a forward costs on a machine of so many bytes and FLOPs a second. Twin of headstart.theory.machine.
//
// A machine is {bandwidth, flops, overhead}; a model is {parameters, bytesPerWeight, kvBytesPerToken}.

import { expectedTokens } from "hs/algorithm/speed";

/** Seconds of a forward of `rows` rows for each of `batch` requests with `context` cached tokens each. */
export function forwardSeconds(machine, model, rows = 1, batch = 1, context = 0) {
  const { bandwidth, flops, overhead = 0 } = machine;
  const { parameters, bytesPerWeight = 2, kvBytesPerToken = 0 } = model;
  const reading = (parameters * bytesPerWeight + batch * context * kvBytesPerToken) / bandwidth;
  return Math.max(reading, (2 * parameters * batch * rows) / flops) + overhead;
}

/** The speedup of a whole batch whose requests all draft k tokens; draft: a model, or c. */
export function batchSpeedup(machine, target, alpha, k, batch, { draft, context = 0 }) {
  const plain = forwardSeconds(machine, target, 1, batch, context);
  const step = typeof draft === "number" ? draft * plain : forwardSeconds(machine, draft, 1, batch, context);
  return (expectedTokens(alpha, k) * plain) / (forwardSeconds(machine, target, k + 1, batch, context) + k * step);
}

/** The batch size up to which every batch gains by drafting k tokens; 0 where not even one request does. */
export function payingBatch(machine, target, alpha, k, { draft, context = 0, most = 65536 }) {
  for (let batch = 1; batch <= most; batch++) {
    if (batchSpeedup(machine, target, alpha, k, batch, { draft, context }) <= 1) return batch - 1;
  }
  return most;
}
