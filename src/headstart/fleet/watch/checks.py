"""What must hold between the counters of a server that speculates, and what it means where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headstart.fleet.watch.counters import Counters


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
