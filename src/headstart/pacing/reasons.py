"""Decisions in plain words."""

from __future__ import annotations

from functools import lru_cache

from headstart.base.words import counted

MEASURING = "K=0: measuring plain decoding, because steps take other times than this machine's profile says"


@lru_cache  # it is asked for in every step, and seldom changes
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


def resting(chance: float | None, nodes: int, rows: int, costs: tuple[float, float, float], every: float) -> str:
    """chance: of the sources that could pay at all, if there are any. nodes: of the smallest draft. rows: of the
    forward with it. costs: of that forward, of the draft and of deciding, in baseline steps."""
    checking, draft, deciding = costs
    parts = [f"drafting {draft:.2f}"] * (round(draft, 2) > 0) + [f"deciding {deciding:.2f}"] * (round(deciding, 2) > 0)
    price = ", ".join([f"checking {counted(rows, 'row')} costs {checking:.2f} baseline steps here", *parts])
    if chance is None:
        return f"K=0: {price}: too much even if every guess were right"
    return (
        f"K=0: {price}: at an acceptance of {chance:.2f} a draft of {nodes} costs more than it gives; "
        f"probing every {counted(max(1, round(every)), 'step')}"
    )


def not_guessing(reason: str) -> str:
    """The same of a decision that stands, as a sentence of its own."""
    return f"not guessing now: {reason.removeprefix('K=0: ')}"
