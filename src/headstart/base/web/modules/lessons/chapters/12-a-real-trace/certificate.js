// The certificate: what was answered, what was solved in all, and the bet of the beginning.

import { data, fill, h } from "hs/base/dom";
import { counted, fixed } from "hs/base/format";
import { gainOf } from "hs/lessons/chapters/00-two-typists/race";
import { IDS, answered } from "hs/lessons/chapters/12-a-real-trace/questions";
import { isDone } from "hs/lessons/exercise";
import { progress } from "hs/lessons/progress";

const BET = "prediction 00";

/** An element that follows the reader's progress. */
export function certificate() {
  const element = h("div.certificate", { role: "group", "aria-label": "Your certificate" });
  const show = () => fill(element, contents());
  const end = progress.changed.watch(() => (element.isConnected || !element.parentNode ? show() : end()));
  show();
  return element;
}

function contents() {
  const open = IDS.filter((id) => !isDone(id));
  const bet = betWords();
  if (open.length) {
    return [h("p.certificate-title", "Not yet"), h("p", `${counted(open.length, "question")} of this chapter ${open.length === 1 ? "is" : "are"} open. Then your certificate appears here.`), bet];
  }
  const kept = answered();
  return [
    h("p.certificate-title", "You can read speculative decoding"),
    h("p", "From a real trace you worked out:"),
    h("ul", {}, IDS.filter((id) => kept[id]).map((id) => h("li", {}, h("strong", kept[id].words), h("span.soft", ` (${kept[id].trace})`)))),
    h("p", `In all chapters you have solved ${counted(solved(), "exercise")}.`),
    bet,
    h("div.actions", {}, h("button.quiet", { type: "button", on: { click: () => print() } }, "Print this page")),
  ];
}

const entries = () => Object.entries(JSON.parse(progress.export()));

const solved = () => entries().filter(([name, value]) => name.startsWith("exercise ") && value === "done").length;

/** The bet of chapter 0, shown again beside what it was. */
function betWords() {
  const bet = progress.get(BET);
  if (typeof bet !== "number") return h("p.bet.soft", "You made no guess in chapter 0. It is not too late.");
  const recorded = data("race");
  const truth = recorded && [" It was ", h("strong", `${fixed(gainOf(recorded), 1)} times`), "."];
  return h("p.bet", {}, "At the very beginning you guessed that a draft would make it ", h("strong", `${fixed(bet, 1)} times`), " as fast.", truth, " Now you can work it out: from tokens per forward, and from what a forward and a draft cost.");
}
