// The checklist: five cards, each with the command behind it.

import { h } from "hs/base/dom";

/** title, what to do, why, commands. */
const CARDS = [
  [
    "Measure α on your own text",
    "Take prompts as your users send them, hard ones among them, at the temperature that you serve.",
    "Acceptance is a property of text, not of a model. Prompts that look easy flatter it.",
    ["headstart doctor --model my-model --prompts prompts.jsonl --temperature 0.7"],
  ],
  [
    "Choose K from α and c",
    "Put both into the formula of chapter 7, or let the pacing do it, which is the default.",
    "At c = 0.1 the formula gives K = 2, 4, 7, 10 and 15 for α = 0.5, 0.7, 0.85, 0.9 and 0.95. One or two off costs little.",
    ["headstart simulate --alpha 0.7 --c 0.1", "headstart bench --prompts prompts.jsonl --k-sweep 1,2,3,5,8"],
  ],
  [
    "Follow the tokens per target forward",
    "It is what a round gives: one number for drafter, K and text together.",
    "Accepted of drafted makes short drafts look better, speed depends on the machine. Look at speed beside it, for c is not in it.",
    ["headstart generate \"def add(a, b):\" --stats"],
  ],
  [
    "Watch P99, not P50",
    "Of the gaps between chunks, and of the time to the first token, at your load.",
    "Speculation makes bursts. The median gets better long before the rare wait does.",
    ["headstart bench --prompts prompts.jsonl --batch-size 8"],
  ],
  [
    "A fall of 5% from week to week is drift",
    "Watch the acceptance of what is really served; a file of prompts that stays the same cannot show it. Refresh the draft on that text when the fall holds.",
    "Prompts change, models are updated, templates are edited: the draft stays what it was.",
    ["headstart serve my-model --drafter my-head --traffic traffic.jsonl", "headstart watch http://localhost:8000", "headstart adapt my-model traffic.jsonl --drafter my-head --minutes 30 -o adapted"],
  ],
];

/** The five cards. */
export function checklist() {
  return h(
    "ol.checklist",
    {},
    CARDS.map(([title, what, why, commands]) =>
      h(
        "li",
        {},
        h("strong", title),
        h("p", what),
        h("p.soft", why),
        h("details", {}, h("summary", commands.length > 1 ? "The commands" : "The command"), h("pre.commands", { tabindex: "0", "aria-label": `Commands: ${title}` }, commands.flatMap((each) => [h("code.shell", each), "\n"]))),
      ),
    ),
  );
}
