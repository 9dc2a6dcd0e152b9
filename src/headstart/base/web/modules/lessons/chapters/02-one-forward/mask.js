// The causal mask as a grid: one row for each word that the model reads, one column for each word it might look at.

import { fill, h } from "hs/base/dom";
import { listed } from "hs/base/format";

/** What a row's distribution is good for. */
export function useOf(row, prefix, guesses) {
  const place = row - (prefix.length - 1);
  if (place < 0) return { kind: "known", short: "–", words: "The next word is known already, so this distribution is not needed" };
  if (place < guesses.length) return { kind: "judges", short: `guess ${place + 1}`, words: `It judges guess ${place + 1}, “${guesses[place]}”` };
  return { kind: "bonus", short: "bonus", words: "There is no guess at this place: if all guesses are kept, the bonus is drawn from it" };
}

/** A row in a sentence. */
export function rowInWords(row, prefix, guesses) {
  const words = [...prefix, ...guesses];
  const seen = row === 0 ? "only at itself" : `at ${listed([...words.slice(0, row).map((word) => `“${word}”`), "itself"])}`;
  return `Row ${row}, “${words[row]}”, may look ${seen}. It gives the distribution of the word that follows. ${useOf(row, prefix, guesses).words}.`;
}

/**
 * @param {{prefix: string[], guesses: string[], at: number|null, onPick: (row: number) => void, told?: boolean}} options
 *   `told`: whether a column says what each row is good for
 */
export function maskGrid({ prefix, guesses, at = null, onPick, told = true, label = "The causal mask" }) {
  const now = { prefix, guesses, at };
  const table = h("table.mask", { "aria-label": label });
  const element = h("div.scroll", {}, table);

  function rowOf(word, row, words) {
    const use = useOf(row, now.prefix, now.guesses);
    const cells = words.map((_, column) => h("td", { class: column === row ? "self" : column < row ? "seen" : "hidden-cell", "aria-hidden": "true" }));
    const isGuess = row >= now.prefix.length;
    const button = h("button.mask-row", { type: "button", "aria-pressed": String(row === now.at), on: { click: () => onPick(row) } },
      h("span.mask-index", String(row)), h("span", { class: isGuess ? "tok guessed" : "tok" }, word));
    return h("tr", { class: `${row === now.at ? "at" : ""} ${told ? use.kind : ""}`, on: { mouseenter: () => told && onPick(row) } },
      h("th", { scope: "row" }, button), cells, told && h("td.mask-use", use.short));
  }

  function draw() {
    const words = [...now.prefix, ...now.guesses];
    const focused = [...table.querySelectorAll("button")].indexOf(document.activeElement);
    fill(table,
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span.unseen", "reads")), words.map((word, i) =>
        h("th.mask-head", { class: i === now.at ? "at" : "", "aria-hidden": "true" }, h("span", word))), told && h("th.mask-told", { scope: "col" }, "judges"))),
      h("tbody", {}, words.map((word, row) => rowOf(word, row, words))));
    if (focused >= 0) table.querySelectorAll("button")[focused]?.focus();
  }

  /** Only the marks change when a row is picked, so that the pointer stays over the same elements. */
  function mark() {
    [...table.querySelectorAll("tbody tr")].forEach((line, row) => {
      line.classList.toggle("at", row === now.at);
      line.querySelector("button").setAttribute("aria-pressed", String(row === now.at));
    });
    [...table.querySelectorAll(".mask-head")].forEach((head, column) => head.classList.toggle("at", column === now.at));
  }

  const set = (changes) => {
    Object.assign(now, changes);
    if ("prefix" in changes || "guesses" in changes) draw();
    mark();
  };
  draw();
  return { element, set };
}
