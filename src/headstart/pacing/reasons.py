"""Decisions in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

MEASURING = "K=0: measuring plain decoding, because steps take other times than this machine's profile says"


def drafting(caps: Mapping[str, int], chances: Sequence[float]) -> str:
    """chances: by source, of a guess that follows nothing but true text."""
    nodes = max(caps.values())
    if len(caps) == 1:
        return f"K={nodes}: guesses are accepted at {chances[0]:.2f}"
    parts = [
        f"{name} {cap} (accepted at {chance:.2f})" if cap else f"{name} off (accepted at {chance:.2f})"
        for (name, cap), chance in zip(caps.items(), chances, strict=True)
    ]
    return f"K={nodes}: {', '.join(parts)}"


def probing(nodes: int, name: str, chance: float) -> str:
    return f"K={nodes}: probing {name}, last believed to be accepted at {chance:.2f}"


def resting(chances: Sequence[float], cost: float, every: float) -> str:
    """chances: of the sources that could pay at all. cost: of one drafted token, in target steps."""
    if not chances:
        return f"K=0: drafting a token costs {cost:.2f} of a target step, too much even if every guess were right"
    return (
        f"K=0: at an acceptance of {max(chances):.2f} a draft of 1 costs more than it gives; "
        f"probing every {max(1, round(every))} steps"
    )
