"""What is judged of a server and what to do about it: identities of its counters, an export's promise, advice.

Advice is given as commands as a person types them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from headstart.fleet.export.manifest import Manifest, read_manifest
from headstart.fleet.watch.counters import Counters
from headstart.fleet.watch.drift import Baseline


def broken(counters: Counters) -> list[str]:
    """Each identity that the counters break, in a sentence with what that means.

    counters: of one engine, since its start. A page may be written in the middle of a step, so that some of its
    counters lag by a step of all requests that run; that much is allowed for.
    """
    return list(_broken(counters)) if counters.counts_drafts else []


def _broken(counters: Counters) -> Iterator[str]:
    drafts, drafted, accepted = counters.drafts, counters.drafted, counters.accepted
    positions = counters.accepted_per_position
    depth = max(len(positions), 1)
    step = depth * (int(counters.running or 0) + 1)
    # Behind a stop headstart counts an accepted token at its position, though it is in no text and not in A
    cut = depth * (counters.ended or 0) if counters.kind == "headstart" else 0
    if positions and not -step <= sum(positions) - accepted <= step + cut:
        yield (
            f"accepted tokens by position sum to {sum(positions)}, but {accepted} are counted in all: "
            "one of the two is of other engines, so neither can be trusted (is a proxy or a rule merging labels?)"
        )
    if accepted > drafted + step:
        yield f"{accepted} tokens were accepted of {drafted} drafted ones: the counters are of different engines"
    if drafts > drafted + step:
        yield f"{drafts} drafts hold {drafted} tokens, less than one each: drafts are counted twice, or tokens are lost"
    for place, (before, after) in enumerate(pairwise(positions), start=1):
        if after > before + step:
            yield (
                f"position {place + 1} was accepted {after} times but position {place} only {before} times, "
                "though the one needs the other: tokens after a rejected one are counted"
            )
    if positions and positions[0] > drafts + step:
        yield f"position 1 was accepted {positions[0]} times in {drafts} drafts: drafts are missing from the count"
    yield from _broken_forwards(counters, step)


def _broken_forwards(counters: Counters, step: int) -> Iterator[str]:
    """Forwards that cannot be. In vLLM the accepted tokens behind a stop make G - A too small."""
    generated, accepted, drafts = counters.generated, counters.accepted, counters.drafts
    behind_stops = step + max(len(counters.accepted_per_position), 1) * (counters.ended or 0)
    if counters.counted_forwards is None and drafts > generated - accepted + behind_stops:
        yield (
            f"{drafts} drafts were verified in {generated - accepted} forwards (generated less accepted tokens): "
            "generated tokens are missing from the count, or accepted ones are counted twice"
        )
    if counters.counted_forwards is not None and abs(generated - accepted - counters.counted_forwards) > behind_stops:
        yield (
            f"{generated} generated and {accepted} accepted tokens do not fit to {counters.counted_forwards} forwards: "
            "each forward gives its accepted tokens and one more"
        )


def read_expectation(path: Path) -> Manifest:
    """The manifest of an export, of its folder or as a file: its figures were measured on its prompts, which may be
    other text than the traffic.

    Raises:
        InvalidFile: there is none, or it is no manifest of this version.
    """
    return read_manifest(
        path, hint="give the folder of 'headstart export', its manifest.json, or none: then watch learns what is normal"
    )


def baseline_of(expectation: Manifest) -> Baseline:
    """For the detector: drafts of the export's fixed length."""
    expected = expectation.expected
    positions = () if expected is None else expected.by_position
    return Baseline.of(map(asdict, positions), depth=expectation.depth)


_ADAPTED = ("eagle3", "draft_model")
"""What `headstart adapt` can train further."""


def about_drift(expectation: Manifest | None, kind: str, shorter: str = "") -> str:
    """Retrain, switch, or draft less, a line each: what helps when the drafter knows the traffic less well.

    kind: of server. shorter: the best draft length in words, where it is known.
    """
    target = "TARGET" if expectation is None else shlex.quote(expectation.target.name)
    drafter = "DRAFTER" if expectation is None else shlex.quote(expectation.drafter.origin)
    switch = f"headstart doctor {target} --drafter {drafter} --prompts RECENT.jsonl"
    return (
        f"retrain on what is served now: {_retrain(expectation, target, drafter)}\nor see whether another drafter fits "
        f"it better: {switch}\nuntil then draft less: {shorter or _lower(kind)}"
    )


def _retrain(expectation: Manifest | None, target: str, drafter: str) -> str:
    if expectation is None or expectation.drafter.kind in _ADAPTED:
        return f"headstart adapt {target} TRAFFIC.jsonl --drafter {drafter} -o adapted"
    how = "medusa" if expectation.drafter.kind == "medusa" else "eagle3"  # n-grams and suffixes learn nothing
    return f"headstart train {how} {target} RECENT.jsonl --output NEW"


def _lower(kind: str) -> str:
    return {
        "headstart": "headstart serve with a smaller --k",
        "sglang": "a smaller --speculative-num-steps",
        "llama.cpp": "a smaller --spec-draft-n-max",
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
EXPECTED = (
    "other text than the export's prompts, or the engine reads the head wrongly: 'headstart export --verify' tells "
    "which of the two"
)
