// A file of `headstart doctor --output`: what it measured, and the place where it is dropped.

import { fill, h } from "hs/base/dom";
import { button } from "hs/figures/controls";

/** A measurement that was really made: a model of a billion weights in 16 bits on two cores of a server processor. */
export const EXAMPLE = {
  headstart_doctor: 1,
  target: { target: "a model of a billion weights", dtype: "bfloat16", device: "cpu" },
  provenance: { cpu: "two cores of an AMD EPYC", date: "2026-11-21" },
  candidates: [{ drafters: ["a draft of 30 million weights"], tree: false, best: { k: 8, speedup: { value: 3.573 }, sources: { draft: { alpha: 0.815, c: 0.0205 } } } }],
  costs: { seconds: 0.0526, v: { 1: 1, 2: 1, 4: 1, 8: 1, 16: 1.232, 32: 1.857, 64: 3.561 }, weight_bytes_read: 2038566912, bytes_per_second: 38721130284, nearly_free_rows: 16 },
};

/** @throws {RangeError} with a plain sentence, where the text is something else */
export function measured(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    throw new RangeError("This is not JSON. Choose the file that --output has written.");
  }
  return costsOf(found);
}

/** What `headstart doctor` found; see `measured`. */
export function costsOf(found) {
  const costs = found?.headstart_doctor === 1 ? found.costs : null;
  const points = Object.entries(costs?.v ?? {}).map(([rows, v]) => [Number(rows), Number(v)]).sort(([a], [b]) => a - b);
  if (!(costs?.seconds > 0) || points.length < 2 || points.some(([rows, v]) => !(rows >= 1) || !(v > 0))) {
    throw new RangeError("This JSON is not an answer of headstart doctor: it has no costs of passes.");
  }
  const words = (value) => (typeof value === "string" ? value : "");
  return {
    name: [words(found.target?.target) || "your target", words(found.target?.dtype), words(found.provenance?.cpu)].filter(Boolean).join(", "),
    date: words(found.provenance?.date).slice(0, 10),
    seconds: costs.seconds,
    points,
    read: costs.weight_bytes_read,
    bandwidth: costs.bytes_per_second,
    free: costs.nearly_free_rows,
    v: Object.fromEntries(points),
    drafts: (Array.isArray(found.candidates) ? found.candidates : []).flatMap(draftOf),
  };
}

/** A chain of one drafter: its name, the best K, acceptance, price, the share of rounds in which it drafts, and the predicted speedup. */
function draftOf({ drafters, tree, best }) {
  const [member, ...others] = Object.values(best?.sources ?? {});
  const { alpha, c, share } = member ?? {};
  if (!member || tree || others.length || !(best.k >= 1) || !(alpha >= 0 && alpha <= 1) || !(c >= 0)) return [];
  return [{ name: [drafters].flat().join(", "), k: best.k, alpha, c, share: share ?? 1, speedup: best.speedup?.value }];
}

/**
 * The place where a file is dropped or chosen.
 * @param {(found: object) => void} show is given what `measured` reads. @param {string} again words of the button for the example
 */
export function doctorDrop(show, again) {
  const said = h("p.doctor-said", { role: "status" });
  const input = h("input", { type: "file", accept: ".json,application/json", on: { change: () => take(input.files[0]) } });
  const example = () => {
    fill(said);
    show(costsOf(EXAMPLE));
  };
  const element = h("div.doctor-drop", {
    on: {
      dragover: (event) => {
        event.preventDefault();
        element.classList.add("over");
      },
      dragleave: () => element.classList.remove("over"),
      drop: (event) => {
        event.preventDefault();
        element.classList.remove("over");
        take(event.dataTransfer.files[0]);
      },
    },
  }, h("p", "In a terminal: ", h("code", "headstart doctor --output mine.json")), h("label", "Your file ", input), button(again, example, { quiet: true }), said);

  async function take(file) {
    if (!file) return;
    try {
      show(measured(await file.text()));
      said.textContent = `This is ${file.name}.`;
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      said.textContent = error.message;
    }
    input.value = ""; // so that the same file can be chosen again
  }
  return element;
}
