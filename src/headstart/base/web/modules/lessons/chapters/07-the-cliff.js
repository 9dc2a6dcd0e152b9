// Chapter 7: what a round costs, which draft length pays, and when none does.

import { h } from "hs/base/dom";
import { bars } from "hs/lessons/chapters/07-the-cliff/bars";
import { bestTable } from "hs/lessons/chapters/07-the-cliff/best";
import { bill } from "hs/lessons/chapters/07-the-cliff/bill";
import { breakEven, forwards } from "hs/lessons/chapters/07-the-cliff/curves";
import { chooseK, least, perfect, sameModel, wallClock } from "hs/lessons/chapters/07-the-cliff/exercises";
import { costGrid, sweepGrid } from "hs/lessons/chapters/07-the-cliff/grids";
import { map } from "hs/lessons/chapters/07-the-cliff/map";
import { mixtures } from "hs/lessons/chapters/07-the-cliff/mixtures";
import { newState } from "hs/lessons/chapters/07-the-cliff/state";
import { live } from "hs/lessons/chapters/live";
import { display, fraction, row } from "hs/lessons/chapters/mathml";
import { rounded } from "hs/lessons/chapters/tables";
import { handle } from "hs/lessons/handle";
import { formula, note, prose, section, summary, term } from "hs/lessons/parts";
import { predict } from "hs/lessons/predict";

function guess() {
  return predict({
    id: "07.guess",
    question:
      "A run needed 17 calls of the target for 50 tokens: 2.94 times fewer than one for each token. It drafted seven guesses a round, and one step of the draft takes a fifth of the time of the target’s. How many times faster was the run?",
    kind: "number",
    unit: "times",
    min: 0,
    max: 3,
    reveal: (answer) =>
      h(
        "p",
        {},
        Number(answer) > 2.9 ? "2.94 leaves the draft out. " : "",
        h("strong", "1.23 times."),
        " Seventeen rounds of seven guesses are 119 draft steps; at a fifth each they take as long as 23.8 calls of the target. 50 / (17 + 23.8) = 1.23.",
      ),
  });
}

const gain = () =>
  formula(
    display("speedup =", fraction("E", row("v ( K + 1 ) + c K"))),
    "The speedup is E, the tokens of a round, divided by v of K plus one, the price of the check, plus c times K, the price of the guesses.",
  );

function build() {
  const state = newState();
  const { alpha, k, c } = state;
  const a = () => handle(alpha, { label: "alpha", min: 0, max: 1, step: 0.01, format: (x) => rounded(x) });
  const n = () => handle(k, { label: "K, guesses a round", min: 1, max: 16, step: 1 });
  const price = () => handle(c, { label: "c, price of a guess", min: 0, max: 1, step: 0.01, format: (x) => rounded(x) });
  const speed = () => live(state.all, () => `${rounded(state.speedup())}×`);
  return [
    guess(),
    section(
      "The bill",
      prose(
        "Let c be the time of one draft step over that of one plain step of the target. A round of K guesses costs cK for drafting and one check. With α = ", a(), ", K = ", n(), " and c = ", price(), " it is ", speed(), " as fast as plain decoding.",
      ),
      bill(state),
      gain(),
      prose(
        "v(n) is what a forward of n rows costs, over one of one row. As long as the forward is spent on reading weights, rows are nearly free and v = 1: the textbook case. A 1B draft beside a 70B target is often put at c near 0.1: its weights alone would make it 1/70, but a small step also pays for everything that is not reading weights. Measure it.",
      ),
    ),
    wallClock(),
    section(
      "The bar chart",
      prose("For every K, the tokens of a round and what is left of them as speed. Move α and c, and watch the star. Then try the three ways to lose."),
      bars(state),
      note(
        "“Do not bother below α = 0.55”, some guides say. The formula is milder: with free rows K = 1 gains as soon as α is above c. At c = 0.1 even α = 0.5 promises 1.46×; at c = 0.4 it promises 1.07×, which everything that the formula leaves out will eat. In such a place do not tune K: find a better draft, or train one.",
      ),
    ),
    section(
      "Which K?",
      prose("Too short, and the price of a check is shared by few tokens. Too long, and you pay for guesses behind a refusal. Between them the speedup is flat. For α from 0.5 to 0.85, two to seven guesses are usual, and at c = 0.1 the formula agrees."),
      bestTable(state),
      sweepGrid(state),
      note(
        "In print you may find, for c = 0.1, the best lengths 2, 3, 5, 6 and 8 with speedups from 1.32 to 3.93. The formula printed above that table gives 2, 4, 7, 10 and 15, and 1.46 to 4.48. Its α = 0.95 gives 8% away at K = 8. Trust what you can compute.",
      ),
    ),
    chooseK(),
    section(
      "The cliff",
      prose("A long draft is a bet on α. At c = 0.10 and α = 0.95 sixteen guesses give 4.48×. Let α fall to 0.80, as it may from one paragraph to the next, and they give 1.88×; at 0.60 they lose, with 0.96×. Three guesses fall from 2.85× to 2.27× and 1.67×. Far to the right the ground is highest and the way down is steepest: follow a column, and then the line at which nothing is left."),
      map(state),
    ),
    section(
      "Which draft?",
      prose(
        "Price and acceptance belong together: a larger draft guesses better and costs more. A ",
        term("sweet spot", "A range that has worked for many, not a fixed rule: drafts 10 to 30 times smaller than the target, c of 0.05 to 0.15, α above 0.7."),
        " that is often named is c from 0.05 to 0.15 with α above 0.7.",
      ),
      costGrid(state),
      breakEven(state),
    ),
    least(),
    perfect(),
    sameModel(),
    section(
      "Rows are not quite free",
      prose(
        "Every guess is one more row in the target’s forward. How much rows cost depends on machine and model; ",
        h("code", "headstart doctor"),
        " measures v(n) and c on yours. Choose a measured one in the bar chart: at α = 0.95 and c = 0.1 the best K falls from 15 to 12 on the large model, and to 9 on the small one.",
      ),
      forwards(),
      note(
        "People are often said to notice delays of about 300 ms. A faster round shortens the time for each token; it does not shorten the time to the first one, because the prompt has to be read as before. Chapter 10 is about that, and about batches, where rows are expensive because other requests need them.",
      ),
    ),
    section(
      "A mixture wants shorter drafts",
      prose(
        "A ", term("mixture of experts", "A model whose layers hold many small networks, the experts. For each token a router chooses a few of them, and only these are computed."),
        " reads few of its weights for one token. That makes plain decoding fast, and guesses expensive: each row chooses experts of its own, and a forward has to read those of all its rows. Neighbours in a text choose partly the same ones, so rows share more than chance would have it. How much differs from model to model; ρ = 0.45 fits what one maker has published.",
      ),
      mixtures(state),
      prose(
        "The cliff comes nearer: choose “8 of 128 experts” above the map, and look where the line has gone. Short drafts that are surely right still pay; long ones, and trees with siblings that are mostly refused, do not. headstart counts the experts that forwards meet, learns from that how alike your text chooses, and drafts accordingly.",
      ),
    ),
    summary(
      "Speedup = E / (v(K + 1) + cK). Fewer target calls are only half of the bill.",
      "The optimum is flat: a K that is off by one or two costs little. Below break-even the best K is 0.",
      "A perfect draft gives (K + 1) / (1 + cK), never more than 1/c; the target as its own draft gives 1.00.",
      "In a mixture of experts further rows read further experts, so the best drafts are shorter.",
      "headstart chooses K in every step from measured v(n), c and acceptance; you will see its reasons in a trace.",
    ),
  ];
}

export default {
  id: "07",
  title: "The α–K cliff",
  minutes: 11,
  question: "How much of the saved calls is left as time, how long should drafts be, and when is no draft the best draft?",
  round: { at: ["draft", "verify"], says: "Four words for four draft steps and one pass. At a tenth of a plain step for each guess that is 4 / 1.4 = 2.86 times as fast; it depends on what the two steps cost." },
  sources: [
    { text: "Leviathan, Kalman, Matias 2023, theorem 3.8", url: "https://arxiv.org/abs/2211.17192" },
    { text: "Chen et al. 2024 (Sequoia): a check that grows with its rows", url: "https://arxiv.org/abs/2402.12374" },
    { text: "Xia et al. 2024, survey", url: "https://arxiv.org/abs/2401.07851" },
  ],
  exercises: ["07.1", "07.2", "07.3", "07.4", "07.5"],
  build,
};
