// A number in a sentence that follows signals.

import { computed, h, watch } from "hs/base/dom";

export function live(signals, words) {
  const output = h("strong");
  const now = computed(() => words(...signals.map((each) => each.value)), signals);
  watch([now], (text) => (output.textContent = text));
  return output;
}
