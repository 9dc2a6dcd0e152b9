// Chapter 11: keep it good. The checklist, a draft length that adapts, drift, and the whole course in one table.

import { h } from "hs/base/dom";
import { tableOf } from "hs/figures/figure";
import { exercise } from "hs/lessons/exercise";
import { note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";
import { adaptive } from "hs/lessons/chapters/11-keep-it-good/adaptive";
import { checklist } from "hs/lessons/chapters/11-keep-it-good/checklist";
import { driftGame, medianDelay } from "hs/lessons/chapters/11-keep-it-good/drift";
import { claimed } from "hs/lessons/chapters/11-keep-it-good/stream";

function prediction() {
  return predict({
    id: "11 drift",
    question: "A draft’s acceptance has been 0.80 for weeks. Requests differ: each has its own acceptance, give or take 0.15. One day the mean falls to 0.64. After how many requests can one be sure of it?",
    kind: "number",
    unit: "requests",
    reveal: (guess) => {
      const needed = medianDelay(0.16);
      const far = guess === null ? "" : guess < needed / 2 ? "That would be many false alarms. " : guess > 2 * needed ? "Fewer will do. " : "Near. ";
      return prose(far, `A detector that raises a false alarm no more than once in 1,000 requests on average needs about ${needed}. For half of that fall it needs about five times as many. You can try it yourself below.`);
    },
  });
}

/** Which of two numbers tells of drift. */
function whichNumber() {
  return exercise({
    id: "11.3",
    title: "Which number tells?",
    ask: [
      h("p", "Two weeks of a server. Has the draft become worse?"),
      h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Two weeks of a server" }, tableOf({
        columns: ["", "last week", "this week"],
        rows: [
          ["requests at once, mean", "2.1", "9.8"],
          ["guesses a round, mean", "5.2", "2.4"],
          ["tokens per target forward", "3.1", "2.3"],
          ["accepted of judged, 1st guess", "0.81", "0.81"],
          ["accepted of judged, 2nd guess", "0.80", "0.79"],
          ["accepted of judged, 3rd guess", "0.78", "0.79"],
        ],
      })),
    ],
    fields: [
      { name: "drift", label: "The draft", kind: "choice", options: [["worse", "is worse: a round gives a quarter less"], ["same", "is as good as before"], ["unknown", "cannot be judged from this"]] },
      { name: "why", label: "What happened", kind: "choice", options: [["load", "more requests at once, so that the pacing drafts less"], ["text", "another kind of text"], ["luck", "chance"]] },
    ],
    check({ drift, why }) {
      const ok = drift === "same" && why === "load";
      const say = ok
        ? "Yes. Tokens per forward fell because fewer guesses were made, which was right at that load. Each guess that was judged is kept as often as before."
        : drift === "worse" ? "Compare like with like: how often is the first guess kept, how often the second, where the one before was?" : "Look at what changed most, from 2.1 to 9.8.";
      return { ok, say, fields: { drift: drift === "same" ? "good" : "bad", why: why === "load" ? "good" : "bad" } };
    },
    hints: ["Tokens per forward depends on three things: the draft, the text, and how much is drafted.", "Acceptance by position, given that all before were kept, does not depend on how much is drafted."],
    solution: () => "The draft is as good as before. Conditional acceptance by position has not changed; adaptive pacing drafts less at a higher load.",
    answer: { drift: "same", why: "load" },
  });
}

function table() {
  return h(
    "div.scroll.whole",
    { tabindex: "0", role: "region", "aria-label": "The whole course in one table" },
    tableOf({
      columns: ["", "in one sentence", "chapter"],
      rows: [
        ["The idea", "Guess K tokens cheaply, judge them all in one forward of the target", "2, 3"],
        ["The promise", "The text has the target’s own distribution; greedy text is the same token for token", "4, 4b"],
        ["Keeping a guess", "With chance min(1, p/q), else a token from what is missing, norm(max(p − q, 0)); headstart judges all guesses of a round as one, and keeps more", "3, 4, 4b"],
        ["What makes it fast", "High acceptance, a cheap draft, and a forward that waits for memory", "1, 6, 7"],
        ["How many guesses", "2 to 7 at c = 0.1 and α from 0.5 to 0.85; more where α is higher or c lower", "7"],
        ["Where it helps", "One request or few, a large target, answers of some length", "10"],
        ["Where it hurts", "A machine that is busy, very short answers, a draft that is expensive or unlike", "7, 10"],
      ],
    }),
  );
}

export default {
  id: "11",
  title: "Keep it good",
  minutes: 10,
  question: "You can tune speculation for a service, let K follow the text, and notice when the draft has become worse.",
  round: { at: ["draft", "accept"], says: "Three of four guesses kept. Watch this number over thousands of requests, and you see when a draft no longer fits." },
  sources: [
    { text: "Shin, Ramdas, Rinaldo 2022: E-detectors", url: "https://arxiv.org/abs/2203.03532" },
    { text: "Hoeffding 1963", url: "https://doi.org/10.1080/01621459.1963.10500830" },
  ],
  exercises: ["11.1", "11.2", "11.3"],
  build() {
    const rule = adaptive();
    const game = driftGame();
    return [
      prediction(),
      section("A checklist", prose("Five things to do, and the command that does each. To try them now, leave out ", h("code.nowrap", "--model"), " and ", h("code.nowrap", "--prompts"), ": they then run on the pair of models that comes with headstart, and need no GPU."), checklist()),
      section(
        "A draft length that follows the text",
        prose(
          "No K is right for long. Code that repeats itself wants ten guesses, a turn of thought wants one. The rule in circulation looks at the last five rounds: if more than 80% of the guesses were accepted, one more; if less than 50%, one fewer; never fewer than 2, never more than 10. ",
          "Change the rule and see what it does.",
        ),
        rule.element,
        rule.exercise,
        note(
          "A rule may look at everything but the guesses that it is about to judge. One that drafts a token, looks at it, and then throws it away because it looks bad changes the distribution of the text. headstart’s own pacing counts costs, too: it measures what a guess and a row cost at this load, and drafts nothing where nothing is to be gained.",
        ),
        prose("Now write the rule yourself: ", h("code.shell", "headstart learn --start answers.py"), " makes a file with this and three other exercises, and ", h("code.shell", "headstart learn --check answers.py"), " checks them. It also runs your rule on 200 tokens beside every fixed K."),
      ),
      section(
        "Has it become worse?",
        prose("A draft is trained once; the texts go on. Acceptance that falls is called drift. It falls slowly, and every request is different, so a look at a chart either comes late or cries wolf. Try it:"),
        game.element,
        prose(
          "The ", term("detector", "e-CUSUM: the wealth of a gambler who bets on every request and starts again with 1 whenever he has less"), ` bets against the claim that the mean is at least ${claimed().toFixed(2)}, a lower bound from 2,000 requests of the past. As long as the claim is true, no way of betting wins on average, and a stake of 1,000 is reached no sooner than after 1,000 requests on average. If the claim is false, the stake grows and grows. `,
          "It may be looked at after every request, which a usual test does not allow.",
        ),
        game.exercise,
        prose("What is watched matters as much. Not the tokens per forward: load and pacing change them while the draft is as good as ever. Watch how often the first judged guess is kept, the second, and so on, for each source and each kind of request by itself."),
        whichNumber(),
      ),
      section("The whole course in one table", table()),
      summary(
        "Measure α on your own prompts, choose K from α and c, follow tokens per forward, watch P99, and keep last week’s result.",
        "A K that follows the text beats every fixed K where text changes, and no one needs to know which K is right.",
        "Drift is a fall of conditional acceptance by position. A detector that bets may be looked at at any time and keeps its promise about false alarms.",
      ),
    ];
  },
};
