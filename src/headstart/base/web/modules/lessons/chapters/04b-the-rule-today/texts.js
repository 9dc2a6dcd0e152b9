// One seed and several drafters: the text that each gives under rule "coupled", and under rule "exact".

import { fill, h, signal, watch } from "hs/base/dom";
import { counted, fixed } from "hs/base/format";
import { Noise, Purpose } from "hs/algorithm/noise";
import { chain, verify } from "hs/algorithm/rules";
import { drafter, target, tokensOf, WORDS } from "hs/algorithm/toy";
import { choice, slider } from "hs/figures/controls";
import { figure } from "hs/figures/figure";
import { legend, tokenText } from "hs/figures/text";

export const PROMPT = "the cat";
const LENGTH = 20;

/** By name: how many guesses, and whether they are drawn from q. */
export const DRAFTERS = {
  none: { k: 0, drawn: true, words: "no drafter" },
  two: { k: 2, drawn: true, words: "small model, 2 guesses" },
  five: { k: 5, drawn: true, words: "small model, 5 guesses" },
  likeliest: { k: 4, drawn: false, words: "likeliest words, 4 guesses" },
};

/**
 * A text of the toy, made of rounds as the engine makes them: noise from the seed and the place, the rule by its name.
 *
 * @param {"coupled"|"exact"} rule @param {string} name a key of DRAFTERS @param {number} seed
 * @returns {{tokens: {text: string, origin: string, step: number}[], ids: number[], rounds: number}}
 */
export function write(rule, name, seed, length = LENGTH) {
  const { k, drawn } = DRAFTERS[name];
  const noise = new Noise(seed);
  const text = tokensOf(PROMPT);
  const begun = text.length;
  const tokens = [];
  let rounds = 0;
  while (text.length - begun < length) {
    const guesses = [];
    const distributions = [];
    for (let i = 0; i < k; i++) {
      const q = drafter([...text, ...guesses]);
      distributions.push(q);
      const lane = rule === "coupled" ? 0 : text.length;
      const purpose = rule === "coupled" ? Purpose.TOKEN : Purpose.DRAFT;
      guesses.push(drawn ? noise.draw(q, text.length + i, purpose, lane) : q.indexOf(Math.max(...q)));
    }
    const rows = [target(text), ...guesses.map((_, i) => target([...text, ...guesses.slice(0, i + 1)]))];
    const verdict = verify(chain(guesses), rows, drawn && k ? distributions : null, noise, text.length, rule);
    verdict.emitted.forEach((id, i) => tokens.push({ id, text: `${WORDS[id]} `, origin: i < verdict.accepted ? "accepted" : verdict.kind, step: rounds }));
    text.push(...verdict.emitted);
    rounds += 1;
  }
  const kept = tokens.slice(0, length);
  return { tokens: kept, ids: kept.map(({ id }) => id), rounds, perRound: tokens.length / rounds };
}

/** The figure. */
export function textFigure() {
  const rule = signal("coupled");
  const name = signal("two");
  const seed = signal(7);
  const text = tokenText({ label: "The text, word by word" });
  const said = h("p.step-words");
  const frame = figure({
    label: "Twenty words after “the cat”, from one seed",
    title: true,
    body: h("div", {}, h("div.toy-text", {}, h("span.tok.prompt", `${PROMPT} `), text.element), said, legend()),
    controls: [
      choice({ label: "Rule", value: rule, options: [["coupled", "coupled"], ["exact", "exact"]] }),
      choice({ label: "Drafter", value: name, options: Object.entries(DRAFTERS).map(([key, { words }]) => [key, words]) }),
      slider({ label: "Seed", value: seed, min: 1, max: 40, step: 1 }),
    ],
    caption: "The toy of ten words from chapter 3. Keep the seed and change the drafter: under rule “coupled” the lines under the words change, the words do not.",
    table: () => ({
      columns: ["drafter", "text", "tokens a round"],
      rows: Object.entries(DRAFTERS).map(([key, { words }]) => {
        const made = write(rule.value, key, seed.value);
        return [words, made.tokens.map((each) => each.text).join(""), fixed(made.perRound, 2)];
      }),
    }),
  });
  watch([rule, name, seed], () => {
    const made = write(rule.value, name.value, seed.value);
    const plain = write(rule.value, "none", seed.value);
    text.set({ tokens: made.tokens });
    const at = made.ids.findIndex((id, i) => id !== plain.ids[i]);
    fill(said, `${counted(made.rounds, "call")} of the target. `, h("strong", at < 0 ? "✓ The same words as without a drafter." : `✗ Other words than without a drafter, from word ${at + 1} on; the distribution is the same.`));
    frame.update();
  });
  return frame.element;
}
