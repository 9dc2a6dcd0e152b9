// Acceptance by kind of text, from recorded traces of real models.

import { data, h } from "hs/base/dom";
import { listed, percent } from "hs/base/format";
import { figure } from "hs/figures/figure";
import { legend, tokenText } from "hs/figures/text";
import { parse } from "hs/trace/read";
import { summary, tokensOf } from "hs/trace/rounds";

const ENOUGH = 12; // judged guesses, below which a share says little

/** [{title, request, source, tested, accepted, alpha}] of every recorded request whose guesses were judged. */
export function kindsOf(traces) {
  return traces.flatMap(({ title, lines }) =>
    parse(lines).requests.flatMap((request, i, all) => {
      const { conditional, sources } = summary(request);
      const tested = conditional.reduce((sum, each) => sum + each.tested, 0);
      const accepted = conditional.reduce((sum, each) => sum + each.accepted, 0);
      if (tested < ENOUGH) return [];
      const name = all.length > 1 ? `${title} (${i + 1})` : title;
      return [{ title: name, request, source: listed(sources.map(({ source }) => source).filter(Boolean)), tested, accepted, alpha: accepted / tested }];
    }),
  );
}

/** The recorded kinds of this page, the best guessed first. */
export const recordedKinds = () => kindsOf(data("traces") ?? []).sort((a, b) => b.alpha - a.alpha);

/** Those of the drafter that drafted most of them: only these tell texts apart, and not drafters. */
export function comparable(kinds) {
  const groups = [...new Set(kinds.map(({ source }) => source))].map((source) => kinds.filter((each) => each.source === source));
  return groups.sort((a, b) => b.length - a.length)[0] ?? [];
}

export function byKind(kinds) {
  const bar = ({ alpha }) => h("span.kind-bar", { "aria-hidden": "true" }, h("span.kind-fill", { style: { width: percent(alpha, 1) } }));
  return figure({
    label: "Acceptance in recorded texts, by kind",
    title: true,
    body: [
      legend(),
      h(
        "div.kinds",
        {},
        kinds.map((kind) =>
          h(
            "div.kind",
            {},
            h("p.kind-name", {}, h("strong", kind.title), h("span.soft", ` ${kind.source}`)),
            h("div.kind-line", {}, bar(kind), h("strong", percent(kind.alpha))),
            h("details", {}, h("summary", "The text"), h("div.scroll", { tabindex: "0" }, tokenText({ tokens: tokensOf(kind.request) }).element)),
          ),
        ),
      ),
    ],
    caption: "Recorded from the bundled models; α is accepted of judged. The colours and lines of each text show which tokens were guessed.",
    table: () => ({
      columns: ["text", "drafted by", "judged", "accepted", "α"],
      rows: kinds.map((kind) => [kind.title, kind.source, kind.tested, kind.accepted, percent(kind.alpha, 1)]),
    }),
  }).element;
}
