"""What to do about what a watch has found: commands as a person types them."""

from __future__ import annotations

import shlex

from headstart.fleet.watch.expected import Expectation

_ADAPTED = ("eagle3", "draft_model")
"""What `headstart adapt` can train further."""


def about_drift(expectation: Expectation | None, kind: str, shorter: str = "") -> str:
    """Retrain, switch, or draft less, a line each: what helps when the drafter knows the traffic less well.

    kind: of server. shorter: the best draft length in words, where it is known.
    """
    target = "TARGET" if expectation is None else shlex.quote(expectation.target)
    drafter = "DRAFTER" if expectation is None else shlex.quote(str(expectation.drafter.get("from") or "DRAFTER"))
    switch = f"headstart doctor --target {target} --drafter {drafter} --prompts RECENT.jsonl"
    return (
        f"retrain on what is served now: {_retrain(expectation, target, drafter)}\nor see whether another drafter fits "
        f"it better: {switch}\nuntil then draft less: {shorter or _lower(kind)}"
    )


def _retrain(expectation: Expectation | None, target: str, drafter: str) -> str:
    if expectation is None or expectation.drafter.get("kind") in _ADAPTED:
        return f"headstart adapt TRAFFIC.jsonl --target {target} --drafter {drafter} -o adapted"
    how = "medusa" if expectation.drafter.get("kind") == "medusa" else "eagle3"  # n-grams and suffixes learn nothing
    return f"headstart train {how} RECENT.jsonl --target {target} --output NEW"


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
