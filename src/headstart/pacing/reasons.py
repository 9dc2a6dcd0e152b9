"""Decisions in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

MEASURING = "K=0: measuring plain decoding, because steps take other times than this machine's profile says"


@lru_cache(maxsize=512)  # it is asked for in every step, and seldom changes
def drafting(names: tuple[str, ...], nodes: tuple[int, ...], chances: tuple[float, ...]) -> str:
    """nodes, chances: by source; the chance is that of a guess that follows nothing but true text."""
    most = max(nodes)
    if len(names) == 1:
        return f"K={most}: guesses are accepted at {chances[0]:.2f}"
    parts = [
        f"{name} {each or 'off'} (accepted at {chance:.2f})"
        for name, each, chance in zip(names, nodes, chances, strict=True)
    ]
    return f"K={most}: {', '.join(parts)}"


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
