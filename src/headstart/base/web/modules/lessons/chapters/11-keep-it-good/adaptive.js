// A draft length that adapts: the reader sets the rule, and it writes 200 tokens beside every fixed length.

import { computed, fill, h, signal, watch } from "hs/base/dom";
import { fixed, percent } from "hs/base/format";
import { fixedK } from "hs/algorithm/adaptive";
import { lineChart } from "hs/figures/charts";
import { button, slider } from "hs/figures/controls";
import { figure, tableOf } from "hs/figures/figure";
import { exercise } from "hs/lessons/exercise";
import { FIXED, PRACTICE, TOKENS, means, oracle, rivals, ruleOf, run, time } from "hs/lessons/chapters/11-keep-it-good/rules";
import { tell } from "hs/lessons/parts";

/** The figure, and its exercise, which reads the same rule. */
export function adaptive() {
  const settings = Object.fromEntries(Object.entries(PRACTICE).map(([name, value]) => [name, signal(value)]));
  const all = Object.values(settings);
  const seed = signal(1);
  const given = computed(() => Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, value.value])), all);
  const put = (values) => Object.entries(values).forEach(([name, value]) => (settings[name].value = value));
  const chart = lineChart({
    x: { label: "token", min: 0, max: TOKENS },
    y: { label: "K", min: 0, max: 16, ticks: [0, 4, 8, 12, 16] },
    series: [],
    height: 240,
  });
  const numbers = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Calls and time of each rule" });
  const words = h("p.figure-said");
  const share = (value) => percent(value);
  const frame = figure({
    label: "A draft length that follows the text, and those that do not",
    title: true,
    body: [chart.element, numbers, words],
    controls: [
      slider({ label: "One guess more above", value: settings.up, min: 0.5, max: 1, step: 0.05, format: share }),
      slider({ label: "One guess fewer below", value: settings.down, min: 0, max: 0.8, step: 0.05, format: share }),
      slider({ label: "Rounds looked at", value: settings.rounds, min: 1, max: 10, step: 1 }),
      slider({ label: "Never fewer than", value: settings.least, min: 1, max: 5, step: 1 }),
      slider({ label: "Never more than", value: settings.most, min: 5, max: 16, step: 1 }),
      button("Another text", () => (seed.value += 1), { quiet: true }),
      button("The practice rule", () => put(PRACTICE), { quiet: true }),
    ],
    caption: "The acceptance of this text changes between 0.95 and 0.2 and stays for 50 tokens on average. Time is counted in calls of the target, a guess costs 0.1 of one; the last column is the mean time of 60 texts. Whether a guess at a place is kept was settled before, so that all rules meet the same luck.",
    table: () => ({ columns: ["round at token", "K", "accepted"], rows: now.rounds.map(({ at, drafted, accepted }) => [at, drafted, accepted]) }),
  });
  let now = null;
  // a change of one slider may break the order of two
  watch([settings.up], () => (settings.down.value = Math.min(settings.down.value, settings.up.value)));
  watch([settings.down], () => (settings.up.value = Math.max(settings.down.value, settings.up.value)));
  watch([given, seed], () => {
    const rule = ruleOf(given.value);
    now = run(rule, seed.value);
    const steps = now.rounds.flatMap(({ at, drafted }, i) => [[at, drafted], [now.rounds[i + 1]?.at ?? TOKENS, drafted]]);
    chart.set({ series: [{ name: "K of your rule", points: steps, mark: true }, { name: "best K for one who knows the acceptance", points: oracle(seed.value).flatMap((k, at) => [[at, k], [at + 1, k]]), colour: "soft" }] });
    const mine = { name: "your rule", ...means(rule) };
    const here = (name, one) => ({ name, calls: one.targetCalls, guesses: one.drafted, time: time(one) });
    const texts = [here("your rule", now), here("the practice rule", run(ruleOf(PRACTICE), seed.value)), ...FIXED.map((k) => here(`K = ${k}`, run(fixedK(k), seed.value)))];
    const overall = [mine, rivals().at(-1), ...rivals().slice(0, -1)];
    fill(numbers, tableOf({ columns: ["", "calls", "guesses", "time", "mean of 60"], rows: texts.map((each, i) => [each.name, each.calls, each.guesses, fixed(each.time, 1), fixed(overall[i].time, 1)]) }));
    tell(words, `Plain decoding takes ${TOKENS}. `, verdict(mine));
    frame.update();
  });
  return { element: frame.element, exercise: beat(given, put) };
}

const bestFixed = () => rivals().filter((each) => each.fixed).reduce((a, b) => (b.time < a.time ? b : a));

function verdict(mine) {
  const [best, practice] = [bestFixed(), rivals().at(-1)];
  const against = (other) => `${fixed(Math.abs(mine.time - other.time), 1)} ${mine.time < other.time ? "less than" : "more than"} ${other.name}`;
  if (mine.time === practice.time) return `Over 60 texts the practice rule takes ${against(best)}, the best of the fixed lengths, although it was not told which one that is.`;
  return `Over 60 texts your rule takes ${against(best)}, the best fixed length, and ${against(practice)}.`;
}

function beat(given, put) {
  const goal = 3;
  return exercise({
    id: "11.1",
    title: "Beat every fixed length, and the practice rule",
    ask: `Find a rule whose mean time over 60 texts is below that of every fixed K, and at least ${goal} below that of the practice rule (over 80%: one more; under 50%: one fewer; the last five rounds; 2 to 10). Set it in the figure above; then check.`,
    widget: { element: h("p.soft", "The sliders above are your answer."), read: () => given.value },
    check(settings) {
      const [mine, best, practice] = [means(ruleOf(settings)), bestFixed(), rivals().at(-1)];
      if (mine.time >= best.time) return { ok: false, say: `Your rule takes ${fixed(mine.time, 1)}; ${best.name} takes ${fixed(best.time, 1)} without any rule.` };
      if (mine.time > practice.time - goal) return { ok: false, say: `Your rule takes ${fixed(mine.time, 1)}, which is below every fixed length; the practice rule takes ${fixed(practice.time, 1)}. Where does it lose its time?` };
      return { ok: true, say: `Yes: ${fixed(mine.time, 1)} against ${fixed(practice.time, 1)} and ${fixed(best.time, 1)}. It follows sooner, and it lets go of hard text. Whether that is so on your texts, only your texts can say.` };
    },
    hints: ["Look at where K is far from the dashed line. After a change, how many rounds pass before it moves?", "Look at fewer rounds, so that it follows sooner; and let it go down to one guess where hardly any is kept."],
    solution: () => "For example: 2 rounds, never fewer than 1, never more than 8. Fewer rounds make it quick; one guess is cheap where nearly all are refused.",
    solve: () => put({ ...PRACTICE, rounds: 2, least: 1, most: 8 }),
  });
}
