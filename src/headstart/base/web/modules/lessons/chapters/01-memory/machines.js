// Machines and models as numbers, and what a pass costs on them.

import { forwardSeconds } from "hs/algorithm/machine";

/** Round numbers from data sheets; FLOP/s of dense 16-bit products. */
export const MACHINES = {
  h100: { name: "data-centre card (H100)", bandwidth: 3350, flops: 990 },
  rtx: { name: "gaming card (RTX 4090)", bandwidth: 1010, flops: 165 },
  desktop: { name: "desktop processor, DDR5", bandwidth: 80, flops: 1.5 },
};

export const ROWS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/** @param {{billions: number, bits: number, bandwidth: number, flops: number}} setup GB/s and TFLOP/s */
export function passOf({ billions, bits, bandwidth, flops }, rows) {
  const machine = { bandwidth: bandwidth * 1e9, flops: flops * 1e12, overhead: 0 };
  const model = { parameters: billions * 1e9, bytesPerWeight: bits / 8, kvBytesPerToken: 0 };
  const weights = model.parameters * model.bytesPerWeight;
  const reading = weights / machine.bandwidth;
  const multiplying = (2 * model.parameters * rows) / machine.flops;
  return { weights, reading, multiplying, seconds: forwardSeconds(machine, model, rows), free: (reading * machine.flops) / (2 * model.parameters) };
}

/** Bytes in the unit that reads best. */
export function bytes(value) {
  const [unit, size] = value >= 1e12 ? ["TB", 1e12] : value >= 1e9 ? ["GB", 1e9] : ["MB", 1e6];
  const number = value / size;
  return `${number < 10 ? Number(number.toFixed(2)) : Math.round(number)} ${unit}`;
}

export const milliseconds = (seconds) => {
  const ms = 1000 * seconds;
  return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 10 ? `${ms.toFixed(1)} ms` : ms >= 0.1 ? `${ms.toFixed(2)} ms` : `${(1000 * ms).toFixed(0)} µs`;
};
