// The fields of exercises and predictions: a number, a fraction, a text, one of several. All are native inputs.

import { h } from "hs/base/dom";

let number = 0;

/**
 * One field.
 * @param {object} options {name, label, kind: "number"|"whole"|"fraction"|"text"|"choice", options?: (string|[value, words])[], unit?}
 * @returns {{element, name, read: () => any, fill: (value) => void, mark: (kind: ""|"good"|"bad") => void, focus: () => void}}
 *   `read` gives a number (NaN where there is none), a text, or the chosen value ("" where nothing is chosen).
 */
export function field({ name, label, kind, options = [], unit = "" }) {
  const id = `field-${++number}`;
  return kind === "choice" ? choiceField({ id, name, label, options }) : inputField({ id, name, label, kind, unit });
}

function inputField({ id, name, label, kind, unit }) {
  const input = h("input.answer", { id, type: "text", inputmode: kind === "number" ? "decimal" : kind === "whole" ? "numeric" : "text", autocomplete: "off", spellcheck: "false" });
  const element = h("div.field", { data: { field: name } }, h("label", { for: id }, label), h("span.with-unit", {}, input, unit && h("span.soft", unit)));
  return {
    element,
    name,
    read: () => (kind === "number" || kind === "whole" ? numberOf(input.value, unit) : input.value.trim()),
    wants: kind,
    fill: (value) => (input.value = String(value)),
    mark: (mark) => markAs(element, [input], mark),
    focus: () => input.focus(),
  };
}

function choiceField({ id, name, label, options }) {
  const pairs = options.map((option) => (Array.isArray(option) ? option : [option, option]));
  const radios = pairs.map(([value]) => h("input", { type: "radio", name: id, value: String(value) }));
  const element = h(
    "fieldset.field.choice-field",
    { data: { field: name } },
    h("legend", label),
    pairs.map(([, words], i) => h("label.choice", {}, radios[i], h("span", words))),
  );
  return {
    element,
    name,
    read: () => pairs[radios.findIndex((radio) => radio.checked)]?.[0] ?? "",
    fill: (value) => radios.forEach((radio, i) => (radio.checked = pairs[i][0] === value)),
    mark: (mark) => markAs(element, radios, mark),
    focus: () => radios[0].focus(),
  };
}

function markAs(element, inputs, mark) {
  element.classList.remove("good", "bad");
  if (mark) element.classList.add(mark);
  for (const input of inputs) input.setAttribute("aria-invalid", String(mark === "bad"));
}

const THOUSANDS = /^-?[1-9]\d{0,2}(,\d{3})+(\.\d+)?%?$/;

/** "3/14", "0,25", "25%", "1 500" and "1,500" are numbers, too; NaN for what is none. In a field of per cent "25%" is 25. */
export function numberOf(text, unit = "") {
  const bare = text.trim().replace(/[\s\u202f×x]/g, "").replace("−", "-");
  const plain = THOUSANDS.test(bare) ? bare.replaceAll(",", "") : bare.replace(",", ".");
  const [, top, bottom] = /^(-?[\d.]+)\/([\d.]+)$/.exec(plain) ?? [];
  if (top) return Number(top) / Number(bottom);
  if (plain.endsWith("%")) return plain.length > 1 ? Number(plain.slice(0, -1)) / (unit === "%" ? 1 : 100) : NaN;
  return plain === "" ? NaN : Number(plain);
}
