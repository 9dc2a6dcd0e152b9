"""A certificate as a page: the verdict, the evidence as it grew, what it could have noticed, and every finding."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from headstart.base.web.report import charts
from headstart.base.web.report.page import Page, VerdictKind
from headstart.measure.audit.certificate import HEADLINES
from headstart.measure.audit.subject import Verdict

_KINDS: Mapping[Verdict, VerdictKind] = {"lossless": "good", "not lossless": "bad", "undecided": "unsure"}
_SHOWN = (
    "target", "drafter", "rule", "pacing", "dtype", "quantize", "decoder", "url", "model", "tokens_from", "asked",
)  # fmt: skip
"""What is shown of the subject, where it is known."""
_LEAST_SHOWN = 0.00005
"""Of a total variation, what is not 0 in four digits."""
_MOST = 40
"""Divergences shown; the JSON has more."""


def audit_page(record: Mapping[str, Any]) -> Page:
    """The page of a certificate's record (`Certificate.record`, or what `audit -o` wrote)."""
    subject, parts = record["subject"], record["parts"]
    page = Page("Losslessness certificate", str(subject.get("name", "")))
    verdict: Verdict = record["verdict"]
    reasons = [str(reason) for reason in record["reasons"] if reason]
    page.verdict(_KINDS[verdict], HEADLINES[verdict], reasons[0] if reasons else "")
    page.items([*reasons[1:], *map(str, record["notes"])])
    page.facts(_facts(record))
    for name, (heading, show) in _PARTS.items():
        if name in parts:
            page.heading(heading)
            for reason in filter(None, parts[name]["reasons"] if name != "behaviour" else ()):
                page.text(reason[:1].upper() + reason[1:].rstrip(".") + ".")
            show(page, parts[name])
    page.heading("Made by")
    made = {
        name: _words(value) for name, value in record["provenance"].items() if name != "command" and value is not None
    }
    if "date" in made:
        made["date"] = made["date"].replace("T", " ").replace("+00:00", " UTC")
    page.facts(made)
    page.code(str(record["provenance"]["command"]))
    page.heading("Settings")
    page.code(json.dumps(record["settings"], indent=1, ensure_ascii=False))
    return page


def _facts(record: Mapping[str, Any]) -> dict[str, str]:
    subject, reference, settings = record["subject"], record["reference"], record["settings"]
    facts = {name.replace("_", " "): _words(subject[name]) for name in _SHOWN if subject.get(name) is not None}
    weights = [reference.get(name) for name in ("name", "dtype", "quantize", "decoder")]
    facts["held against"] = ", ".join(str(each) for each in weights if each)
    facts["sampled with"] = sampling_words(settings["sampling"])
    facts["prompts"] = str(settings["prompts"])
    return facts


def sampling_words(sampling: Mapping[str, Any]) -> str:
    """The fields that are switched on."""
    off: dict[str, Any] = {
        "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0, "min_tokens": 0, "ignore_eos": False,
    }  # fmt: skip
    words = [f"temperature {sampling['temperature']:g}"]
    words += [f"{name.replace('_', ' ')} {sampling[name]}" for name, value in off.items() if sampling[name] != value]
    if sampling["logit_bias"]:
        words.append(f"a bias on {len(sampling['logit_bias'])} tokens")
    return ", ".join(words)


def _sampling(page: Page, part: Mapping[str, Any]) -> None:
    if curve := part.get("e_value_by_completions"):
        _evidence(page, curve, part["settings"]["level"], "completions")
    tv = part["total_variation"]
    if tv["at_least"] >= _LEAST_SHOWN:
        page.text(
            f"By the bets, the distribution of a token is off by at least {tv['at_least']:.4f} in total variation on "
            f"average (confidence {1 - part['settings']['level']:.0%})."
        )
    else:
        page.text("The bets found no difference between the distributions of a token.")
    page.table(
        ["bias", "total variation", "caught", "completions needed"],
        [
            [power["what"], power["total_variation"], power["caught"], power["completions_needed"]]
            for power in part["power"].values()
        ],
        caption="What this audit would have caught: simulated engines with these biases, bet on in the same way.",
        formats={"total variation": ".3f", "caught": ".0%", "completions needed": ",d"},
    )


def _comparison(page: Page, part: Mapping[str, Any]) -> None:
    page.facts({"A": str(part["a"].get("name")), "B": str(part["b"].get("name")), "pairs": str(part["pairs"])})
    if part["e_value_by_pairs"]:
        _evidence(page, part["e_value_by_pairs"], part["settings"]["level"], "pairs")
    if part["total_variation"]:
        _distances(page, part["total_variation"])
    if part["greedy_differences"]:
        page.table(
            ["prompt", "position", "margin", "A", "B"],
            [[d["prompt"], d["position"], d["margin"], d["a"], d["b"]] for d in part["greedy_differences"][:_MOST]],
            caption="Greedy texts that differ; the margin is by A's own log-probabilities, in nats.",
            formats={"margin": ".3f"},
        )


def _evidence(page: Page, curve: Sequence[Sequence[float]], level: float, unit: str) -> None:
    page.figure(
        charts.lines(
            {"capital": ([row[0] for row in curve], [max(float(row[1]), 1e-6) for row in curve])},
            x=unit,
            y="capital of the bets (log scale)",
            reference=1 / level,
            log_y=True,
        ),
        caption=f"What a stake of 1 became. A lossless engine reaches the dashed line, {1 / level:g}, with probability "
        f"{level:g} at most; bets on an engine that is not grow without end.",
        alt=f"Capital of the bets by number of {unit}, ending at {float(curve[-1][1]):.3g}; {1 / level:g} is proof.",
    )


def _distances(page: Page, distances: Sequence[Mapping[str, Any]]) -> None:
    series = {
        "measured": [each["first_token"] for each in distances],
        "noise, 95th percentile": [each["noise_floor"] for each in distances],
    }
    names = [f"prompt {each['prompt']}" for each in distances]
    page.figure(
        charts.bars(names, series, y="total variation of the first token"),
        caption="How far the first tokens drawn are from what was expected, beside what chance alone gives with as "
        "many draws. Bars below the noise say nothing.",
        alt="Total variation of the first token by prompt, with the noise floor of each.",
    )


def _greedy(page: Page, part: Mapping[str, Any]) -> None:
    for words in (part["rounding"]["how"], *part["notes"]):
        page.text(words)
    if part["where"]:
        page.table(
            ["prompt", "position", "verdict", "margin", "likeliest", "second", "said"],
            [
                [d["prompt"], d["position"], d["verdict"], d["margin"]]
                + [json.dumps(d[name], ensure_ascii=False) for name in ("best_text", "second_text", "said_text")]
                for d in part["where"][:_MOST]
            ],
            caption=f"Tokens that are not the likeliest: {part['divergences']} of {part['positions']}. The margin is "
            f"how many logits the likeliest is ahead; up to {part['rounding']['margin']:.3g} is a near-tie.",
            formats={"margin": ".4f"},
        )


def _behaviour(page: Page, part: Mapping[str, Any]) -> None:
    page.table(
        ["promise", "result", "cases", "what was seen"],
        [[check["name"], check["status"], check["cases"], check["detail"]] for check in part["checks"]],
        caption="Each limit was put at every offset inside a block of draft tokens.",
    )
    failures = [f"{check['name']}: {failure}" for check in part["checks"] for failure in check["failures"]]
    if failures:
        page.items(failures)


_PARTS = {
    "sampling": ("Sampled text", _sampling),
    "comparison": ("Two servers", _comparison),
    "greedy": ("Greedy text", _greedy),
    "behaviour": ("Stops, ends, limits", _behaviour),
}


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {inner}" for name, inner in value.items())
    return "" if value is None else str(value)
