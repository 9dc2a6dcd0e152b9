// The card of a token: where it came from, what both distributions gave it, what decided, and what else there was.

import { fill, h } from "hs/base/dom";
import { probability, visible } from "hs/base/format";
import { budgetInWords } from "hs/trace/budget";
import { alternatives } from "hs/viewer/alternatives";
import { gauge } from "hs/viewer/gauge";

const ORIGINS = {
  accepted: "Guessed, and accepted",
  correction: "A correction: the guess here was refused",
  bonus: "A bonus: the whole draft was accepted",
  plain: "The target’s own: nothing was guessed",
};

/** @returns {{element: HTMLElement, set: (shown: {token: object, step: object, request: object}|null) => void}}
 * token: an entry of `tokensOf(request)`; step: its line */
export function tokenCard() {
  const element = h("div.token-card", { role: "group", "aria-label": "The chosen token" });
  const set = (shown) => fill(element, shown ? contents(shown) : h("p.soft", "Choose a token to see where it came from."));
  set(null);
  return { element, set };
}

function contents({ token, step, request }) {
  const guessed = token.node !== null;
  const greedy = token.model !== null;
  const facts = [
    ["Round", `${step.i + 1}, place ${token.at + 1}`],
    step.source && ["Guesses by", step.source],
    token.p !== null && !greedy && ["p, the target’s", probability(token.p)],
    greedy && ["The model gave it", probability(token.model)],
    token.q !== null && ["q, the draft’s", probability(token.q)],
    step.budget?.reason && [step.tokens.length ? "Why this budget" : "Why no guess", budgetInWords(step)],
  ].filter(Boolean);
  return [
    h("p.card-token", {}, h(`span.tok.${token.origin}`, visible(token.text)), h("span.soft.card-id", ` id ${token.token}`)),
    h("p.card-origin", ORIGINS[token.origin] ?? ""),
    h("dl.facts", {}, facts.map(([name, value]) => h("div", {}, h("dt", name), h("dd", value)))),
    h("p.card-why", why(token, step, request)),
    guessed && typeof token.weight === "number" && token.uniform !== null && gauge({ uniform: token.uniform, weight: token.weight, accepted: token.uniform < token.weight }),
    step.distributions.length > 0 && alternatives(request, step, token.node, { after: token.node === null ? step.path.at(-1) ?? -1 : undefined, token: token.token, most: 5 }),
  ];
}

/** What decided, in a sentence. */
function why(token, step, request) {
  const { greedy } = request;
  if (step.procedure === "plain") return greedy ? "The target’s likeliest token, as in decoding without guesses." : "One token was drawn from the target’s distribution, as in decoding without guesses.";
  if (token.node === null) {
    if (token.origin === "bonus") return "After a draft that was accepted to its end, the same forward gives the distribution of one token more.";
    return step.procedure === "walk"
      ? "No guess bore the target’s own token, so that token is here."
      : greedy
        ? "The guess was not the target’s likeliest token, so that token is here."
        : "No uniform draw kept a guess here. The token was drawn from what the target’s distribution has beyond what the guesses covered.";
  }
  if (step.procedure === "walk") return "The target’s own token here is the guess.";
  if (typeof token.weight !== "number") return "A guess further on was kept, and with it this one: its own uniform draw was never looked at.";
  return token.uniform < token.weight ? "Its uniform draw lay below its weight, so it was kept, and all before it." : "It was kept with a guess further on.";
}
