// Sliders, choices and buttons that are bound to signals: native controls with a name and a value in words.

import { h, watch } from "hs/base/dom";

let number = 0;

/**
 * A slider over a signal.
 * @param {object} options {label, value: signal, min, max, step, format?: (number) => string}
 */
export function slider({ label, value, min, max, step, format = String }) {
  const id = `control-${++number}`;
  const input = h("input", { type: "range", id, min, max, step, on: { input: () => (value.value = Number(input.value)) } });
  const output = h("output", { for: id });
  watch([value], (now) => {
    input.value = now;
    input.setAttribute("aria-valuetext", format(now));
    output.textContent = format(now);
  });
  return h("div.slider", {}, h("label", { for: id }, label), input, output);
}

/** One of several: radio buttons over a signal. options: [value, words] each. */
export function choice({ label, value, options }) {
  const name = `choice-${++number}`;
  const radios = options.map(([each, words]) => {
    const input = h("input", { type: "radio", name, on: { change: () => (value.value = each) } });
    value.watch(() => (input.checked = value.value === each));
    input.checked = value.value === each;
    return h("label.choice", {}, input, h("span", words));
  });
  return h("fieldset.choices", {}, h("legend", label), radios);
}

/** On or off: a checkbox over a signal. */
export function toggle({ label, value }) {
  const input = h("input", { type: "checkbox", on: { change: () => (value.value = input.checked) } });
  watch([value], (now) => (input.checked = now));
  return h("label.choice", {}, input, h("span", label));
}

/** A button. quiet: for what is not the next thing to do. */
export const button = (words, action, { quiet = false, label } = {}) =>
  h(quiet ? "button.quiet" : "button", { type: "button", "aria-label": label, on: { click: action } }, words);
