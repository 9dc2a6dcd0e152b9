"""What to do about what a watch has found: commands as a person types them."""

from __future__ import annotations

import shlex

from headstart.insight.watch.expected import Expectation

_TRAIN = {"eagle3": ("eagle3", "--begin-with"), "draft_model": ("draft", None), "medusa": ("medusa", None)}


def about_drift(expectation: Expectation | None, kind: str) -> str:
    """Retrain, switch, or draft less: what helps when the drafter has come to know the traffic less well."""
    target = "TARGET" if expectation is None else shlex.quote(expectation.target)
    retrain = _retrain(expectation, target)
    drafter = "DRAFTER" if expectation is None or not expectation.drafter.get("from") else expectation.drafter["from"]
    switch = f"headstart doctor --target {target} --drafter {shlex.quote(str(drafter))} --prompts RECENT.jsonl"
    return (
        f"retrain on recent traffic: {retrain}; or see whether another drafter fits it better: {switch}; "
        f"until then draft less: {_lower(kind)}"
    )


def _retrain(expectation: Expectation | None, target: str) -> str:
    kind = "eagle3" if expectation is None else str(expectation.drafter.get("kind"))
    if kind not in _TRAIN:  # n-grams and suffixes learn nothing
        return f"headstart train eagle3 RECENT.jsonl --target {target} --output NEW"
    command, go_on = _TRAIN[kind]
    begin = ""
    if go_on is not None:
        folder = "HEAD" if expectation is None else shlex.quote(str(expectation.folder / "drafter"))
        begin = f" {go_on} {folder}"
    return f"headstart train {command} RECENT.jsonl --target {target}{begin} --output NEW"


def _lower(kind: str) -> str:
    return {
        "headstart": "headstart serve with a smaller --k",
        "sglang": "a smaller --speculative-num-steps",
        "llama.cpp": "a smaller --draft-max",
    }.get(kind, "a smaller num_speculative_tokens in --speculative-config")


BROKEN = (
    "do not act on this server's figures: scrape the engine itself instead of a proxy, and look whether its version "
    "has a known fault of its counters"
)
UNLIKE = (
    "compare its drafter's files (sha256 in manifest.json), version and flags with the others', then restart it from "
    "the same export; if its router sends it other requests on purpose, watch it by itself"
)
SEVERAL = "a load balancer? Watch each engine by its own address"
UNREACHABLE = "is it running? Look at the end of its log"
EXPECTED = (
    "other text than the export's prompts, or the engine reads the head wrongly: 'headstart export --verify' tells "
    "which of the two"
)
