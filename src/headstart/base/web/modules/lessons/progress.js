// What the reader has done: kept in the browser where that is allowed, else as long as the page.

import { signal } from "hs/base/dom";

const KEY = "headstart-lessons";
const changed = signal(0);
let kept = read();

function read() {
  try {
    const found = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return found && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {}; // a page from a file may be denied storage
  }
}

function write() {
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // see above
  }
  changed.value += 1;
}

export const progress = {
  /** A signal that changes with every entry. */
  changed,
  /** What is under this name; undefined where nothing does. */
  get: (id) => kept[id],
  /** Keep a value that JSON can hold. */
  set(id, value) {
    kept = { ...kept, [id]: value };
    write();
  },
  /** Everything as text, to take along. */
  export: () => JSON.stringify({ headstart_lessons: 1, ...kept }, null, 1),
  /** Take over what `export` gave. Returns what is wrong with the text, or "". */
  import(text) {
    let found;
    try {
      found = JSON.parse(text);
    } catch {
      return "This is not JSON; choose a file that this page has saved.";
    }
    if (found?.headstart_lessons !== 1) return "This is not the progress of these lessons, or of another version.";
    const { headstart_lessons: _, ...entries } = found;
    kept = entries;
    write();
    return "";
  },
  clear() {
    kept = {};
    write();
  },
};
