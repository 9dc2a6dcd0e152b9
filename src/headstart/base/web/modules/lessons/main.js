// The lessons: a table of contents, and one chapter at a time by its address (#03).

import { append, data, fill, h } from "hs/base/dom";
import { themeSwitch } from "hs/base/theme";
import { chapters } from "hs/lessons/chapters";
import { hero } from "hs/lessons/chapters/00-two-typists/race";
import { exercises, forgetExercises, isDone } from "hs/lessons/exercise";
import { progress } from "hs/lessons/progress";
import { roundBeside } from "hs/lessons/round";

const TITLE = "Speculative decoding, taken apart";
const VISITED = "visited";

/** The map: its parts, and the chapters of the shortest way through all of them. */
const PARTS = [
  ["The idea", ["00", "01", "02", "03"]],
  ["The proof", ["04", "04b", "05"]],
  ["The cost", ["06", "07", "08"]],
  ["In practice", ["09", "09b", "10", "11", "12"]],
];
const CORE = new Set(["00", "02", "03", "04", "06", "07"]);

const main = h("main#lessons", { tabindex: "-1" });
const bar = h("div.bar", { role: "progressbar", "aria-label": "Chapters read", "aria-valuemin": "0", "aria-valuemax": chapters.length });

const isRead = (chapter) => (progress.get(VISITED) ?? []).includes(chapter.id);
const solvedIn = (chapter) => (chapter.exercises ?? []).filter(isDone).length;

/** All chapters, from wherever the reader is. */
const menu = h("details.chapter-menu");
addEventListener("click", ({ target }) => { if (!menu.contains(target)) menu.open = false; });
menu.addEventListener("keydown", ({ key }) => {
  if (key !== "Escape" || !menu.open) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});

function fillMenu(open) {
  menu.open = false;
  const item = (chapter) => h("li", {}, h("a", { href: `#${chapter.id}`, "aria-current": chapter === open ? "page" : undefined }, `${number(chapter)} ${chapter.title}`, isRead(chapter) && h("span.soft", " ✓")));
  fill(menu, h("summary", "Chapters"), h("nav", { "aria-label": "All chapters" }, h("ol", {}, chapters.map(item))));
}

function header() {
  return h(
    "header.top",
    {},
    h("a.skip", { href: "#lessons", on: { click: (event) => { event.preventDefault(); main.focus(); } } }, "Skip to the text"),
    h("a.home", { href: "#" }, h("span.logo", { "aria-hidden": "true" }, "▸▸"), " headstart ", h("span.soft", "lessons")),
    menu,
    data("playground") && h("a.to-playground", { href: data("playground") }, "Playground"),
    bar,
    themeSwitch(),
  );
}

function showBar() {
  const read = chapters.filter(isRead).length;
  bar.setAttribute("aria-valuenow", read);
  bar.setAttribute("aria-valuetext", `${read} of ${chapters.length} chapters read`);
  bar.style.setProperty("--share", `${(100 * read) / Math.max(1, chapters.length)}%`);
}

const number = (chapter) => chapter.id.replace(/^0(?=.)/, "");
const minutesOf = (some) => some.reduce((sum, chapter) => sum + chapter.minutes, 0);

function contents() {
  const core = chapters.filter((chapter) => CORE.has(chapter.id));
  const recorded = data("race");
  return [
    h("h1", {}, TITLE.split(/(?<=,) /).flatMap((part, i) => [i ? " " : "", h("span.unbroken", part)])),
    h("p.lead", "A small model guesses what a large one is about to write. The large one checks all of the guesses at once and keeps those that it would have written anyway. The text is the large model’s, and it comes sooner."),
    recorded && hero(recorded),
    h(
      "p",
      `The core path, drawn as a solid line, is ${core.length} chapters and takes about ${minutesOf(core)} minutes. The other ${chapters.length - core.length} go deeper. ` +
        "Each chapter begins with a guess of yours, shows a picture that you can play with, and ends with an exercise that this page checks. " +
        "Everything here is either recorded from real models or computed exactly while you watch. The page works offline and sends nothing anywhere.",
    ),
    h("div.map", {}, PARTS.map(([title, ids]) => h("section.map-part", {}, h("h2", title), h("ol.stations", {}, chapters.filter(({ id }) => ids.includes(id)).map(station))))),
    keeping(),
  ];
}

/** A chapter on the map. */
function station(chapter) {
  const count = (chapter.exercises ?? []).length;
  const solved = solvedIn(chapter);
  const state = count && solved === count ? "✓ all solved" : solved ? `${solved} of ${count} solved` : isRead(chapter) ? "✓ read" : "";
  const deeper = !CORE.has(chapter.id);
  return h(
    deeper ? "li.deeper" : "li.core",
    {},
    h("span.station", { "aria-hidden": "true" }, number(chapter)),
    h("a.card", { href: `#${chapter.id}` },
      h("strong", chapter.title),
      h("span.soft", chapter.question),
      h("span.card-side", {}, h("span.soft", `${chapter.minutes} min${deeper ? ", deeper" : ""}`), state && h("span.card-state", state))),
  );
}

function keeping() {
  const said = h("p.soft", { role: "status" });
  const chooser = h("input", {
    type: "file",
    accept: "application/json,.json",
    "aria-label": "Load progress from a file",
    on: {
      change: async () => {
        const [file] = chooser.files;
        if (!file) return;
        const wrong = progress.import(await file.text());
        if (wrong) said.textContent = wrong;
        else show();
      },
    },
  });
  const save = () => {
    const link = h("a", { href: URL.createObjectURL(new Blob([progress.export()], { type: "application/json" })), download: "headstart-lessons.json" });
    link.click();
    URL.revokeObjectURL(link.href);
    said.textContent = "Saved as headstart-lessons.json.";
  };
  const clear = () => {
    progress.clear();
    show();
    main.focus();
  };
  const forget = h("button.quiet", { type: "button", on: { click: () => ask(true) } }, "Forget everything");
  const sure = h("span.actions", { hidden: true }, "Forget all guesses and solved exercises?",
    h("button", { type: "button", on: { click: clear } }, "Yes, forget"), h("button.quiet", { type: "button", on: { click: () => ask(false) } }, "No"));
  const ask = (open) => {
    sure.hidden = !open;
    forget.hidden = open;
    (open ? sure.querySelector("button.quiet") : forget).focus();
  };
  return h(
    "details.keeping",
    {},
    h("summary", "Your progress"),
    h("p", "Guesses and solved exercises are kept in this browser only. A file takes them elsewhere."),
    h(
      "div.actions",
      {},
      h("button.quiet", { type: "button", on: { click: save } }, "Save to a file"),
      h("label.file", {}, "Load from a file ", chooser),
      forget,
      sure,
    ),
    said,
  );
}

function page(chapter) {
  const at = chapters.indexOf(chapter);
  const link = (other, words, kind) => other && h(`a.${kind}`, { href: `#${other.id}`, rel: kind }, h("span.soft", words), h("strong", other.title));
  return [
    h("p.crumb", {}, `Chapter ${number(chapter)} · ${chapter.minutes} minutes`),
    h("h1", chapter.title),
    h("p.lead", chapter.question),
    roundBeside(chapter.round),
    append(h("article"), chapter.build()),
    chapter.sources?.length &&
      h("footer.sources", {}, h("h3", "Sources"), h("ul", {}, chapter.sources.map(({ text, url }) => h("li", {}, url ? h("a", { href: url, rel: "noreferrer" }, text) : h("span", text))))),
    h("nav.onward", { "aria-label": "Chapters" }, link(chapters[at - 1], "Before", "prev"), link(chapters[at + 1], "Next", "next") ?? h("a.next", { href: "#" }, h("span.soft", "That was the last one"), h("strong", "All chapters"))),
  ];
}

function show() {
  const id = decodeURIComponent(location.hash.slice(1));
  const chapter = chapters.find((each) => each.id === id);
  forgetExercises();
  if (chapter && !isRead(chapter)) progress.set(VISITED, [...(progress.get(VISITED) ?? []), chapter.id]);
  fill(main, chapter ? page(chapter) : contents());
  document.title = chapter ? `${chapter.title} · headstart lessons` : TITLE;
  showBar();
  fillMenu(chapter);
  scrollTo(0, 0);
}

function follow() {
  show();
  main.focus({ preventScroll: true });
}

document.body.append(header(), main);
addEventListener("hashchange", follow);
show();

/** For tests: which chapters there are, and the exercises of the open one with their right answers. */
window.headstartLessons = { chapters: chapters.map(({ id, title, minutes }) => ({ id, title, minutes })), exercises: () => [...exercises().entries()] };
